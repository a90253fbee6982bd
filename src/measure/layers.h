// What the trained models are built of, in libtorch: a tree of units with named parameters, the layers that several of them share, and
// gradient checkpointing. Forwards keep their locals as the Python references do, because a name keeps its tensor alive.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "measure/budget.h"
#include "nn/tuning.h"

namespace plimsoll::measure {

using torch::Tensor;
using Tensors = std::vector<Tensor>;
using Shape = std::vector<int64_t>;

// How a parameter begins: zero, one, or random with this deviation.
struct Init {
  double mean = 0, deviation = 0;
  static Init zeros() { return {}; }
  static Init ones() { return {1, 0}; }
  static Init normal(double deviation) { return {0, deviation}; }
};

struct NamedParameter {
  std::string name;  // "blocks.0.ssm.A_log"
  Tensor value;
};

// What all units of one model share.
struct Build {
  Build(uint64_t seed, Tuning tuning);
  at::Generator random;  // of initial values
  Tuning tuning;         // which parameters are trained, and which layers have adapters
  std::vector<NamedParameter> parameters;
  Tensors buffers;
  bool checkpointing = false;
  bool training = true;  // dropout drops
};

class Unit {
 public:
  explicit Unit(Build& build);  // the whole model
  Unit(const Unit& parent, std::string_view name);
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  Build& build;
  const Place place;
  const std::string path;

 protected:
  Tensor parameter(const std::string& name, const Shape& shape, Init init);
  Tensor adapter(const std::string& name, const Shape& shape, Init init);  // trained whatever the rest is
  Tensor buffer(const Shape& shape);

 private:
  Tensor made(const std::string& name, const Shape& shape, Init init, bool trained);
};

// PEFT's LoRA on one layer, where the build has one for it: up(down(x)) * alpha / r is added to the layer's result.
class Lora {
 public:
  using Product = Tensor (*)(const Unit& layer, const Tensor& x, const Tensor& weight);
  Lora(Tensor down, Tensor up, const AdapterSettings& settings);
  Tensor operator()(const Unit& layer, Tensor result, const Tensor& x, Product down, Product up) const;

 private:
  Tensor down_, up_;
  double scale_, dropout_;
};

struct Linear : Unit {
  Linear(const Unit& parent, std::string_view name, int64_t in, int64_t out, bool with_bias = true, Init init = Init::normal(0.02));
  Tensor operator()(const Tensor& x) const;
  Tensor weight, bias;
  std::optional<Lora> lora;
};

struct LayerNorm : Unit {
  LayerNorm(const Unit& parent, std::string_view name, int64_t width);
  Tensor operator()(const Tensor& x) const;
  Tensor weight, bias;
};

struct GroupNorm : Unit {
  GroupNorm(const Unit& parent, std::string_view name, int64_t groups, int64_t channels, double eps = 1e-5);
  Tensor operator()(const Tensor& x) const;
  int64_t groups;
  double eps;
  Tensor weight, bias;
};

struct Conv2d : Unit {
  Conv2d(const Unit& parent, std::string_view name, int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t padding = 0,
         bool zero = false);
  Tensor operator()(const Tensor& x) const;
  int64_t stride, padding;
  Tensor weight, bias;
  std::optional<Lora> lora;
};

// A list of units "name.0", "name.1", ...
template <class T>
class UnitList : public Unit {
 public:
  UnitList(const Unit& parent, std::string_view name) : Unit(parent, name) {}
  template <class... Args>
  T& add(Args&&... args) {
    return *items_.emplace_back(std::make_unique<T>(*this, std::to_string(items_.size()), std::forward<Args>(args)...));
  }
  size_t size() const { return items_.size(); }
  T& operator[](size_t i) const { return *items_[i]; }

 private:
  std::vector<std::unique_ptr<T>> items_;
};

// Python's x[..., start:end] along one dimension: the whole of it is x itself.
inline Tensor getitem(const Tensor& x, int64_t dim, int64_t start, int64_t end) {
  return start == 0 && end >= x.size(dim) ? x : x.slice(dim, start, end);
}

// torch.autocast on the CPU, in bf16; casts of weights live until the outermost one ends.
class Autocast {
 public:
  explicit Autocast(bool on);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool old_;
};

// What CUDA's autocast does and the CPU's does not: ops of its fp32 list (norms, exp, softplus, softmax, pow) read fp32, and einsum reads
// bf16.
Tensor wide(const Tensor& x);
Tensor low(const Tensor& x);
// log_softmax in the type of the logits, and the loss in fp32, as CUDA's autocast leaves them.
Tensor cross_entropy(const Tensor& logits, const Tensor& target);

// A function of several tensors with a backward of its own. It runs without a graph; its inputs or its results are saved.
using Block = std::function<Tensors(const Tensors&)>;
class GraphFunction : public torch::autograd::Node {
 public:
  static Tensors run(std::unique_ptr<GraphFunction> function, const Tensors& inputs, bool saves_inputs, const Block& forward);
  // One gradient for each input, from one for each result.
  virtual Tensors backward(const Tensors& gradients) = 0;

 protected:
  Tensors saved_tensors();

 private:
  Tensors apply(Tensors&& gradients) override;
  void release_variables() final {
    saved_.clear();
    forget();
  }
  virtual void forget() {}  // what else it keeps for backward
  void save(const Tensors& tensors, bool are_outputs);

  std::vector<torch::autograd::SavedVariable> saved_;
  std::vector<std::pair<Shape, torch::TensorOptions>> outputs_;
};

// Runs `block(inputs)` and keeps nothing but the inputs; backward runs it once more with a graph, with the same random numbers, and goes
// back through that (torch.utils.checkpoint with use_reentrant). A block of which no input wants a gradient is run as it is, so that
// adapters in it get theirs. `block` outlives the graph, and so must what it refers to.
Tensors checkpoint(Block block, const Tensors& inputs);

// `run(x)` under a checkpoint when the build has them.
template <class Run>
Tensor run_block(const Unit& unit, const Run& run, const Tensor& x) {
  if (!unit.build.checkpointing) return run(x);
  return checkpoint([run](const Tensors& in) { return Tensors{run(in[0])}; }, {x})[0];
}

}  // namespace plimsoll::measure
