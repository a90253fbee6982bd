// Missing keys of a config.json are the class defaults of transformers: a configuration with every default written out
// needs the same bytes as an empty one, and one with another value does not.
#include <gtest/gtest.h>

#include <map>

#include "defaults.h"

namespace plimsoll::defaults_test {
namespace {

TEST(Defaults, OfAConfigurationAreThoseOfItsClass) {
  const std::map<std::string, nlohmann::json> written_out = {
      {"gpt2", {{"vocab_size", 50257}, {"n_positions", 1024}, {"n_embd", 768}, {"n_layer", 12}, {"n_head", 12}, {"n_inner", nullptr}}},
      {"bert",
       {{"vocab_size", 30522},
        {"hidden_size", 768},
        {"num_hidden_layers", 12},
        {"num_attention_heads", 12},
        {"intermediate_size", 3072},
        {"max_position_embeddings", 512},
        {"type_vocab_size", 2},
        {"hidden_act", "gelu"}}},
      {"llama",
       {{"vocab_size", 32000},
        {"hidden_size", 4096},
        {"intermediate_size", 11008},
        {"num_hidden_layers", 32},
        {"num_attention_heads", 32},
        {"num_key_value_heads", nullptr},
        {"tie_word_embeddings", false}}},
      {"t5",
       {{"vocab_size", 32128},
        {"d_model", 512},
        {"d_kv", 64},
        {"d_ff", 2048},
        {"num_layers", 6},
        {"num_heads", 8},
        {"feed_forward_proj", "relu"},
        {"relative_attention_num_buckets", 32}}},
  };
  for (const auto& [name, config] : written_out) {
    const ModelEntry& entry = *find_model(name);
    const int64_t peak = peak_of(entry, nlohmann::json::object());
    EXPECT_EQ(peak_of(entry, config), peak) << name;
    nlohmann::json other = config;
    other["vocab_size"] = 1000;
    EXPECT_LT(peak_of(entry, other), peak) << name;
  }
}

}  // namespace
}  // namespace plimsoll::defaults_test
