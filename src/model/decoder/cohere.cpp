// transformers.models.cohere: CohereForCausalLM (Command R). Attention and feed-forward read the same norm and are added together;
// norms and rotary positions are computed in fp32.
#include "model/decoder/cohere.h"

#include "model/family.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

Tensor CohereLayerNorm::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor hidden = to(x, DType::float32);
  const Tensor average = mean(hidden, {-1}, true);
  Tensor square = pow(sub(hidden, average), 2);
  const Tensor variance = mean(square, {-1}, true);
  square.reset();
  {
    const Tensor centred = sub(hidden, average);
    const Tensor scale = rsqrt(add_scalar(variance));
    hidden = mul(centred, scale);
  }
  hidden = mul(to(weight, DType::float32), hidden);
  return to(hidden, x.dtype());
}

namespace {

// apply_rotary_pos_emb, in fp32
Rotated rotate_cohere_heads(const Tensor& q_in, const Tensor& k_in, const CosSin& tables) {
  const Tensor q = to(q_in, DType::float32), k = to(k_in, DType::float32);
  const Tensor cos = unsqueeze(tables.cos, 1), sin = unsqueeze(tables.sin, 1);
  const Tensor q_embed = rotate_neighbours(q, cos, sin);
  const Tensor k_embed = rotate_neighbours(k, cos, sin);
  Tensor q_cast = to(q_embed, q_in.dtype());
  return {q_cast, to(k_embed, q_in.dtype())};
}

std::unique_ptr<UnaryModule> norm_of_each_head(Module& parent, std::string_view name, int64_t heads, int64_t head_dim) {
  return std::make_unique<CohereLayerNorm>(parent, name, Dims{heads, head_dim});
}

}  // namespace

DecoderConfig cohere_settings(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 256000;
  d.hidden_size = 8192;
  d.intermediate_size = 22528;
  d.num_hidden_layers = 40;
  d.num_attention_heads = 64;
  d.tie_word_embeddings = true;
  d.norm = norm_of<CohereLayerNorm>;
  d.norm_names = kOneNorm;
  d.parallel = true;
  d.head_order = HeadOrder::turn_last;
  d.rotary = rotate_cohere_heads;
  d.finish_logits = [](const Build&, Tensor logits) { return mul_scalar(logits); };
  read_decoder_config(c, d);
  reject_captured_outputs(c);
  d.rope = rope_settings(c, {d.head_dim, 8192});
  d.rope.interleaved = true;
  d.qkv_bias = d.o_bias = c.flag({"attention_bias"}, false);
  if (c.is_null("logit_scale")) throw Error("[" + c.source() + "] logit_scale null: logits are always scaled", "give logit_scale a number");
  return d;
}

namespace {

std::unique_ptr<Model> make_cohere(Build& build, const Config& c) {
  DecoderConfig d = cohere_settings(c);
  if (c.flag({"use_qk_norm"}, false)) d.qk_norm.make = norm_of_each_head;
  return make_decoder(build, d);
}

}  // namespace

const Family& cohere_family() {
  static const Family kFamily{
      .name = "cohere",
      .models = {{"cohere", {"CohereForCausalLM"}, InputKind::lm, 2048, make_cohere}},
      .presets =
          {{"aya-23-8b",
            R"({"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8})",
            8192},
           {"command-r", R"({})", 8192},
           {"command-r-plus",
            R"({"hidden_size":12288,"intermediate_size":33792,"num_hidden_layers":64,"num_attention_heads":96,"num_key_value_heads":8,"use_qk_norm":true})",
            8192}},
      .tensor_plan = TensorPlan{},
  };
  return kFamily;
}

}  // namespace plimsoll
