#include "measure/layers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>

namespace plimsoll::measure {

Build::Build(uint64_t seed) : random(at::detail::createCPUGenerator(seed)) {}

Unit::Unit(Build& build) : build(build) {}

Unit::Unit(const Unit& parent, std::string_view name)
    : build(parent.build),
      place(parent.place, name),
      path(parent.path.empty() ? std::string(name) : parent.path + "." + std::string(name)) {}

Tensor Unit::parameter(const std::string& name, const Shape& shape, Init init) {
  const Within here(place);
  const torch::NoGradGuard no_grad;
  Tensor t = torch::empty(shape);
  if (init.deviation > 0)
    t.normal_(init.mean, init.deviation, build.random);
  else
    t.fill_(init.mean);
  t.requires_grad_(!build.frozen);
  build.parameters.push_back({path.empty() ? name : path + "." + name, t});
  return t;
}

Tensor Unit::buffer(const Shape& shape) {
  const Within here(place);
  const Labelled label(Category::buffer);
  Tensor t = torch::empty(shape);
  build.buffers.push_back(t);
  return t;
}

namespace {
bool names(const ModuleNames& targets, const std::string& path) {
  if (targets.all_linear) return true;
  if (!targets.pattern.empty()) return NamePattern(targets.pattern).matches(path);
  return std::any_of(targets.names.begin(), targets.names.end(), [&](const std::string& name) { return ends_with_name(path, name); });
}
}  // namespace

Linear::Linear(const Unit& parent, std::string_view name, int64_t in, int64_t out, bool with_bias, Init init)
    : Unit(parent, name), weight(parameter("weight", {out, in}, init)) {
  if (with_bias) bias = parameter("bias", {out}, Init::zeros());
  if (!build.lora || !names(build.lora->target_modules, path)) return;
  build.frozen = false;
  lora_A = parameter("lora_A.default.weight", {build.lora->r, in}, Init::normal(1 / std::sqrt(static_cast<double>(in))));
  lora_B = parameter("lora_B.default.weight", {out, build.lora->r}, Init::zeros());
  build.frozen = true;
}

Tensor Linear::operator()(const Tensor& x) const {
  const Within here(place);
  return lora_A.defined() ? adapted(x) : torch::linear(x, weight, bias);
}

// PEFT's Linear.forward
Tensor Linear::adapted(const Tensor& x) const {
  Tensor result = torch::linear(x, weight, bias);  // (..., out)
  const auto dtype = result.scalar_type();
  const Tensor input = x.to(lora_A.scalar_type());
  {
    Tensor hidden = torch::dropout(input, build.lora->dropout, true);
    hidden = torch::linear(hidden, lora_A);  // (..., r)
    hidden = torch::linear(hidden, lora_B);  // (..., out)
    const Tensor difference = hidden * (build.lora->alpha / static_cast<double>(build.lora->r));
    hidden.reset();
    result = result + difference;
  }
  return result.to(dtype);
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
      bias(parameter("bias", {out}, Init::zeros())) {}

Tensor Conv2d::operator()(const Tensor& x) const {
  const Within here(place);
  return torch::conv2d(x, weight, bias, stride, padding);
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
