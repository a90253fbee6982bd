// transformers.models.gemma3: Gemma3ForCausalLM, the language model alone. Layers with a window and those without have rotary tables of
// their own; queries and keys are normalised once their heads are apart.
#include <nlohmann/json.hpp>

#include "model/family.h"
#include "nn/decoder.h"
#include "nn/gemma.h"

namespace plimsoll {

namespace {

// rope_parameters has a mapping for each type of layer; the old rope_scaling is about those that see everything.
RopeSettings rope_of_layers(const Config& c, const DecoderConfig& d, const char* type, const char* old) {
  nlohmann::json own = nlohmann::json::object();
  const nlohmann::json* all = c.find({"rope_parameters"});
  if (all && all->is_object() && all->contains(type) && (*all)[type].is_object())
    own["rope_parameters"] = (*all)[type];
  else if (const nlohmann::json* scaling = *old ? c.find({old}) : nullptr)
    own["rope_parameters"] = *scaling;
  return rope_settings(Config(c.source() + ": " + type, own), {d.head_dim, 131072});
}

DecoderConfig gemma3_settings(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 262208;
  d.hidden_size = 2304;
  d.intermediate_size = 9216;
  d.num_hidden_layers = 26;
  d.num_attention_heads = 8;
  d.num_key_value_heads = 4;
  d.head_dim = 256;
  d.tie_word_embeddings = true;
  d.norm = norm_of<GemmaRMSNorm>;
  d.norm_names = kNormsAround;
  d.embedding = embedding_of<GemmaTextScaledWordEmbedding>;
  d.qk_norm = {.make = norm_of_a_head<GemmaRMSNorm>, .last = true};
  read_decoder_config(c, d);
  c.require_divides("num_attention_heads", d.num_attention_heads, "hidden_size", d.hidden_size);
  d.hidden_act = c.text({"hidden_activation"}, "gelu_pytorch_tanh");
  d.qkv_bias = d.o_bias = c.flag({"attention_bias"}, false);
  c.number({"final_logit_softcapping"}, 0.0);
  d.caps_logits = c.find({"final_logit_softcapping"}) != nullptr;
  if (c.flag({"use_bidirectional_attention"}, false))
    throw Error("[" + c.source() + "] use_bidirectional_attention true is not simulated",
                "leave it out: texts are read from left to right");
  const int64_t pattern = c.size({"sliding_window_pattern", "_sliding_window_pattern"}, 6);
  d.sliding_layer = sliding_layers(c, all_but_each(pattern, d.num_hidden_layers));
  d.sliding_window = sliding_window(c, 4096);
  if (!d.sliding_window)
    throw Error("[" + c.source() + "] sliding_window null: its mask is always made", "give sliding_window a number of tokens");
  d.rope = rope_of_layers(c, d, "full_attention", "rope_scaling");
  d.local_rope = rope_of_layers(c, d, "sliding_attention", "");
  return d;
}

std::unique_ptr<Model> make_gemma3(Build& build, const Config& c) { return make_decoder(build, gemma3_settings(c)); }

}  // namespace

const Family& gemma3_family() {
  static const Family kFamily{
      .name = "gemma3_text",
      .models = {{"gemma3_text", {"Gemma3ForCausalLM"}, InputKind::lm, 2048, make_gemma3}},
      .presets =
          {{"gemma-3-270m",
            R"({"vocab_size":262144,"hidden_size":640,"intermediate_size":2048,"num_hidden_layers":18,"num_attention_heads":4,"num_key_value_heads":1,"sliding_window":512})",
            4096},
           {"gemma-3-1b",
            R"({"vocab_size":262144,"hidden_size":1152,"intermediate_size":6912,"num_attention_heads":4,"num_key_value_heads":1,"sliding_window":512})",
            4096},
           {"gemma-3-4b-text", R"({"hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,"sliding_window":1024})", 4096},
           {"gemma-3-12b-text",
            R"({"hidden_size":3840,"intermediate_size":15360,"num_hidden_layers":48,"num_attention_heads":16,"num_key_value_heads":8,"sliding_window":1024})",
            4096},
           {"gemma-3-27b-text",
            R"({"hidden_size":5376,"intermediate_size":21504,"num_hidden_layers":62,"num_attention_heads":32,"num_key_value_heads":16,"head_dim":128,"sliding_window":1024})",
            4096}},
      .adapters = {.lora = {"q_proj", "v_proj"},
                   .ia3 = {"q_proj", "v_proj", "down_proj"},
                   .feedforward = {"down_proj"},
                   .ln_tuning = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
                                 "norm"}},
      .kernels = {.liger_loss = true},
      .gguf = "gemma3",
  };
  return kFamily;
}

}  // namespace plimsoll
