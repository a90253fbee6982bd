// transformers.models.cohere2: Cohere2ForCausalLM (Command R7B, Command A). A Command R with a window in most layers; the others see
// everything and know no positions.
#include "model/decoder/cohere.h"
#include "model/family.h"

namespace plimsoll {

namespace {

std::unique_ptr<Model> make_cohere2(Build& build, const Config& c) {
  DecoderConfig d = cohere_settings(c);
  d.head_order = HeadOrder::in_turn;
  d.sliding_layer = sliding_layers(c, all_but_each(c.size({"sliding_window_pattern"}, 4), d.num_hidden_layers));
  d.sliding_window = sliding_window(c, 4096);
  if (!d.sliding_window)
    throw Error("[" + c.source() + "] sliding_window null: its mask is always made", "give sliding_window a number of tokens");
  d.rotates = d.sliding_layer;
  return make_decoder(build, d);
}

}  // namespace

const Family& cohere2_family() {
  static const Family kFamily{
      .name = "cohere2",
      .models = {{"cohere2", {"Cohere2ForCausalLM"}, InputKind::lm, 2048, make_cohere2}},
      .presets =
          {{"command-r7b",
            R"({"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8})",
            8192},
           {"command-a",
            R"({"hidden_size":12288,"intermediate_size":36864,"num_hidden_layers":64,"num_attention_heads":96,"num_key_value_heads":8})",
            8192}},
  };
  return kFamily;
}

}  // namespace plimsoll
