#include "model/decoder/megatron.h"

#include "model/decoder/megatron_parts.h"
#include "model/family.h"
#include "ops/embedding.h"
#include "ops/loss.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace megatron {

namespace {

// TransformerLayer
struct Layer : Module {
  // `crosses`: it also looks at what an encoder gave.
  Layer(Module& parent, std::string_view name, const Shared& shared, bool moe, bool crosses = false)
      : Module(parent, name), shared(shared) {
    if (shared.config.latent())
      latent = std::make_unique<LatentAttention>(*this, "self_attention", shared);
    else
      attention = std::make_unique<SelfAttention>(*this, "self_attention", shared);
    if (crosses) {
      pre_cross_attn_layernorm = std::make_unique<Norm>(*this, "pre_cross_attn_layernorm", shared.config.hidden, shared.config.rms);
      cross_attention = std::make_unique<CrossAttention>(*this, "cross_attention", shared);
    }
    if (moe) {
      pre_mlp_layernorm = std::make_unique<Norm>(*this, "pre_mlp_layernorm", shared.config.hidden, shared.config.rms);
      experts = std::make_unique<MoeLayer>(*this, "mlp", shared);
    } else {
      mlp = std::make_unique<Mlp>(*this, "mlp", shared, shared.config.ffn, true);
    }
  }

  Tensor operator()(const Tensor& x, const Tensor& encoded = {}) const {
    Forward in(*this);
    Tensor hidden;
    {
      const Biased a = attention ? (*attention)(x) : (*latent)(x);
      hidden = joined(a, x);
    }
    if (cross_attention) hidden = joined((*cross_attention)((*pre_cross_attn_layernorm)(hidden), encoded), hidden);
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
  std::unique_ptr<Norm> pre_cross_attn_layernorm, pre_mlp_layernorm;
  std::unique_ptr<CrossAttention> cross_attention;
  std::unique_ptr<Mlp> mlp;
  std::unique_ptr<MoeLayer> experts;
};

// LanguageModelEmbedding
struct Embeddings : Module {
  Embeddings(Module& parent, std::string_view name, const Shared& shared) : Module(parent, name), shared(shared) {
    const MegatronConfig& c = shared.config;
    word.add_parameter({c.vocab / shared.settings.tensor, c.hidden});
    if (!c.rope) position.add_parameter({c.positions, c.hidden});
    if (c.kind == MegatronKind::bert) types.add_parameter({2, c.hidden});
  }

  Tensor operator()(const MegatronInput& in) const { return look_up(in.tokens, in.positions, in.types); }

  Tensor look_up(const Tensor& tokens, const Tensor& positions, const Tensor& sentences) const {
    Forward scope(*this);
    const MegatronSettings& s = shared.settings;
    Tensor hidden;
    {
      Tensor looked_up;
      if (s.tensor > 1) {  // ids that other ranks have are looked up as 0 and set to zero
        const Tensor mask = nondiff("ge", tokens, DType::bool_), masked = nondiff("clone", tokens, DType::int64);
        looked_up = embedding(word.weight, masked);
      } else {
        looked_up = embedding(word.weight, tokens);
      }
      if (position.weight) looked_up = add(looked_up, embedding(position.weight, positions));
      hidden = contiguous(transpose(looked_up, 0, 1));
    }
    if (types.weight) hidden = add(hidden, transpose(embedding(types.weight, sentences), 0, 1));
    if (s.sequence && s.tensor > 1) hidden = clone(slice(hidden, 0, 0, hidden.size(0) / s.tensor));
    return dropout(hidden, shared.config.hidden_dropout);
  }

  struct Table : Module {
    using Module::Module;
    void add_parameter(const Dims& sizes) { weight = parameter("weight", sizes); }
    Tensor weight;
  };
  const Shared& shared;
  Table word{*this, "word_embeddings"};
  Table position{*this, "position_embeddings"};
  Table types{*this, "tokentype_embeddings"};
};

// ColumnParallelLinear of megatron.core
struct OutputLayer : Module {
  OutputLayer(Module& parent, std::string_view name, const Shared& shared, const Tensor& tied_weight)
      : Module(parent, name),
        weight(tied_weight ? tied("weight", tied_weight)
                           : parameter("weight", {shared.config.vocab / shared.settings.tensor, shared.config.hidden})) {
    if (shared.config.kind != MegatronKind::gpt) bias = parameter("bias", {shared.config.vocab / shared.settings.tensor});
  }
  Tensor weight, bias;
};

// BertLMHead before the output layer, and beside it the Pooler and the head that says whether two sentences are in order.
struct BertHeads : Module {
  BertHeads(Module& parent, std::string_view name, const Shared& shared)
      : Module(parent, name),
        dense(*this, "dense", shared, ParallelLinear::Kind::whole, shared.config.hidden, shared.config.hidden, true, true),
        layer_norm(*this, "layer_norm", shared.config.hidden, shared.config.rms),
        pooler(*this, "pooler", shared, ParallelLinear::Kind::whole, shared.config.hidden, shared.config.hidden, true, true),
        binary_head(*this, "binary_head", shared, ParallelLinear::Kind::whole, shared.config.hidden, 2, true, true) {}

