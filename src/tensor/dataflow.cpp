#include "tensor/dataflow.h"

namespace plimsoll {

void Dataflow::begin_call(const char* op) { calls_.push_back({op, ++call_ids_, {}}); }

void Dataflow::reads(const Tensor* t) {
  if (t && t->defined() && t->body().value != 0) calls_.back().operands.push_back(t->body().value);
}

void Dataflow::add(Tensor& t) {
  DataflowValue v;
  v.sizes = t.sizes();
  v.dtype = t.dtype();
  v.scope = tape_.scope;
  v.op = tape_.op;
  v.differentiable = tape_.grad_enabled;
  v.block = block_;
  if (tape_.phase() == Phase::setup) v.role = DataflowValue::Role::buffer;
  if (!calls_.empty()) {
    v.call = calls_.back().id;
    v.operands = calls_.back().operands;
  }
  t.body().value = static_cast<ValueId>(values.size());
  values.push_back(std::move(v));
}

void Dataflow::made(Tensor& t) { add(t); }

void Dataflow::returns(Tensor& t) {
  const ValueId known = t.body().value;
  if (known != 0 && values[known].call == calls_.back().id) return;
  add(t);
  values.back().op = calls_.back().op;
}

}  // namespace plimsoll
