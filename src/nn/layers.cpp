#include "nn/layers.h"

#include "nn/input_embedding.h"
#include "nn/liger.h"
#include "nn/lora.h"
#include "nn/quantized_linear.h"
#include "nn/tensor_parallel.h"
#include "ops/dtensor.h"
#include "ops/embedding.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

Tensor functional_linear(const Build& build, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return build.hooks && build.hooks->replaces_linear() ? linear_function(x, weight, bias) : linear(x, weight, bias);
}

DenseLayer::DenseLayer(Module& parent, std::string_view name, int64_t in_width, int64_t out_width, bool transposed)
    : Module(parent, name), in(in_width), out(out_width), fan_in_fan_out(transposed) {}

DenseLayer::~DenseLayer() = default;

// distribute_module gives every module a parameter of its own, also where weights were tied.
void DenseLayer::make_shard(ParallelStyle style, const Tensor& tied_weight, bool with_bias) {
  const TensorParallel& tp = *build().tensor_parallel;
  parallel_ = style;
  const bool rows = style != ParallelStyle::rowwise;
  if (!rows && with_bias)
    throw Error("[tensor_parallel] the bias of " + path() + ", which is row-wise parallel, is not simulated", "take a model without it");
  const std::string what = path() + (rows ? ".out_features" : ".in_features");
  const Dims sizes = tied_weight ? tied_weight.sizes() : rows ? Dims{tp.share(what, out), in} : Dims{out, tp.share(what, in)};
  weight = parameter("weight", sizes);
  weight.parameter()->is_dtensor = true;
  if (!with_bias) return;
  bias = parameter("bias", {sizes[0]});
  bias.parameter()->is_dtensor = true;
}

void DenseLayer::make(const Tensor& tied_weight, bool with_bias) {
  if (build().tensor_parallel)
    if (const ParallelStyle style = build().tensor_parallel->style_of(*this); style != ParallelStyle::none)
      return make_shard(style, tied_weight, with_bias);
  const bool tuned = build().tuning.changes_anything();
  const std::string module = tuned ? path() : "";
  const AdapterSettings* adapter = tuned ? build().tuning.adapter_of(module, true) : nullptr;
  if (adapter) keep_parameters_in("base_layer");
  const QuantizationSettings* quantization = tuned && !tied_weight ? build().tuning.quantization_of(module) : nullptr;
  if (quantization && can_quantize(*quantization, in)) {
    quantize(*quantization);
  } else {
    weight = tied_weight ? tied("weight", tied_weight) : parameter("weight", fan_in_fan_out ? Dims{in, out} : Dims{out, in});
  }
  if (with_bias) bias = parameter("bias", {out});
  if (adapter) adapter_ = make_adapter(*this, *adapter);
}

// transformers turns a Conv1D's weight round before it is quantised.
void DenseLayer::quantize(const QuantizationSettings& settings) {
  fan_in_fan_out = false;
  weight = parameter("weight", packed_sizes(settings, out, in), packed_dtype(settings), false);
  weight.parameter()->elements = checked_mul(out, in);
  ScopeGuard here(tape(), parameter_scope());
  quantized = make_quantized_weight(build(), settings, {out, in, build().load_dtype, weight});
}

Tensor DenseLayer::base(const Tensor& input) const {
  return run_layer(
      *this, [this](const Tensor& x) { return multiply(x); }, input);
}

Tensor DenseLayer::multiply(const Tensor& x) const {
  ScopeGuard here(tape(), parameter_scope());
  if (quantized) return quantized->multiply(x, bias);
  if (!fan_in_fan_out) return functional_linear(build(), x, weight, bias);
  Dims shape = x.sizes();
  shape[-1] = out;
  const Tensor y = addmm(bias, view(x, {-1, x.size(-1)}), weight);
  return view(y, shape);
}

Tensor DenseLayer::operator()(const Tensor& x) const {
  Forward here(*this);
  if (parallel_ != ParallelStyle::none) {
    const TensorParallel& tp = *build().tensor_parallel;
    const Tensor input = enter_layer(tp, parallel_, x);
    return leave_layer(tp, parallel_, base(input));
  }
  if (!adapter_ || !build().adapters_active) return base(x);
  return run_function(
      *this, [this](const Tensor& input) { return (*adapter_)(*this, input); }, x);
}

Tensor DenseLayer::unpacked_weight() const { return quantized ? quantized->unpacked() : weight; }

Linear::Linear(Module& parent, std::string_view name, int64_t in_width, int64_t out_width, bool with_bias)
    : DenseLayer(parent, name, in_width, out_width, false) {
  make({}, with_bias);
}

Linear::Linear(Module& parent, std::string_view name, const Tensor& tied_weight, bool with_bias)
    : DenseLayer(parent, name, tied_weight.size(1), tied_weight.size(0), false) {
  make(tied_weight, with_bias);
}