  Tensor operator()(const Tensor& hidden) const { return layer_norm(gelu(dense(hidden))); }
  Tensor order_loss(const Tensor& hidden, const Tensor& order) const {
    const Tensor pooled = tanh(pooler(slice(hidden, 0, 0, 1)));
    return cross_entropy(to(view(binary_head(pooled), {-1, 2}), DType::float32), order);
  }

  ParallelLinear dense;
  Norm layer_norm;
  ParallelLinear pooler, binary_head;
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
    if (config.kind == MegatronKind::bert) bert = std::make_unique<megatron::BertHeads>(chunk, "lm_head", shared);
    if (config.kind == MegatronKind::t5) second = std::make_unique<Second>(chunk, shared);
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
  std::unique_ptr<megatron::BertHeads> bert;
  // T5's decoder; the layers above are then its encoder.
  struct Second : Module {
    Second(Module& chunk, const megatron::Shared& shared)
        : Module(chunk, "second"),
          layers(*this, "layers"),
          final_layernorm(*this, "final_layernorm", shared.config.hidden, shared.config.rms) {
      for (int64_t i = 0; i < shared.config.decoder_layers; ++i) layers.add(shared, false, true);
    }
    ModuleList<megatron::Layer> layers;
    megatron::Norm final_layernorm;
  };
  std::unique_ptr<Second> second;

  // What T5's decoder makes of its own tokens and of what the encoder gave.
  Tensor decoded(const MegatronInput& in, const Tensor& encoded) {
    Tensor hidden = embedding->look_up(in.decoder_tokens, in.decoder_positions, {});
    for (megatron::Layer& layer : second->layers) {
      const auto run = [&layer](const Tensors& x) -> Tensors { return {layer(x[0], x[1])}; };
      hidden = run_block(layer, run, Tensors{hidden, encoded})[0];
    }
    return second->final_layernorm(hidden);
  }
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
  if (parts_->second) hidden = parts_->decoded(in, hidden);
  Tensor order_loss;
  if (parts_->bert) {
    order_loss = parts_->bert->order_loss(hidden, in.order);
    hidden = (*parts_->bert)(hidden);
  }
  const megatron::Shared& shared = parts_->shared;
  Forward scope(*parts_->output);
  GemmShare share = shared.share();
  share.torch = true;
  const Tensor logits = column_linear(hidden, parts_->output->weight, parts_->output->bias, share, true);
  const Tensor target = contiguous(transpose(in.labels, 0, 1));
  const Tensor loss = shared.settings.fused_loss ? fused_cross_entropy(logits, target) : vocab_parallel_cross_entropy(logits, target);
  const Tensor by_token = contiguous(transpose(loss, 0, 1));
  return order_loss ? add(by_token, order_loss) : by_token;
}

std::vector<Parameter*> MegatronChunk::expert_parameters() const {
  std::vector<Parameter*> out;
  for (const megatron::Layer& layer : parts_->layers)
    if (layer.experts) out.insert(out.end(), layer.experts->of_experts().begin(), layer.experts->of_experts().end());
  return out;
}

namespace {

// It is not one Model but the chunks above, which step/megatron_step.h builds.
std::unique_ptr<Model> make_megatron(Build&, const Config&) {
  throw Error("[model] megatron is trained by Megatron-LM alone", "add its layout, e.g. --megatron world=8,tensor=2");
}

}  // namespace

const Family& megatron_family() {
  static const Family kFamily{
      .name = "megatron",
      .library = "NVIDIA/Megatron-LM",
      .models = {{"megatron", {}, InputKind::lm, 2048, make_megatron}},
      .programs = {.megatron = MegatronDefaults{.tied = true, .bias = true, .qkv_bias = true, .ffn = 0, .vocab = 50257}},
  };
  return kFamily;
}

}  // namespace plimsoll
