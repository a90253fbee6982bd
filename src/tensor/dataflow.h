// The dataflow of what a tape executes: every value with the op that made it and the values it was made from, in program
// order. A framework that compiles the whole step (JAX under XLA) is told apart from PyTorch by what it does with this graph.
#pragma once

#include <vector>

#include "tensor/tape.h"

namespace plimsoll {

using ValueId = uint32_t;  // index into Dataflow::values; 0 is no value

struct DataflowValue {
  enum class Role : uint8_t { computed, parameter, frozen_parameter, buffer, input };

  const char* op = "";
  ScopeId scope = 0;
  Dims sizes;
  DType dtype = DType::float32;
  Role role = Role::computed;
  bool differentiable = false;  // made while gradients were recorded
  uint32_t call = 0;            // values of one call: the first is its result, the others what it also computes (statistics, a mask)
  uint32_t block = 0;           // checkpointed block, numbered from 1; 0: outside
  std::vector<ValueId> operands;
};

class Dataflow {
 public:
  explicit Dataflow(const Tape& tape) : values(1), tape_(tape) {}

  std::vector<DataflowValue> values;

  // Called by Op and by the factories, in this order: begin_call, reads, made, returns, end_call.
  void begin_call(const char* op);
  void reads(const Tensor* t);  // null and undefined are passed over
  void made(Tensor& t);         // new memory
  void returns(Tensor& t);      // a result in memory that existed (a view, an in-place op) becomes a value of its own
  void end_call() { calls_.pop_back(); }

  void begin_block() { block_ = ++blocks_; }
  void end_block() { block_ = 0; }

  void set_role(const Tensor& t, DataflowValue::Role role) { values[t.body().value].role = role; }

 private:
  struct Call {
    const char* op;
    uint32_t id;
    std::vector<ValueId> operands;
  };
  void add(Tensor& t);

  const Tape& tape_;
  std::vector<Call> calls_;
  uint32_t call_ids_ = 0, block_ = 0, blocks_ = 0;
};

class DataflowBlock {
 public:
  explicit DataflowBlock(Dataflow& d) : dataflow_(d) { d.begin_block(); }
  ~DataflowBlock() { dataflow_.end_block(); }
  DataflowBlock(const DataflowBlock&) = delete;
  DataflowBlock& operator=(const DataflowBlock&) = delete;

 private:
  Dataflow& dataflow_;
};

}  // namespace plimsoll
