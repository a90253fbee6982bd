// The layers of torch.nn that most models share.
#pragma once

#include "nn/module.h"

namespace plimsoll {

class Adapter;
class LoraEmbedding;
class QuantizedWeight;
enum class ParallelStyle : uint8_t;

// A module of one tensor to one: a norm, a feed-forward. Models that are described by fields hold these.
struct UnaryModule : Module {
  using Module::Module;
  virtual Tensor operator()(const Tensor& x) const = 0;
};

// torch.nn.functional.linear, or what the build's hooks put in its place.
Tensor functional_linear(const Build& build, const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// A layer that maps (..., in) to (..., out). The build's tuning may put an adapter on it and quantise its weight; a model
// that uses `weight` itself goes past the adapter, as in Python.
class DenseLayer : public Module {
 public:
  ~DenseLayer() override;
  Tensor operator()(const Tensor& x) const;
  Tensor base(const Tensor& x) const;  // without the adapter
  bool is_adapted() const { return adapter_ != nullptr; }
  // The weight for an adapter to compute with: (out, in), or (in, out) where it is stored so; unpacked if it is quantised.
  Tensor unpacked_weight() const;

  int64_t in = 0, out = 0;
  bool fan_in_fan_out = false;  // the weight is stored (in, out)
  Tensor weight, bias;
  std::unique_ptr<QuantizedWeight> quantized;

 protected:
  DenseLayer(Module& parent, std::string_view name, int64_t in, int64_t out, bool fan_in_fan_out);
  void make(const Tensor& tied_weight, bool with_bias);  // undefined: a weight of its own

 private:
  Tensor multiply(const Tensor& x) const;
  void quantize(const QuantizationSettings& settings);
  void make_shard(ParallelStyle style, const Tensor& tied_weight, bool with_bias);
  std::unique_ptr<Adapter> adapter_;
  ParallelStyle parallel_{};  // how tensor parallelism shards it
};

struct Linear : DenseLayer {
  Linear(Module& parent, std::string_view name, int64_t in, int64_t out, bool with_bias = true);
  // Shares its weight with another module (tied embeddings).
  Linear(Module& parent, std::string_view name, const Tensor& tied_weight, bool with_bias);
};

// transformers' Conv1D: a linear layer whose weight is stored (in, out).
struct Conv1D : DenseLayer {
  Conv1D(Module& parent, std::string_view name, int64_t out, int64_t in);
};

struct Embedding : Module {
  Embedding(Module& parent, std::string_view name, int64_t rows, int64_t width);
  Embedding(Module& parent, std::string_view name, const Tensor& tied_weight);
  ~Embedding() override;
  Tensor operator()(const Tensor& ids) const;
  // What a model makes of the rows it looked up, with numbers of that type; nothing by default.
  virtual Tensor scaled(const Tensor& embeds, DType) const { return embeds; }
  Tensor weight;

 private:
  Embedding(Module& parent, std::string_view name, const Tensor& tied_weight, int64_t rows, int64_t width);
  Tensor look_up(const Tensor& ids) const;
  int64_t rows_ = 0;  // of the table, whole
  bool is_input_;     // transformers' get_input_embeddings()
  std::unique_ptr<LoraEmbedding> lora_;
};

struct LayerNorm : UnaryModule {
  LayerNorm(Module& parent, std::string_view name, int64_t width, bool affine = true, bool with_bias = true);
  Tensor operator()(const Tensor& x) const override;
  Tensor weight, bias;
};

// LlamaRMSNorm and its kin, written out in fp32 as transformers does, or Liger's kernel in its place.
struct RMSNorm : UnaryModule {
  RMSNorm(Module& parent, std::string_view name, int64_t width);
  Tensor operator()(const Tensor& x) const override;
  Tensor weight;
  bool of_heads;  // a norm of queries or keys: Liger leaves those of a model that exists already

 private:
  Tensor normalise(const Tensor& x) const;
};

struct Dropout : Module {
  Dropout(Module& parent, std::string_view name, double p) : Module(parent, name), p(p) {}
  Tensor operator()(const Tensor& x) const;
  double p;
};

}  // namespace plimsoll
