// The derivative of the forward pass, op by op from the last to the first, as jax.vjp writes it. What it reads of the forward
// pass are the residuals; inside a checkpointed block it reads a second computation of the block instead.
#include "xla/builder.h"

namespace plimsoll {

namespace {

Dims row_sizes(const Dims& sizes) {
  Dims rows = sizes;
  if (!rows.empty()) rows[-1] = 1;
  return rows;
}

}  // namespace

OpId ProgramBuilder::read(OpId forward_op) const {
  const auto it = recomputed_.find(forward_op);
  return it == recomputed_.end() ? forward_op : it->second;
}

// Summed to the shape and cast to the type of what it is the gradient of.
void ProgramBuilder::give(OpId to, OpId gradient) {
  const XlaOp target = op(to);  // a copy: emit() moves the ops
  if (!target.needs_gradient) return;
  if (numel(op(gradient).sizes) != numel(target.sizes))
    gradient = emit(OpKind::reduction, "reduce_sum", target.sizes, op(gradient).dtype, {gradient});
  if (op(gradient).dtype != target.dtype) gradient = emit(OpKind::elementwise, "convert", target.sizes, target.dtype, {gradient});
  OpId& sum = gradients_[to];
  sum = sum ? emit(OpKind::elementwise, "add_any", target.sizes, target.dtype, {sum, gradient}) : gradient;
}

// jax.checkpoint keeps what enters a block; an optimization barrier holds the second computation back until it is needed.
void ProgramBuilder::recompute(uint32_t block) {
  for (const OpId id : blocks_.at(block)) {
    XlaOp copy = op(id);
    for (OpId& from : copy.operands) from = read(from);
    copy.category = Category::activation;
    recomputed_[id] = emit(std::move(copy));
  }
  blocks_.erase(block);
}

// The gradient of the weight first: it is the last reader of the activation.
void ProgramBuilder::differentiate_dot(OpId id, OpId g, size_t left, size_t right) {
  const XlaOp dot = op(id);
  const OpId a = dot.operands.at(left), b = dot.operands.at(right);
  if (op(b).needs_gradient) give(b, emit(OpKind::dot, "dot_transpose_rhs", op(b).sizes, op(b).dtype, {read(a), g}));
  if (op(a).needs_gradient) give(a, emit(OpKind::dot, "dot_transpose_lhs", op(a).sizes, op(a).dtype, {g, read(b)}));
}

void ProgramBuilder::differentiate_normalise(OpId id, OpId g) {
  const XlaOp norm = op(id);
  const size_t own = norm.operands.size() - norm.also.size();  // input, weight, bias
  std::vector<OpId> reads{g, read(norm.operands[0])};
  for (const OpId s : norm.also) reads.push_back(read(s));
  for (size_t i = 1; i < own; ++i) {
    const XlaOp affine = op(norm.operands[i]);
    if (!affine.needs_gradient) continue;
    give(norm.operands[i], emit(OpKind::reduction, "reduce_sum", affine.sizes, affine.dtype, i == 1 ? reads : std::vector<OpId>{g}));
  }
  const XlaOp x = op(norm.operands[0]);
  if (!x.needs_gradient) return;
  if (own > 1) reads.push_back(read(norm.operands[1]));
  const Dims rows = norm.also.empty() ? row_sizes(x.sizes) : op(norm.also[0]).sizes;
  const OpId mean = emit(OpKind::reduction, "reduce_sum", rows, DType::float32, reads);
  const OpId projection = emit(OpKind::reduction, "reduce_sum", rows, DType::float32, reads);
  reads.insert(reads.end(), {mean, projection});
  give(norm.operands[0], emit(OpKind::elementwise, "norm_transpose", x.sizes, x.dtype, reads));
}

void ProgramBuilder::differentiate_attention(OpId id, OpId g) {
  const XlaOp call = op(id);
  std::vector<OpId> reads{g, read(id)};
  for (const OpId from : call.operands) reads.push_back(read(from));
  for (const OpId sums : call.also) reads.push_back(read(sums));
  for (const OpId from : call.operands)
    if (op(from).needs_gradient) give(from, emit(OpKind::opaque, "flash_attention_transpose", op(from).sizes, op(from).dtype, reads));
}

void ProgramBuilder::differentiate(OpId id, OpId g) {
  const XlaOp f = op(id);
  auto elementwise = [&](OpId to, std::vector<OpId> reads) {
    if (op(to).needs_gradient) give(to, emit(OpKind::elementwise, f.name, op(to).sizes, op(g).dtype, std::move(reads)));
  };
  auto in_own_shape = [&](OpId to, std::vector<OpId> reads) {  // give() sums what was broadcast
    if (op(to).needs_gradient) give(to, emit(OpKind::elementwise, f.name, f.sizes, op(g).dtype, std::move(reads)));
  };
  const OpId x = f.operands.at(0);
  switch (f.rule) {
    case DerivativeRule::linear:
      for (const OpId to : f.operands) give(to, g);
      break;
    case DerivativeRule::broadcast: give(x, g); break;
    case DerivativeRule::view: give(x, emit(OpKind::view, f.name, op(x).sizes, op(g).dtype, {g})); break;
    case DerivativeRule::product:
    case DerivativeRule::quotient:
      if (f.operands.size() == 1) {  // by a number
        in_own_shape(x, {g});
        break;
      }
      if (f.rule == DerivativeRule::product) in_own_shape(f.operands[1], {g, read(x)});
      if (f.rule == DerivativeRule::quotient) in_own_shape(f.operands[1], {g, read(x), read(f.operands[1])});
      in_own_shape(x, {g, read(f.operands[1])});
      break;
    case DerivativeRule::of_input: in_own_shape(x, {g, read(x)}); break;
    case DerivativeRule::of_output: in_own_shape(x, {g, read(id)}); break;
    case DerivativeRule::dropout: in_own_shape(x, {g, read(f.also.at(0))}); break;
    case DerivativeRule::part:
    case DerivativeRule::parts:
    case DerivativeRule::sum:
    case DerivativeRule::log_loss: elementwise(x, {g}); break;
    case DerivativeRule::concat:
      for (const OpId to : f.operands) elementwise(to, {g});
      break;
    case DerivativeRule::loss: elementwise(x, {g, read(x)}); break;
    case DerivativeRule::softmax: {
      const OpId sum = emit(OpKind::reduction, "reduce_sum", row_sizes(f.sizes), DType::float32, {g, read(id)});
      in_own_shape(x, {g, read(id), sum});
      break;
    }
    case DerivativeRule::normalise: differentiate_normalise(id, g); break;
    case DerivativeRule::dot: differentiate_dot(id, g, 0, 1); break;
    case DerivativeRule::bias_dot:
      give(x, g);
      differentiate_dot(id, g, 1, 2);
      break;
    case DerivativeRule::convolution:
      if (f.operands.size() > 2) give(f.operands[2], g);
      differentiate_dot(id, g, 0, 1);
      break;
    case DerivativeRule::gather: give(x, emit(OpKind::opaque, "scatter_add", op(x).sizes, op(g).dtype, {g})); break;
    case DerivativeRule::attention: differentiate_attention(id, g); break;
    case DerivativeRule::resize: give(x, emit(OpKind::opaque, "resize_transpose", op(x).sizes, op(g).dtype, {g})); break;
  }
}

void ProgramBuilder::differentiate() {
  gradients_.assign(forward_end_, 0);
  users_.assign(forward_end_, 0);
  for (OpId id = 1; id < forward_end_; ++id) {
    if (op(id).block && op(id).kind != OpKind::argument) blocks_[op(id).block].push_back(id);
    if (op(id).needs_gradient)
      for (const OpId from : op(id).operands) ++users_[from];
  }
  phase_ = Phase::backward;
  const XlaOp loss = op(program_.outputs[0].op);
  gradients_[program_.outputs[0].op] = emit(OpKind::elementwise, "ones", loss.sizes, loss.dtype, {});
  for (OpId id = static_cast<OpId>(forward_end_); id-- > 1;) {
    if (!op(id).needs_gradient || op(id).kind == OpKind::argument) continue;
    if (gradients_[id]) {
      if (blocks_.contains(op(id).block)) recompute(op(id).block);
      scope_ = op(id).scope;
      differentiate(id, gradients_[id]);
    }
    const std::vector<OpId> operands = op(id).operands;
    for (const OpId from : operands)
      if (--users_[from] == 0 && op(from).kind == OpKind::argument && order_ == UpdateOrder::early && !job_.clip) update(from);
  }
  update_all();
}

}  // namespace plimsoll