Conv1D::Conv1D(Module& parent, std::string_view name, int64_t out_width, int64_t in_width)
    : DenseLayer(parent, name, in_width, out_width, true) {
  make({}, true);
}

bool is_input_embedding(std::string_view name) {
  for (const char* known : {"embed_tokens", "wte", "embed_in", "word_embeddings", "embeddings", "tok_embeddings"})
    if (name == known) return true;
  return false;
}

bool is_input_embedding(const Module& module) {
  const std::string path = module.path();
  return dynamic_cast<const Embedding*>(&module) && is_input_embedding(std::string_view(path).substr(path.rfind('.') + 1));
}

Embedding::Embedding(Module& parent, std::string_view name, int64_t rows, int64_t width) : Embedding(parent, name, {}, rows, width) {}

Embedding::Embedding(Module& parent, std::string_view name, const Tensor& tied_weight)
    : Embedding(parent, name, tied_weight, tied_weight.size(0), tied_weight.size(1)) {}

Embedding::Embedding(Module& parent, std::string_view name, const Tensor& tied_weight, int64_t rows, int64_t width)
    : Module(parent, name), is_input_(is_input_embedding(name)) {
  const AdapterSettings* adapter = build().tuning.changes_anything() ? build().tuning.adapter_of(path(), false) : nullptr;
  if (adapter) keep_parameters_in("base_layer");
  rows_ = rows;
  if (build().tensor_parallel && is_input_) {
    weight = parameter("weight", {build().tensor_parallel->share("vocab_size", rows), width});
    weight.parameter()->is_dtensor = true;
    weight.parameter()->gradient_placement = GradientPlacement::whole;
    return;
  }
  weight = tied_weight ? tied("weight", tied_weight) : parameter("weight", {rows, width});
  if (adapter) lora_ = make_lora_embedding(*this, *adapter);
}

Embedding::~Embedding() = default;

Tensor Embedding::operator()(const Tensor& ids) const {
  if (is_wrapped(*this)) return call_with_hooks(*this, [this](const Tensors& in) -> Tensors { return {look_up(in[0])}; }, {ids})[0];
  return look_up(ids);
}

Tensor Embedding::look_up(const Tensor& ids) const {
  Forward here(*this);
  const TensorParallel* tp = is_input_ ? build().tensor_parallel : nullptr;
  Tensor result = tp ? sharded_embedding(weight, ids, rows_) : embedding(weight, ids);
  if (tp) result = leave_layer(*tp, ParallelStyle::rowwise, result);
  result = scaled(result, weight.dtype());
  if (lora_) result = (*lora_)(*this, std::move(result), ids);
  if (is_input_) require_input_grad(build(), result);
  return result;
}

LayerNorm::LayerNorm(Module& parent, std::string_view name, int64_t width, bool affine, bool with_bias) : UnaryModule(parent, name) {
  if (!affine) return;
  weight = parameter("weight", {width});
  if (with_bias) bias = parameter("bias", {width});
}

Tensor LayerNorm::operator()(const Tensor& input) const {
  Forward here(*this);
  return run_layer(
      *this, [this](const Tensor& x) { return layer_norm(x, 1, weight, bias); }, input);
}

RMSNorm::RMSNorm(Module& parent, std::string_view name, int64_t width)
    : UnaryModule(parent, name), of_heads(name == "q_norm" || name == "k_norm") {
  weight = parameter("weight", {width});
  if (!build().tensor_parallel || build().tensor_parallel->style_of(*this) != ParallelStyle::sequence) return;
  weight.parameter()->is_dtensor = true;
  weight.parameter()->gradient_placement = GradientPlacement::partial;
}

Tensor RMSNorm::operator()(const Tensor& input) const {
  Forward here(*this);
  return run_layer(
      *this, [this](const Tensor& x) { return normalise(x); }, input);
}

Tensor RMSNorm::normalise(const Tensor& input) const {
  const bool of_shards = build().tensor_parallel && weight.parameter()->is_dtensor;
  const Tensor x = of_shards ? from_local(input) : input;
  if (build().loss.liger.rms_norm && !of_heads) return liger_rms_norm(x, weight, true);
  Tensor hidden = to(x, DType::float32);
  const Tensor variance = mean(pow(hidden, 2), {-1}, true);
  {
    const Tensor scale = rsqrt(add_scalar(variance));
    hidden = mul(hidden, scale);
  }
  return mul(weight, to(hidden, x.dtype()));
}

Tensor Dropout::operator()(const Tensor& input) const {
  Forward here(*this);
  return run_layer(
      *this, [this](const Tensor& x) { return dropout(x, p); }, input);
}

}  // namespace plimsoll
