// transformers.models.stablelm: StableLmForCausalLM and StableLmForSequenceClassification.
#include "model/family.h"
#include "nn/decoder_stack.h"
#include "nn/last_token_classifier.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// A norm of its own for every head.
struct StableLmLayerNormPerHead : UnaryModule {
  StableLmLayerNormPerHead(Module& parent, std::string_view name, int64_t width, int64_t heads) : UnaryModule(parent, name) {
    for (int64_t i = 0; i < heads; ++i) norms.add(width, true, false);
  }

  Tensor operator()(const Tensor& x) const override {
    Forward here(*this);
    const Tensors states_per_head = split(x, 1, 1);  // H x (B, 1, T, D)
    Tensors normed;
    for (size_t i = 0; i < norms.size(); ++i) normed.push_back(norms[i](states_per_head[i]));
    return cat(normed, 1);  // (B, H, T, D)
  }

  ModuleList<LayerNorm> norms{*this, "norms"};
};

std::unique_ptr<UnaryModule> norm_per_head(Module& parent, std::string_view name, int64_t heads, int64_t head_dim) {
  return std::make_unique<StableLmLayerNormPerHead>(parent, name, head_dim, heads);
}

struct StableLmConfig : DecoderConfig {
  explicit StableLmConfig(const Config& c) {
    vocab_size = 50304;
    hidden_size = 2560;
    intermediate_size = 6912;
    num_key_value_heads = 32;
    norm = norm_of<LayerNorm>;
    head_order = HeadOrder::project_first;
    rotary = rotate_part_in_attention;
    read_decoder_config(c, *this);
    reject_captured_outputs(c);
    c.require_divides("num_attention_heads", num_attention_heads, "hidden_size", hidden_size);
    if (head_dim * num_attention_heads != hidden_size)
      throw Error("[" + c.source() + "] head_dim " + std::to_string(head_dim) + " is not hidden_size / num_attention_heads",
                  "remove head_dim: stablelm does not read it");
    rope = rope_settings(c, {head_dim, 4096, 0.25});
    qkv_bias = c.flag({"use_qkv_bias"}, false);
    if (c.flag({"qk_layernorm"}, false)) qk_norm = {norm_per_head, "q_layernorm", "k_layernorm", true};
    use_parallel_residual = c.flag({"use_parallel_residual"}, false);
    hidden_dropout = c.number({"hidden_dropout"}, 0.0);
  }
  bool use_parallel_residual = false;
  double hidden_dropout = 0.0;
};

struct StableLmDecoderLayer : Module {
  StableLmDecoderLayer(Module& parent, std::string_view name, const StableLmConfig& c)
      : Module(parent, name),
        config(c),
        post_attention_layernorm(c.use_parallel_residual ? nullptr
                                                         : std::make_unique<LayerNorm>(*this, "post_attention_layernorm", c.hidden_size)) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    const Tensor self_attn_output = run_attention(self_attn, hidden, &weights, tables, mask);
    if (!post_attention_layernorm) {
      Tensor mlp_output = run_part(mlp, hidden);
      mlp_output = dropout(mlp_output);
      hidden = add(add(residual, self_attn_output), mlp_output);
      return hidden;
    }
    residual = add(residual, self_attn_output);
    Tensor mlp_output = mlp((*post_attention_layernorm)(residual));
    mlp_output = dropout(mlp_output);
    hidden = add(residual, mlp_output);
    return hidden;
  }

  const StableLmConfig& config;
  DecoderAttention self_attn{*this, "self_attn", config};
  GatedMLP mlp{*this, "mlp", config.hidden_size, config.intermediate_size, false, config.hidden_act};
  LayerNorm input_layernorm{*this, "input_layernorm", config.hidden_size};
  std::unique_ptr<LayerNorm> post_attention_layernorm;  // none when attention and feed-forward are added together
  Dropout dropout{*this, "dropout", config.hidden_dropout};
};

using StableLmModel = DecoderStack<StableLmConfig, StableLmDecoderLayer>;

std::unique_ptr<Model> make_stablelm(Build& build, const Config& c) {
  const StableLmConfig config(c);
  return std::make_unique<CausalLM<StableLmConfig, StableLmModel>>(build, config, lm_head(config));
}

std::unique_ptr<Model> make_stablelm_classifier(Build& build, const Config& c) {
  const StableLmConfig config(c);
  return std::make_unique<LastTokenClassifier<StableLmConfig, StableLmModel>>(build, c, config, "model", config.hidden_size, std::nullopt);
}

}  // namespace

const Family& stablelm_family() {
  static const Family kFamily{
      .name = "stablelm",
      .models = {{"stablelm", {"StableLmForCausalLM"}, InputKind::lm, 2048, make_stablelm},
                 {"stablelm-classifier", {"StableLmForSequenceClassification"}, InputKind::cls, 2048, make_stablelm_classifier}},
      .presets =
          {{"stablelm-2-1.6b",
            R"({"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":24,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":100352,"use_qkv_bias":true})",
            4096},
           {"stablelm-3b-4e1t", R"({})", 4096},
           {"stablelm-2-12b",
            R"({"hidden_size":5120,"intermediate_size":13824,"num_hidden_layers":40,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":100352,"qk_layernorm":true,"use_parallel_residual":true})",
            4096}},
  };
  return kFamily;
}

}  // namespace plimsoll
