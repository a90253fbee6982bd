// transformers.models.olmo2: Olmo2ForCausalLM and Olmo2ForSequenceClassification. Norms come after attention and feed-forward, and
// on all heads' queries and keys at once.
#include "model/decoder/olmo.h"
#include "model/family.h"
#include "nn/decoder.h"
#include "nn/rms_norm_fp32.h"
#include "nn/transformer.h"

namespace plimsoll {

namespace {

DecoderConfig olmo2_settings(const Config& c) {
  DecoderConfig d;
  d.norm = norm_of<Fp32RMSNorm>;
  d.norm_names = kNormsAfter;
  d.qk_norm.make = norm_of_all_heads<Fp32RMSNorm>;
  return olmo_decoder(d, c);
}

std::unique_ptr<Model> make_olmo2(Build& build, const Config& c) { return make_decoder(build, olmo2_settings(c)); }
std::unique_ptr<Model> make_olmo2_classifier(Build& build, const Config& c) {
  return make_decoder_classifier(build, c, olmo2_settings(c), 1);
}

}  // namespace

const Family& olmo2_family() {
  static const Family kFamily{
      .name = "olmo2",
      .models = {{"olmo2", {"Olmo2ForCausalLM"}, InputKind::lm, 2048, make_olmo2},
                 {"olmo2-classifier", {"Olmo2ForSequenceClassification"}, InputKind::cls, 2048, make_olmo2_classifier}},
      .presets =
          {{"olmo-2-1b",
            R"({"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,"num_attention_heads":16,"vocab_size":100352})", 4096},
           {"olmo-2-7b", R"({"vocab_size":100352})", 4096},
           {"olmo-2-13b",
            R"({"hidden_size":5120,"intermediate_size":13824,"num_hidden_layers":40,"num_attention_heads":40,"vocab_size":100352})", 4096},
           {"olmo-2-32b",
            R"({"hidden_size":5120,"intermediate_size":27648,"num_hidden_layers":64,"num_attention_heads":40,"num_key_value_heads":8,"vocab_size":100352})",
            4096}},
      .kernels = {.liger_loss = true},
  };
  return kFamily;
}

}  // namespace plimsoll
