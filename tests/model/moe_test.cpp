// Models with experts and state spaces: what changes their memory and what does not, and configurations that are refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "model/registry.h"
#include "simulate.h"

namespace plimsoll::moe_test {
namespace {

Job tiny(const std::string& family, nlohmann::json changes = nlohmann::json::object()) {
  nlohmann::json config{{"hidden_size", 64}, {"intermediate_size", 96},     {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                        {"vocab_size", 300}, {"moe_intermediate_size", 48}, {"num_key_value_heads", 4}, {"pad_token_id", 0}};
  config.update(changes);
  Job job;
  job.model = job.family = family;
  job.config = Config(family, config);
  job.inputs = find_model(family)->inputs;
  job.batch = 2;
  job.seq = 16;
  job.steps = 1;
  return job;
}

std::string message_of(const Job& job) {
  try {
    simulate(job);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

int64_t forward_bytes(const Job& job) { return ideal_timeline(simulate(job).trace).steps[0].by_phase[static_cast<size_t>(Phase::forward)]; }

int64_t parameters(const Job& job) { return simulate(job).parameters; }

TEST(Moe, ExpertsAreParametersOfEverySparseLayer) {
  const int64_t four = parameters(tiny("mixtral", {{"num_local_experts", 4}})),
                six = parameters(tiny("mixtral", {{"num_local_experts", 6}}));
  EXPECT_EQ(six - four, 2 * 2 * (3 * 64 * 96 + 64));  // layers, experts, their matrices and their row in the router
  EXPECT_EQ(parameters(tiny("mixtral", {{"num_experts", 6}})), six);
}

TEST(Moe, MoreExpertsATokenNeedMoreMemory) {
  const nlohmann::json experts{{"num_experts", 8}};
  int64_t before = 0;
  for (int k : {1, 2, 4, 8}) {
    nlohmann::json config = experts;
    config["num_experts_per_tok"] = k;
    const int64_t bytes = forward_bytes(tiny("qwen3_moe", config));
    EXPECT_GT(bytes, before) << k;
    before = bytes;
  }
}

TEST(Moe, LayersWithoutExpertsAreThoseThatTheConfigurationNames) {
  const nlohmann::json experts{{"num_experts", 8}, {"num_experts_per_tok", 2}};
  nlohmann::json named = experts, stepped = experts, none = experts;
  named["mlp_only_layers"] = {0};
  stepped["decoder_sparse_step"] = 2;
  none["mlp_only_layers"] = {0, 1};
  EXPECT_EQ(parameters(tiny("qwen3_moe", named)), parameters(tiny("qwen3_moe", stepped)));
  EXPECT_EQ(forward_bytes(tiny("qwen3_moe", named)), forward_bytes(tiny("qwen3_moe", stepped)));
  EXPECT_LT(parameters(tiny("qwen3_moe", none)), parameters(tiny("qwen3_moe", named)));
}

TEST(Moe, TheLossThatBalancesExpertsIsOneMoreTensor) {
  const Job without = tiny("mixtral"), with = tiny("mixtral", {{"output_router_logits", true}});
  EXPECT_GT(forward_bytes(with), forward_bytes(without));
  EXPECT_EQ(parameters(with), parameters(without));
}

TEST(Moe, RefusesWhatIsNotSimulated) {
  struct Case {
    const char* family;
    nlohmann::json config;
    const char* message;  // a part of it
  };
  const std::vector<Case> cases{
      {"mixtral", {{"num_local_experts", 4}, {"num_experts_per_tok", 5}}, "num_experts_per_tok 5 is more than the 4 experts"},
      {"mixtral", {{"experts_implementation", "eager"}}, "experts_implementation 'eager' is not simulated"},
      {"mixtral", {{"intermediate_size", 90}}, "not a multiple of 16 bytes"},
      {"mixtral", {{"num_local_experts", "many"}}, "num_local_experts"},
      {"mixtral-classifier", {{"output_router_logits", true}}, "output_router_logits"},
      {"qwen2_moe", {{"mlp_only_layers", "all"}}, "mlp_only_layers \"all\""},
      {"qwen2_moe", {{"use_sliding_window", true}, {"sliding_window", nullptr}}, "sliding_window null"},
      {"qwen3_moe", {{"decoder_sparse_step", 0}}, "decoder_sparse_step is 0"},
      {"deepseek_v2", {{"topk_method", "random"}}, "topk_method 'random' is not known"},
      {"deepseek_v2", {{"num_key_value_heads", 2}}, "num_key_value_heads 2 is not num_attention_heads 4"},
      {"deepseek_v2", {{"qk_rope_head_dim", 7}}, "qk_rope_head_dim 7 is odd"},
      {"deepseek_v3", {{"n_group", 7}}, "n_group 7 does not divide n_routed_experts 256"},
      {"deepseek_v3", {{"n_group", 2}, {"topk_group", 3}}, "topk_group 3 is more than n_group 2"},
      {"gpt_oss", {{"sliding_window", nullptr}}, "sliding_window null"},
      {"gpt_oss", {{"layer_types", {"full_attention"}}}, "layer_types"},
      {"llama4_text", {{"attention_chunk_size", nullptr}}, "attention_chunk_size null"},
      {"llama4_text", {{"no_rope_layers", {1}}}, "no_rope_layers has 1 numbers for 2 layers"},
      {"llama4_text", {{"moe_layers", "all"}}, "moe_layers \"all\""},
      {"llama4_text", {{"layer_types", {"full_attention", "sliding_attention"}}}, "\"sliding_attention\" is not known"},
      {"llama4_text", {{"output_router_logits", true}}, "output_router_logits true is not supported"},
      {"mamba2", {{"num_heads", 3}}, "num_heads 3 * head_dim 64 is not hidden_size * expand 128"},
      {"mamba2", {{"num_heads", 2}, {"n_groups", 4}}, "n_groups 4 does not divide num_heads 2"},
      {"mamba2", {{"num_heads", 2}, {"n_groups", 1}, {"use_mamba_kernels", true}}, "use_mamba_kernels true"},
      {"jamba", {{"attn_layer_offset", 8}}, "attn_layer_offset 8 is not below attn_layer_period 8"},
      {"jamba", {{"expert_layer_offset", -1}}, "expert_layer_offset -1 is not below"},
      {"jamba", {{"mamba_d_conv", 5}}, "mamba_d_conv 5"},
  };
  for (const Case& c : cases)
    EXPECT_NE(message_of(tiny(c.family, c.config)).find(c.message), std::string::npos)
        << c.family << " " << c.config << ": " << message_of(tiny(c.family, c.config));
}

}  // namespace
}  // namespace plimsoll::moe_test
