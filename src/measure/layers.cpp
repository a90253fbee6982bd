#include "measure/layers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>

namespace plimsoll::measure {

Build::Build(uint64_t seed, Tuning tuning) : random(at::detail::createCPUGenerator(seed)), tuning(std::move(tuning)) {}

Unit::Unit(Build& build) : build(build) {}

Unit::Unit(const Unit& parent, std::string_view name)
    : build(parent.build),
      place(parent.place, name),
      path(parent.path.empty() ? std::string(name) : parent.path + "." + std::string(name)) {}

Tensor Unit::made(const std::string& name, const Shape& shape, Init init, bool trained) {
  const Within here(place);
  const torch::NoGradGuard no_grad;
  Tensor t = torch::empty(shape);
  if (init.deviation > 0)
    t.normal_(init.mean, init.deviation, build.random);
  else
    t.fill_(init.mean);
  t.requires_grad_(trained);
  build.parameters.push_back({name, t});
  return t;
}

Tensor Unit::parameter(const std::string& name, const Shape& shape, Init init) {
  const std::string whole = path.empty() ? name : path + "." + name;  // "embedding.weight" is of the module "embedding"
  const size_t dot = whole.rfind('.');
  const std::string module = dot == std::string::npos ? "" : whole.substr(0, dot);
  return made(whole, shape, init, build.tuning.trains(module, std::string_view(whole).substr(dot == std::string::npos ? 0 : dot + 1)));
}

Tensor Unit::adapter(const std::string& name, const Shape& shape, Init init) { return made(path + "." + name, shape, init, true); }

Tensor Unit::buffer(const Shape& shape) {
  const Within here(place);
  const Labelled label(Category::buffer);
  Tensor t = torch::empty(shape);
  build.buffers.push_back(t);
  return t;
}

Lora::Lora(Tensor down, Tensor up, const AdapterSettings& settings)
    : down_(std::move(down)), up_(std::move(up)), scale_(settings.alpha / static_cast<double>(settings.r)), dropout_(settings.dropout) {}

// PEFT's Linear.forward and _ConvNd.forward
Tensor Lora::operator()(const Unit& layer, Tensor result, const Tensor& x, Product down, Product up) const {
  const auto dtype = result.scalar_type();
  const Tensor input = x.to(down_.scalar_type());
  {
    Tensor hidden = torch::dropout(input, dropout_, layer.build.training);
    hidden = down(layer, hidden, down_);  // (..., r)
    hidden = up(layer, hidden, up_);      // (..., out)
    const Tensor difference = hidden * scale_;
    hidden.reset();
    result = result + difference;
  }
  return result.to(dtype);
}

Linear::Linear(const Unit& parent, std::string_view name, int64_t in, int64_t out, bool with_bias, Init init)
    : Unit(parent, name), weight(parameter("weight", {out, in}, init)) {
  if (with_bias) bias = parameter("bias", {out}, Init::zeros());
  const AdapterSettings* s = build.tuning.adapter_of(path, true);
  if (!s) return;
  Tensor down = adapter("lora_A.default.weight", {s->r, in}, Init::normal(1 / std::sqrt(static_cast<double>(in))));
  lora.emplace(std::move(down), adapter("lora_B.default.weight", {out, s->r}, Init::zeros()), *s);
}

Tensor Linear::operator()(const Tensor& x) const {
  const Within here(place);
  Tensor result = torch::linear(x, weight, bias);  // (..., out)
  if (!lora) return result;
  const auto product = [](const Unit&, const Tensor& in, const Tensor& w) { return torch::linear(in, w); };
  return (*lora)(*this, std::move(result), x, product, product);
}

LayerNorm::LayerNorm(const Unit& parent, std::string_view name, int64_t width)
    : Unit(parent, name), weight(parameter("weight", {width}, Init::ones())), bias(parameter("bias", {width}, Init::zeros())) {}

Tensor LayerNorm::operator()(const Tensor& x) const {
  const Within here(place);
  return torch::layer_norm(wide(x), weight.sizes(), weight, bias);
}

GroupNorm::GroupNorm(const Unit& parent, std::string_view name, int64_t groups, int64_t channels, double eps)
    : Unit(parent, name),
      groups(groups),
      eps(eps),
      weight(parameter("weight", {channels}, Init::ones())),
      bias(parameter("bias", {channels}, Init::zeros())) {}

Tensor GroupNorm::operator()(const Tensor& x) const {
  const Within here(place);
  return torch::group_norm(wide(x), groups, weight, bias, eps);
}

Conv2d::Conv2d(const Unit& parent, std::string_view name, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding,
               bool zero)
    : Unit(parent, name),
      stride(stride),
      padding(padding),
      weight(parameter("weight", {out, in, kernel, kernel},
                       zero ? Init::zeros() : Init::normal(std::sqrt(1.0 / static_cast<double>(in * kernel * kernel))))),
      bias(parameter("bias", {out}, Init::zeros())) {
  const AdapterSettings* s = build.tuning.adapter_of(path, false);
  if (!s) return;
  Tensor down = adapter("lora_A.default.weight", {s->r, in, kernel, kernel}, Init::normal(1 / std::sqrt(static_cast<double>(in))));
  lora.emplace(std::move(down), adapter("lora_B.default.weight", {out, s->r, 1, 1}, Init::zeros()), *s);
}

Tensor Conv2d::operator()(const Tensor& x) const {
  const Within here(place);
  Tensor result = torch::conv2d(x, weight, bias, stride, padding);  // (N, out, h, w)
  if (!lora) return result;
  const auto down = [](const Unit& layer, const Tensor& in, const Tensor& w) {
    const auto& self = static_cast<const Conv2d&>(layer);
    return torch::conv2d(in, w, {}, self.stride, self.padding);
  };
  const auto up = [](const Unit&, const Tensor& in, const Tensor& w) { return torch::conv2d(in, w); };
  return (*lora)(*this, std::move(result), x, down, up);
}

Autocast::Autocast(bool on) : old_(at::autocast::is_cpu_enabled()) {
  at::autocast::set_cpu_enabled(on);
  at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_cpu_enabled(old_);
}

Tensor wide(const Tensor& x) { return at::autocast::is_cpu_enabled() ? x.to(torch::kFloat32) : x; }
Tensor low(const Tensor& x) { return at::autocast::is_cpu_enabled() ? x.to(torch::kBFloat16) : x; }

Tensor cross_entropy(const Tensor& logits, const Tensor& target) {
  const Tensor log_probs = torch::log_softmax(logits, 1);
  return torch::nll_loss(log_probs, target);
}

namespace {

at::CPUGeneratorImpl& default_generator() { return *at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator()); }

// torch.utils.checkpoint.CheckpointFunction. The random engine is kept as it is, not as a tensor.
struct CheckpointFunction : GraphFunction {
  explicit CheckpointFunction(Block b)
      : block(std::move(b)), random(default_generator().engine()), autocast(at::autocast::is_cpu_enabled()) {}

