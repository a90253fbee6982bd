#include "model/megatron.h"

#include "model/megatron_parts.h"
#include "ops/embedding.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace megatron {

namespace {

// TransformerLayer
struct Layer : Module {
  Layer(Module& parent, std::string_view name, const Shared& shared, bool moe) : Module(parent, name), shared(shared) {
    if (shared.config.latent())
      latent = std::make_unique<LatentAttention>(*this, "self_attention", shared);
    else
      attention = std::make_unique<SelfAttention>(*this, "self_attention", shared);
    if (moe) {
      pre_mlp_layernorm = std::make_unique<Norm>(*this, "pre_mlp_layernorm", shared.config.hidden, shared.config.rms);
      experts = std::make_unique<MoeLayer>(*this, "mlp", shared);
    } else {
      mlp = std::make_unique<Mlp>(*this, "mlp", shared, shared.config.ffn, true);
    }
  }

  Tensor operator()(const Tensor& x) const {
    Forward in(*this);
    Tensor hidden;
    {
      const Biased a = attention ? (*attention)(x) : (*latent)(x);
      hidden = joined(a, x);
    }
    const Tensor residual = hidden;
    const Biased m = mlp ? (*mlp)(hidden) : Biased{(*experts)((*pre_mlp_layernorm)(hidden)), {}};
    return joined(m, residual);
  }

  Tensor joined(const Biased& a, const Tensor& residual) const {
    const double p = shared.config.hidden_dropout;
    if (shared.settings.fused_residual) return bias_dropout_add(a.value, a.bias, residual, p);
    const Tensor biased = a.bias ? add(a.value, a.bias) : a.value;
    return add(residual, dropout(biased, p));
  }

  const Shared& shared;
  std::unique_ptr<SelfAttention> attention;
  std::unique_ptr<LatentAttention> latent;
  std::unique_ptr<Norm> pre_mlp_layernorm;
  std::unique_ptr<Mlp> mlp;
  std::unique_ptr<MoeLayer> experts;
};

// LanguageModelEmbedding
struct Embeddings : Module {
  Embeddings(Module& parent, std::string_view name, const Shared& shared)
      : Module(parent, name), shared(shared), word(*this, "word_embeddings"), position(*this, "position_embeddings") {
    const MegatronConfig& c = shared.config;
    word.add_parameter({c.vocab / shared.settings.tensor, c.hidden});
    if (!c.rope) position.add_parameter({c.positions, c.hidden});
  }

  Tensor operator()(const MegatronInput& in) const {
    Forward scope(*this);
    const MegatronSettings& s = shared.settings;
    Tensor hidden;
    {
      Tensor looked_up;
      if (s.tensor > 1) {  // ids that other ranks have are looked up as 0 and set to zero
        const Tensor mask = nondiff("ge", in.tokens, DType::bool_), masked = nondiff("clone", in.tokens, DType::int64);
        looked_up = embedding(word.weight, masked);
      } else {
        looked_up = embedding(word.weight, in.tokens);
      }
      if (position.weight) looked_up = add(looked_up, embedding(position.weight, in.positions));
      hidden = contiguous(transpose(looked_up, 0, 1));
    }
    if (s.sequence && s.tensor > 1) hidden = clone(slice(hidden, 0, 0, hidden.size(0) / s.tensor));
    return dropout(hidden, shared.config.hidden_dropout);
  }

  struct Table : Module {
    using Module::Module;
    void add_parameter(const Dims& sizes) { weight = parameter("weight", sizes); }
    Tensor weight;
  };
  const Shared& shared;
  Table word, position;
};

// ColumnParallelLinear of megatron.core
struct OutputLayer : Module {
  OutputLayer(Module& parent, std::string_view name, const Shared& shared, const Tensor& tied_weight)
      : Module(parent, name),
        weight(tied_weight ? tied("weight", tied_weight)
                           : parameter("weight", {shared.config.vocab / shared.settings.tensor, shared.config.hidden})) {}
  Tensor weight;
};

}  // namespace

}  // namespace megatron

struct MegatronChunk::Parts {
  Parts(MegatronChunk& chunk, const MegatronConfig& config, const MegatronSettings& settings, const Place& place, SharedBuffers& buffers)
      : shared{config, settings, buffers}, decoder(chunk, "decoder"), layers(decoder, "layers") {
    if (place.embeds) embedding = std::make_unique<megatron::Embeddings>(chunk, "embedding", shared);
    for (int64_t i = place.first; i < place.first + place.count; ++i)
      layers.add(shared, !config.is_moe.empty() && config.is_moe[static_cast<size_t>(i)]);
    if (!place.has_head) return;
    final_layernorm = std::make_unique<megatron::Norm>(decoder, "final_layernorm", config.hidden, config.rms);
    const bool ties = config.tied && embedding;
    output = std::make_unique<megatron::OutputLayer>(chunk, "output_layer", shared, ties ? embedding->word.weight : Tensor());
  }

  megatron::Shared shared;
  std::unique_ptr<megatron::Embeddings> embedding;
  struct Decoder : Module {
    using Module::Module;
  } decoder;
  ModuleList<megatron::Layer> layers;
  std::unique_ptr<megatron::Norm> final_layernorm;
  std::unique_ptr<megatron::OutputLayer> output;
};

MegatronChunk::MegatronChunk(Build& build, const MegatronConfig& config, const MegatronSettings& settings, const Place& place,
                             SharedBuffers& buffers)
    : Module(build), parts_(std::make_unique<Parts>(*this, config, settings, place, buffers)) {}

MegatronChunk::~MegatronChunk() = default;

Tensor MegatronChunk::operator()(const MegatronInput& in) {
  Tensor hidden = parts_->embedding ? (*parts_->embedding)(in) : in.hidden;
  for (megatron::Layer& layer : parts_->layers) {
    const auto run = [&layer](const Tensor& x) { return layer(x); };
    hidden = run_block(layer, run, hidden);
  }
  if (!parts_->output) return hidden;
  hidden = (*parts_->final_layernorm)(hidden);
  const megatron::Shared& shared = parts_->shared;
  Forward scope(*parts_->output);
  GemmShare share = shared.share();
  share.torch = true;
  const Tensor logits = column_linear(hidden, parts_->output->weight, Tensor(), share, true);
  const Tensor target = contiguous(transpose(in.labels, 0, 1));
  const Tensor loss = shared.settings.fused_loss ? fused_cross_entropy(logits, target) : vocab_parallel_cross_entropy(logits, target);
  return contiguous(transpose(loss, 0, 1));
}

std::unique_ptr<Model> make_megatron(Build&, const Config&) {
  throw Error("[model] megatron is trained by Megatron-LM alone", "add its layout, e.g. --megatron world=8,tensor=2");
}

std::vector<Parameter*> MegatronChunk::expert_parameters() const {
  std::vector<Parameter*> out;
  for (const megatron::Layer& layer : parts_->layers)
    if (layer.experts) out.insert(out.end(), layer.experts->of_experts().begin(), layer.experts->of_experts().end());
  return out;
}

}  // namespace plimsoll
