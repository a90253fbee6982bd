// Writes a train step as an XlaProgram: the recorded forward pass, its derivative (vjp.cpp), the update as optax does it
// (update.cpp). What PyTorch does with the same forward pass plays no part here.
#pragma once

#include <map>
#include <string>

#include "job/job.h"
#include "step/train.h"
#include "xla/program.h"

namespace plimsoll {

// When parameters are updated: as soon as their gradient is there, or after the whole derivative. XLA tries several orders and
// takes the one that needs least (hlo_memory_scheduler.cc, DefaultModuleScheduler).
enum class UpdateOrder : uint8_t { early, late };

class ProgramBuilder {
 public:
  ProgramBuilder(const RecordedForward& forward, const Job& job, UpdateOrder order) : recorded_(forward), job_(job), order_(order) {}

  // Throws an Error for an op whose derivative is not known and for optimizers that optax does not have.
  XlaProgram build();

 private:
  // forward.cpp
  void lower_forward();
  OpId lower(ValueId id);
  OpId lower_argument(const DataflowValue& v);
  OpId operand(ValueId id, bool as_stored, uint32_t block);
  OpId converted(OpId argument, DType dtype, uint32_t block);
  XlaOp computed(const DataflowValue& v, DerivativeRule rule);
  bool keeps_every_element(const DataflowValue& v, const XlaOp& made) const;
  void add_statistics(XlaOp& op, ValueId id);
  std::vector<ValueId> siblings(ValueId id) const;

  // vjp.cpp
  void differentiate();
  void differentiate(OpId id, OpId gradient);
  void differentiate_dot(OpId id, OpId gradient, size_t left, size_t right);
  void differentiate_normalise(OpId id, OpId gradient);
  void differentiate_attention(OpId id, OpId gradient);
  void give(OpId forward_op, OpId gradient);  // adds to the gradient of an op
  void recompute(uint32_t block);
  OpId read(OpId forward_op) const;  // the op itself, or its recomputation

  // update.cpp
  void update_all();
  void update(OpId parameter);
  OpId reduced_gradient(OpId parameter);
  OpId new_state(OpId parameter, const char* name, const Dims& sizes, DType dtype, std::vector<OpId> reads, Category category);
  std::vector<OpId> optimizer_states(OpId parameter, OpId gradient);

  OpId emit(XlaOp op);
  OpId emit(OpKind kind, const char* name, const Dims& sizes, DType dtype, std::vector<OpId> operands);
  const XlaOp& op(OpId id) const { return program_.ops[id]; }

  const RecordedForward& recorded_;
  const Job& job_;
  UpdateOrder order_;
  XlaProgram program_;
  Phase phase_ = Phase::forward;
  ScopeId scope_ = 0;

  std::vector<OpId> op_of_;                             // by recorded value
  std::map<std::pair<OpId, uint32_t>, OpId> converts_;  // of an argument, in a block
  std::vector<OpId> parameters_;                        // arguments that are trained
  size_t forward_end_ = 0;
  std::vector<OpId> gradients_;  // by forward op
  std::vector<uint32_t> users_;  // by forward op: readers whose derivative has not run
  std::map<uint32_t, std::vector<OpId>> blocks_;
  std::map<OpId, OpId> recomputed_;
  OpId clip_scale_ = 0;
};

DType param_dtype(const Job& job);

}  // namespace plimsoll
