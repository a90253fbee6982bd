// transformers.models.olmo: OlmoForCausalLM and OlmoForSequenceClassification. Norms have no weights, and queries, keys and values may be
// clipped.
#include "model/decoder/olmo.h"

#include "model/family.h"
#include "nn/decoder.h"
#include "nn/transformer.h"
#include "ops/norm.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct OlmoLayerNorm : UnaryModule {
  OlmoLayerNorm(Module& parent, std::string_view name, int64_t) : UnaryModule(parent, name) {}
  Tensor operator()(const Tensor& x) const override {
    Forward here(*this);
    Tensor normalised;
    {
      const Tensor wide = to(x, DType::float32);
      normalised = layer_norm(wide, 1, {}, {});
    }
    return to(normalised, x.dtype());
  }
};

DecoderConfig olmo_settings(const Config& c) {
  DecoderConfig d;
  d.norm = norm_of<OlmoLayerNorm>;
  d = olmo_decoder(d, c);
  c.number({"clip_qkv"}, 0.0);
  d.clips_qkv = c.find({"clip_qkv"}) != nullptr;
  return d;
}

std::unique_ptr<Model> make_olmo(Build& build, const Config& c) { return make_decoder(build, olmo_settings(c)); }
std::unique_ptr<Model> make_olmo_classifier(Build& build, const Config& c) {
  return make_decoder_classifier(build, c, olmo_settings(c), 1);
}

}  // namespace

DecoderConfig olmo_decoder(DecoderConfig d, const Config& c) {
  d.vocab_size = 50304;
  d.head_order = HeadOrder::project_first;
  d.rotary = rotate_heads_in_fp32;
  read_decoder_config(c, d);
  reject_captured_outputs(c);
  d.rope = rope_settings(c, {d.head_dim, 2048});
  d.rope.fp32_tables = true;
  d.qkv_bias = d.o_bias = c.flag({"attention_bias"}, false);
  return d;
}

const Family& olmo_family() {
  static const Family kFamily{
      .name = "olmo",
      .models = {{"olmo", {"OlmoForCausalLM"}, InputKind::lm, 2048, make_olmo},
                 {"olmo-classifier", {"OlmoForSequenceClassification"}, InputKind::cls, 2048, make_olmo_classifier}},
      .presets =
          {{"olmo-1b",
            R"({"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,"num_attention_heads":16,"tie_word_embeddings":true})",
            2048},
           {"olmo-7b", R"({})", 2048},
           {"olmo-7b-0424", R"({"clip_qkv":8.0})", 4096}},
  };
  return kFamily;
}

}  // namespace plimsoll
