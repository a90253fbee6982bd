#include "tensor/node.h"

#include "tensor/dataflow.h"

namespace plimsoll {

namespace {

// Delivers a gradient to its parameter. Runs before every other node that is ready (sequence number at the maximum).
struct AccumulateGrad final : Node {
  explicit AccumulateGrad(Parameter& p) : parameter(p) {}
  Tensors apply(Tensors& grads) override {
    accumulate_grad(parameter, std::move(grads[0]));
    return {};
  }
  void release_variables() override {}
  Parameter& parameter;
};

struct AccumulateLeafGrad final : Node {
  explicit AccumulateLeafGrad(Tensor t) { leaf.value = std::move(t); }
  Tensors apply(Tensors& grads) override {
    accumulate_grad(leaf.value, leaf.grad, std::move(grads[0]));
    return {};
  }
  void release_variables() override {}
  Parameter leaf;
};

}  // namespace

Edge gradient_edge(const Tensor& t) {
  if (t.body().grad_fn) return {t.body().grad_fn, t.body().output_nr};
  Parameter* p = t.parameter();
  if (!p) return {};
  if (!p->accumulate) {
    auto* node = make_node<AccumulateGrad>(t.tape(), *p);
    p->accumulate = Ref<Node>(node);
    node->sequence = UINT64_MAX;
    node->name = "AccumulateGrad";
    node->outputs.push_back({t.sizes(), t.dtype()});
    node->scope = t.tape().scope_of(t);
  }
  return {p->accumulate, 0};
}

Op::Op(Tape& tape, const char* name, std::initializer_list<const Tensor*> inputs) : tape_(tape), name_(name), outer_(tape.op) {
  tape.op = name;
  if (tape.dataflow) {
    tape.dataflow->begin_call(name);
    for (const Tensor* t : inputs) tape.dataflow->reads(t);
  }
  if (tape.work) {
    tape.work->begin_call(name);
    for (const Tensor* t : inputs)
      if (t) tape.work->reads(*t);
  }
  if (!tape.grad_enabled) return;
  for (const Tensor* t : inputs) add_input(t);
  if (recording_) sequence_ = tape.next_sequence();
}

Op::Op(Tape& tape, const char* name, const Tensors& inputs) : tape_(tape), name_(name), outer_(tape.op) {
  tape.op = name;
  if (tape.dataflow) {
    tape.dataflow->begin_call(name);
    for (const Tensor& t : inputs) tape.dataflow->reads(&t);
  }
  if (tape.work) {
    tape.work->begin_call(name);
    for (const Tensor& t : inputs) tape.work->reads(t);
  }
  if (!tape.grad_enabled) return;
  for (const Tensor& t : inputs) add_input(&t);
  if (recording_) sequence_ = tape.next_sequence();
}

void Op::add_input(const Tensor* t) {
  const bool wanted = t && t->requires_grad();
  recording_ |= wanted;
  edges_.push_back(wanted ? gradient_edge(*t) : Edge{});
}

void Op::end_call() const {
  if (tape_.dataflow) tape_.dataflow->end_call();
  if (tape_.work) tape_.work->end_call(tape_);
}

void Op::result(Tensor& out) const { tape_.dataflow->returns(out); }

void Op::init(Node& node) {
  node.name = name_;
  node.scope = tape_.scope;
  node.sequence = sequence_;
  node.next = std::move(edges_);
  node.kept = std::move(kept_);
  node.kept_closure = std::move(kept_closure_);
}

void Op::attach(const Ref<Node>& node, Tensor& out, uint16_t nr) {
  if (!out.defined()) {  // None among the results of a Python function
    node->outputs.push_back({});
    return;
  }
  TensorBody& body = out.body();
  node->outputs.push_back({body.sizes, body.dtype});
  body.grad_fn = node;
  body.output_nr = nr;
  body.requires_grad = true;
  body.parameter = nullptr;
}

void make_leaf(Tensor& t) {
  auto* accumulate = make_node<AccumulateLeafGrad>(t.tape(), detach(t));
  Ref<Node> node(accumulate);
  t.body().parameter = &accumulate->leaf;
  node->sequence = UINT64_MAX;
  node->name = "AccumulateGrad";
  node->scope = t.tape().scope;
  node->outputs.push_back({t.sizes(), t.dtype()});
  t.body().grad_fn = std::move(node);
  t.body().requires_grad = true;
}

Tensor leaf_gradient(const Tensor& leaf) { return static_cast<const AccumulateLeafGrad&>(*leaf.body().grad_fn).leaf.grad; }

Tensor make_parameter(Tape& tape, Parameter& p, const Dims& sizes, DType dtype, bool requires_grad) {
  p.value = empty(tape, sizes, dtype);
  p.value.body().parameter = &p;
  p.value.body().requires_grad = requires_grad;
  return p.value;
}

}  // namespace plimsoll
