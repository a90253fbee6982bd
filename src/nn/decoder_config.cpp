#include "nn/decoder_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace plimsoll {

void read_decoder_config(const Config& c, DecoderConfig& d) {
  d.vocab_size = c.size({"vocab_size"}, d.vocab_size);
  d.hidden_size = c.size({"hidden_size"}, d.hidden_size);
  d.intermediate_size = c.size({"intermediate_size"}, d.intermediate_size);
  d.num_hidden_layers = c.size({"num_hidden_layers"}, d.num_hidden_layers);
  d.num_attention_heads = c.size({"num_attention_heads"}, d.num_attention_heads);
  if (c.is_null("num_key_value_heads") || !d.num_key_value_heads) d.num_key_value_heads = d.num_attention_heads;
  d.num_key_value_heads = c.size({"num_key_value_heads"}, d.num_key_value_heads);
  c.require_divides("num_key_value_heads", d.num_key_value_heads, "num_attention_heads", d.num_attention_heads);
  if (!d.head_dim && !c.find({"head_dim"})) c.require_divides("num_attention_heads", d.num_attention_heads, "hidden_size", d.hidden_size);
  d.head_dim = c.size({"head_dim"}, d.head_dim ? d.head_dim : d.hidden_size / d.num_attention_heads);
  d.tie_word_embeddings = c.flag({"tie_word_embeddings"}, d.tie_word_embeddings);
  d.attention_dropout = c.number({"attention_dropout"}, d.attention_dropout);
  d.hidden_act = c.text({"hidden_act"}, d.hidden_act);
}

std::vector<bool> sliding_layers(const Config& c, std::vector<bool> fallback) {
  const nlohmann::json* types = c.find({"layer_types"});
  if (!types) return fallback;
  if (!types->is_array() || types->size() != fallback.size())
    throw Error("[" + c.source() + "] layer_types is not a list of num_hidden_layers " + std::to_string(fallback.size()) + " names",
                "give one name for each layer");
  for (size_t i = 0; i < fallback.size(); ++i) {
    const nlohmann::json& type = (*types)[i];
    if (type != "full_attention" && type != "sliding_attention")
      throw Error("[" + c.source() + "] layer_types " + dump(type) + " is not known", "known: full_attention, sliding_attention");
    fallback[i] = type == "sliding_attention";
  }
  return fallback;
}

std::optional<int64_t> sliding_window(const Config& c, std::optional<int64_t> fallback) {
  if (c.is_null("sliding_window")) return std::nullopt;
  return c.find({"sliding_window"}) ? c.size({"sliding_window"}, 0) : fallback;
}

std::vector<bool> all_but_each(int64_t pattern, int64_t layers) {
  std::vector<bool> slides(static_cast<size_t>(layers));
  for (size_t i = 0; i < slides.size(); ++i) slides[i] = (static_cast<int64_t>(i) + 1) % pattern != 0;
  return slides;
}

void read_window_of_all_layers(const Config& c, DecoderConfig& d, std::optional<int64_t> fallback) {
  d.sliding_window = sliding_window(c, fallback);
  d.full_mask = !d.sliding_window;
}

void read_optional_window(const Config& c, DecoderConfig& d) {
  const std::optional<int64_t> window = c.flag({"use_sliding_window"}, false) ? sliding_window(c, 4096) : std::nullopt;
  const int64_t first = c.integer({"max_window_layers"}, 28);
  std::vector<bool> slides(static_cast<size_t>(d.num_hidden_layers));
  for (int64_t i = 0; i < d.num_hidden_layers; ++i) slides[static_cast<size_t>(i)] = window && i >= first;
  d.sliding_layer = sliding_layers(c, slides);
  if (std::find(d.sliding_layer.begin(), d.sliding_layer.end(), true) == d.sliding_layer.end()) return;
  if (!window)
    throw Error("[" + c.source() + "] layer_types has sliding_attention, but there is no sliding_window",
                "set use_sliding_window to true and give sliding_window");
  d.sliding_window = window;
}

}  // namespace plimsoll
