// The recorded forward pass as ops of a program.
#include "xla/builder.h"

namespace plimsoll {

namespace {

// JAX without jax_enable_x64.
DType jax_type(DType t) { return t == DType::int64 ? DType::int32 : t == DType::float64 ? DType::float32 : t; }

OpKind kind_of(DerivativeRule rule) {
  switch (rule) {
    case DerivativeRule::view: return OpKind::view;
    case DerivativeRule::sum:
    case DerivativeRule::log_loss:
    case DerivativeRule::loss: return OpKind::reduction;
    case DerivativeRule::dot:
    case DerivativeRule::bias_dot:
    case DerivativeRule::convolution: return OpKind::dot;
    case DerivativeRule::gather:
    case DerivativeRule::attention:
    case DerivativeRule::resize: return OpKind::opaque;
    default: return OpKind::elementwise;
  }
}

Category argument_category(DataflowValue::Role role) {
  if (role == DataflowValue::Role::input) return Category::input;
  return role == DataflowValue::Role::buffer ? Category::buffer : Category::parameter;
}

}  // namespace

DType param_dtype(const Job& job) {
  if (job.precision == Precision::bf16) return DType::bfloat16;
  return job.precision == Precision::fp16 ? DType::float16 : DType::float32;
}

OpId ProgramBuilder::emit(XlaOp op) {
  op.phase = phase_;
  program_.ops.push_back(std::move(op));
  return static_cast<OpId>(program_.ops.size() - 1);
}

OpId ProgramBuilder::emit(OpKind kind, const char* name, const Dims& sizes, DType dtype, std::vector<OpId> operands) {
  XlaOp op;
  op.kind = kind;
  op.name = name;
  op.sizes = sizes;
  op.dtype = dtype;
  op.scope = scope_;
  op.category = phase_ == Phase::forward ? Category::activation : phase_ == Phase::backward ? Category::backward : Category::optimizer;
  op.operands = std::move(operands);
  return emit(std::move(op));
}

// Parameters are kept in their own type; so are images, which loaders make in fp32.
OpId ProgramBuilder::lower_argument(const DataflowValue& v) {
  XlaOp op;
  op.kind = OpKind::argument;
  op.name = "argument";
  op.scope = v.scope;
  op.sizes = v.sizes;
  op.category = argument_category(v.role);
  op.dtype = jax_type(v.dtype);
  if (is_floating(op.dtype) && op.category == Category::parameter) op.dtype = param_dtype(job_);
  if (is_floating(op.dtype) && op.category == Category::input) op.dtype = DType::float32;
  op.needs_gradient = v.role == DataflowValue::Role::parameter;
  const OpId id = emit(std::move(op));
  program_.arguments.push_back(id);
  if (v.role == DataflowValue::Role::parameter) parameters_.push_back(id);
  return id;
}

// flax casts a parameter where a layer uses it, so inside the checkpointed block.
OpId ProgramBuilder::converted(OpId argument, DType dtype, uint32_t block) {
  OpId& convert = converts_[{argument, block}];
  if (convert) return convert;
  XlaOp op;
  op.name = "convert";
  op.scope = program_.ops[argument].scope;
  op.sizes = program_.ops[argument].sizes;
  op.dtype = dtype;
  op.block = block;
  op.needs_gradient = program_.ops[argument].needs_gradient;
  op.operands = {argument};
  return convert = emit(std::move(op));
}

OpId ProgramBuilder::operand(ValueId id, bool as_stored, uint32_t block) {
  const OpId found = op_of_[id];
  const DType wanted = jax_type(recorded_.values[id].dtype);
  if (as_stored || op(found).kind != OpKind::argument || op(found).dtype == wanted) return found;
  return converted(found, wanted, block);
}

// The values of the same call, its result first.
std::vector<ValueId> ProgramBuilder::siblings(ValueId id) const {
  const uint32_t call = recorded_.values[id].call;
  std::vector<ValueId> out{id};
  for (ValueId next = id + 1; call != 0 && next < recorded_.values.size() && recorded_.values[next].call == call; ++next)
    out.push_back(next);
  return out;
}

// Means, deviations, row maxima: reductions of the input that the result and the derivative read. A mask is random bits.
void ProgramBuilder::add_statistics(XlaOp& made, ValueId id) {
  const DataflowValue& v = recorded_.values[id];
  auto statistic = [&](OpKind kind, const char* name, const Dims& sizes, DType dtype) {
    XlaOp s;
    s.kind = kind;
    s.name = name;
    s.scope = v.scope;
    s.block = v.block;
    s.sizes = sizes;
    s.dtype = jax_type(dtype);
    if (kind == OpKind::reduction) s.operands = {made.operands.at(0)};
    made.also.push_back(emit(std::move(s)));
  };
  const std::vector<ValueId> values = siblings(id);
  if (made.rule == DerivativeRule::softmax) {
    Dims rows = v.sizes;
    rows[-1] = 1;
    statistic(OpKind::reduction, "reduce_max", rows, DType::float32);
    statistic(OpKind::reduction, "reduce_sum", rows, DType::float32);
  } else if (made.rule == DerivativeRule::normalise) {
    for (size_t i = 1; i < values.size(); ++i)
      statistic(OpKind::reduction, i == 1 ? "mean" : "variance", recorded_.values[values[i]].sizes, recorded_.values[values[i]].dtype);
  } else if (made.rule == DerivativeRule::dropout && values.size() > 1) {
    statistic(OpKind::opaque, "random_bits", v.sizes, DType::bool_);
  }
  if (made.rule != DerivativeRule::attention) made.operands.insert(made.operands.end(), made.also.begin(), made.also.end());
}

// contiguous() has no meaning without strides, and a slice or a broadcast of everything changes nothing.
bool ProgramBuilder::keeps_every_element(const DataflowValue& v, const XlaOp& made) const {
  const bool can_be_view = made.rule == DerivativeRule::broadcast || made.rule == DerivativeRule::part || std::string_view(v.op) == "clone";
  return can_be_view && made.operands.size() == 1 && numel(op(made.operands[0]).sizes) == numel(v.sizes);
}

XlaOp ProgramBuilder::computed(const DataflowValue& v, DerivativeRule rule) {
  XlaOp made;
  made.rule = rule;
  made.kind = kind_of(rule);
  made.name = v.op;
  made.scope = v.scope;
  made.sizes = v.sizes;
  made.dtype = jax_type(v.dtype);
  made.block = v.block;
  for (const ValueId read : v.operands) {
    const OpId from = operand(read, rule == DerivativeRule::gather, v.block);
    made.operands.push_back(from);
    made.needs_gradient |= op(from).needs_gradient && v.differentiable && is_floating(v.dtype);
  }
  if (keeps_every_element(v, made)) {
    made.kind = OpKind::view;
    made.rule = DerivativeRule::view;
  }
  return made;
}

OpId ProgramBuilder::lower(ValueId id) {
  const DataflowValue& v = recorded_.values[id];
  if (v.role != DataflowValue::Role::computed) return lower_argument(v);
  const DerivativeRule* rule = find_rule(v.op);
  XlaOp made = computed(v, rule ? *rule : DerivativeRule::linear);
  if (!rule && job_.attention == AttentionKernel::flash && std::string_view(v.op).starts_with("_scaled_dot_product"))
    throw Error("[job] flash attention takes half types and no mask or bias", "choose precision amp or bf16, or attention auto");
  if (!rule && made.needs_gradient)
    throw Error(std::string("[xla] the derivative of '") + v.op + "' is not known", "this model can be asked about with framework pytorch");
  if (made.operands.empty() && made.kind != OpKind::opaque) {
    made.kind = OpKind::elementwise;  // a constant
  } else {
    add_statistics(made, id);
  }
  const bool attention = made.rule == DerivativeRule::attention;
  const OpId result = emit(std::move(made));
  if (attention) {  // the logarithm of the row sums, beside the result
    const std::vector<ValueId> values = siblings(id);
    XlaOp sums = program_.ops[result];
    sums.sizes = recorded_.values[values.at(1)].sizes;
    sums.dtype = DType::float32;
    sums.needs_gradient = false;
    program_.ops[result].also = {emit(std::move(sums))};
  }
  return result;
}

void ProgramBuilder::lower_forward() {
  op_of_.assign(recorded_.values.size(), 0);
  for (ValueId id = 1; id < recorded_.values.size(); ++id) {
    const DataflowValue& v = recorded_.values[id];
    const bool side = v.call != 0 && recorded_.values[id - 1].call == v.call && v.role == DataflowValue::Role::computed;
    if (side && find_rule(v.op) && *find_rule(v.op) != DerivativeRule::parts) continue;  // made with the result
    op_of_[id] = lower(id);
  }
  forward_end_ = program_.ops.size();
}

XlaProgram ProgramBuilder::build() {
  lower_forward();
  const OpId loss = op_of_[recorded_.loss];
  if (loss == 0 || !op(loss).needs_gradient) throw Error("[xla] nothing in this model requires a gradient", "unfreeze a parameter");
  program_.outputs.push_back({loss, 0});
  differentiate();
  remove_unused(program_);
  return std::move(program_);
}

}  // namespace plimsoll