  Tensors backward(const Tensors& gradients) override {
    Tensors inputs;
    for (const Tensor& t : saved_tensors()) {
      inputs.push_back(t.detach());
      inputs.back().requires_grad_(t.requires_grad());
    }
    const Tensors outputs = run_again(inputs);
    Tensors roots, seeds;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      seeds.push_back(gradients[i]);
    }
    torch::autograd::backward(roots, seeds);
    Tensors results;
    for (const Tensor& input : inputs) results.push_back(input.grad());
    return results;
  }

  Tensors run_again(const Tensors& inputs) const {
    const at::mt19937 now = default_generator().engine();
    const torch::AutoGradMode with_graph(true);
    Tensors out;
    {
      const Autocast mode(autocast);
      default_generator().set_engine(random);
      out = block(inputs);
    }
    default_generator().set_engine(now);
    return out;
  }

  Block block;
  at::mt19937 random;
  bool autocast;
};

}  // namespace

Tensors GraphFunction::apply(Tensors&& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i)
    if (!gradients[i].defined()) gradients[i] = torch::zeros(outputs_[i].first, outputs_[i].second);
  return backward(gradients);
}

Tensors GraphFunction::saved_tensors() {
  Tensors out;
  for (torch::autograd::SavedVariable& s : saved_) out.push_back(s.unpack(shared_from_this()));
  return out;
}

Tensors GraphFunction::run(std::unique_ptr<GraphFunction> function, const Tensors& inputs, bool saves_inputs, const Block& forward) {
  if (!torch::GradMode::is_enabled() || !torch::autograd::any_variable_requires_grad(inputs)) return forward(inputs);
  const std::shared_ptr<GraphFunction> node(function.release(), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  if (saves_inputs) node->save(inputs, false);
  Tensors outputs;
  {
    const torch::NoGradGuard no_graph;
    outputs = forward(inputs);
  }
  for (Tensor& t : outputs) {
    node->outputs_.emplace_back(t.sizes().vec(), t.options());
    torch::autograd::set_history(t, node);
  }
  if (!saves_inputs) node->save(outputs, true);
  return outputs;
}

void GraphFunction::save(const Tensors& tensors, bool are_outputs) {
  for (const Tensor& t : tensors) saved_.emplace_back(t, are_outputs);
}

Tensors checkpoint(Block block, const Tensors& inputs) {
  auto function = std::make_unique<CheckpointFunction>(std::move(block));
  const Block forward = function->block;
  return GraphFunction::run(std::move(function), inputs, true, forward);
}

}  // namespace plimsoll::measure
