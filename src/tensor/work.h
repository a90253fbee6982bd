// What a step computes and moves: one record for every kernel that a tape executes, kept on request. Bytes are counted where every op
// passes (Op and the factories); floating-point operations where an op knows them. What that costs in seconds is in plan/step_time.h.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/dtype.h"
#include "trace/trace.h"

namespace plimsoll {

class Tape;
class Tensor;

// What a kernel is bound by when it is large.
enum class Unit : uint8_t {
  memory,       // element-wise, reductions, copies: the bytes alone
  matmul,       // cuBLAS
  convolution,  // cuDNN, which may take TF32 for fp32
  attention,    // fused
  scan,         // of a state-space model: fp32 on the ordinary cores
  transfer,     // between host and device
};

struct Kernel {
  const char* op = "";
  double flops = 0;  // a multiplication and an addition are two
  int64_t bytes = 0;
  ScopeId scope = 0;
  uint32_t block = 0;     // Work::blocks[block - 1]; 0: in none, or not in the forward pass
  uint32_t launches = 1;  // what was folded into this record
  uint16_t micro_step = 0;
  Unit unit = Unit::memory;
  DType dtype = DType::float32;  // what is multiplied
  Phase phase = Phase::setup;
  bool recomputed = false;  // forward once more, inside backward
};

// One run of a block that can be checkpointed: its place in the trace.
struct BlockRun {
  ScopeId scope = 0;
  uint16_t micro_step = 0;
  StorageId first_storage = 0, last_storage = 0;  // made inside: [first, last)
  size_t first_event = 0, last_event = 0;
  int64_t result_bytes = 0;  // of them, what the block returns
};

class Work {
 public:
  std::vector<Kernel> kernels;
  std::vector<BlockRun> blocks;  // in the order they ran

  // Called by Op and by the factories, in this order: begin_call, reads, made or kept, flops, end_call.
  void begin_call(const char* op) { calls_.push_back({op}); }
  void reads(const Tensor& t);
  void reads_part() { calls_.back().read = 0; }  // as much as is written, not all of the inputs
  void made(int64_t bytes);
  void kept();  // a selective checkpoint has the result: nothing is computed
  void flops(double n, DType dtype, Unit unit);
  void unit(Unit u) { calls_.back().unit = u; }
  void end_call(const Tape& tape);
  // A kernel that is no op of the tape: what it does; where and when it is added is filled in.
  void add(const Tape& tape, Kernel kernel);

  void begin_micro_step(uint16_t i) { micro_step_ = i; }
  void begin_block(const Tape& tape, ScopeId scope);
  void end_block(const Tape& tape);
  void block_returns(const Tensor& result);

 private:
  struct Call {
    const char* op;
    double flops = 0;
    int64_t read = 0, written = 0, first = 0;  // first: of the first input, which an in-place op writes
    Unit unit = Unit::memory;
    DType dtype = DType::float32;
    bool skipped = false;
  };

  std::vector<Call> calls_;  // open ones, the innermost last
  uint32_t block_ = 0;       // the outermost open one, from 1
  uint32_t depth_ = 0;
  uint16_t micro_step_ = 0;
};

// Marks a block while it runs; costs a comparison when nothing is counted.
class WorkBlock {
 public:
  WorkBlock(Tape& tape, ScopeId scope);
  ~WorkBlock();
  WorkBlock(const WorkBlock&) = delete;
  WorkBlock& operator=(const WorkBlock&) = delete;
  Tensor returns(Tensor result) const;
  std::vector<Tensor> returns(std::vector<Tensor> results) const;

 private:
  Tape& tape_;
};

}  // namespace plimsoll
