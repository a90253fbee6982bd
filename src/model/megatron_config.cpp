#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "job/settings.h"
#include "model/megatron.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// What a family is unless its configuration says otherwise.
struct FamilyDefaults {
  const char* name;
  bool gated, rope, rms, tied, bias, qkv_bias, qk_norm;
};

constexpr FamilyDefaults kFamilies[]{
    {"megatron", false, false, false, true, true, true, false},    {"gpt2", false, false, false, true, true, true, false},
    {"llama", true, true, true, false, false, false, false},       {"mistral", true, true, true, false, false, false, false},
    {"qwen2", true, true, true, false, false, true, false},        {"qwen3", true, true, true, false, false, false, true},
    {"mixtral", true, true, true, false, false, false, false},     {"qwen3_moe", true, true, true, false, false, false, true},
    {"deepseek_v2", true, true, true, false, false, false, false}, {"deepseek_v3", true, true, true, false, false, false, false}};

const FamilyDefaults& defaults_of(const std::string& family) {
  for (const FamilyDefaults& f : kFamilies)
    if (family == f.name) return f;
  throw Error(fmt::format("[megatron] {} is not built by Megatron here", family), "known: " + join(megatron_families(), ", "));
}

void divides(const char* what, int64_t n, const char* by, int64_t ranks) {
  if (n % ranks == 0) return;
  const int64_t below = n / ranks * ranks;
  std::vector<std::string> choices;
  for (int64_t d = 1; d <= n && d <= 1024; ++d)
    if (n % d == 0) choices.push_back(std::to_string(d));
  throw Error(fmt::format("[megatron] {} {} cannot be split over {} {}", n, what, by, ranks),
              fmt::format("{} can be one of {}{}", by, join(choices, ", "), below > 0 ? fmt::format("; or take {} {}", below, what) : ""));
}

// "2", or Python's "([0]*1+[1]*3)".
nlohmann::json read_pattern(const std::string& text) {
  if (text.find('[') == std::string::npos) return parse_scalar(text);
  nlohmann::json list = nlohmann::json::array();
  static const std::regex kTerm(R"(\[([01, ]+)\](?:\*(\d{1,4}))?)");
  for (std::sregex_iterator i(text.begin(), text.end(), kTerm), end; i != end; ++i) {
    const int times = (*i)[2].matched ? std::stoi((*i)[2]) : 1;
    for (int k = 0; k < times; ++k)
      for (const char digit : (*i)[1].str())
        if (digit == '0' || digit == '1') list.push_back(digit - '0');
  }
  return list;
}

// "1", "2", "([0]*1+[1]*3)", [0, 1, 1, 1], or a number of dense layers that come first.
std::vector<bool> moe_layers(const Config& c, int64_t layers) {
  std::vector<bool> out(static_cast<size_t>(layers), true);
  const int64_t dense = c.integer({"first_k_dense_replace"}, 0), every = c.integer({"decoder_sparse_step"}, 1);
  const nlohmann::json* given = c.find({"moe_layer_freq"});
  const nlohmann::json pattern = given && given->is_string() ? read_pattern(given->get<std::string>()) : nlohmann::json();
  const nlohmann::json* freq = given && given->is_string() ? &pattern : given;
  for (int64_t i = 0; i < layers; ++i) {
    bool moe = i >= dense && (every <= 1 || (i + 1) % every == 0);
    if (freq && freq->is_array() && static_cast<size_t>(i) < freq->size()) moe = freq->at(static_cast<size_t>(i)) != 0;
    if (freq && freq->is_number_integer() && freq->get<int64_t>() > 0) moe = moe && i % freq->get<int64_t>() == 0;
    out[static_cast<size_t>(i)] = moe;
  }
  return out;
}

}  // namespace

std::vector<std::string> megatron_families() {
  std::vector<std::string> names;
  for (const FamilyDefaults& f : kFamilies) names.emplace_back(f.name);
  return names;
}

bool knows_megatron(const std::string& family) {
  return std::any_of(std::begin(kFamilies), std::end(kFamilies), [&](const FamilyDefaults& f) { return family == f.name; });
}

MegatronConfig::MegatronConfig(const std::string& family, const Config& c, const MegatronSettings& s) {
  const FamilyDefaults& d = defaults_of(family);
  layers = c.size({"num_layers", "num_hidden_layers", "n_layer"}, family == "gpt2" ? 12 : 32);
  hidden = c.size({"hidden_size", "n_embd"}, family == "gpt2" ? 768 : 4096);
  heads = c.size({"num_attention_heads", "n_head"}, family == "gpt2" ? 12 : 32);
  groups = c.size({"num_query_groups", "num_key_value_heads"}, heads);
  channels = c.optional_integer({"kv_channels", "head_dim"}).value_or(hidden / heads);
  ffn = c.optional_integer({"ffn_hidden_size", "intermediate_size", "n_inner"}).value_or(4 * hidden);
  positions = c.size({"max_position_embeddings", "n_positions"}, 2048);
  gated = c.flag({"swiglu"}, d.gated);
  rope = c.text({"position_embedding_type"}, d.rope ? "rope" : "learned_absolute") == "rope";
  rms = c.text({"normalization"}, d.rms ? "RMSNorm" : "LayerNorm") == "RMSNorm";
  tied = c.flag({"tie_word_embeddings"}, d.tied);
  bias = c.flag({"add_bias_linear"}, d.bias);
  qkv_bias = c.flag({"add_qkv_bias", "attention_bias"}, bias || d.qkv_bias);
  qk_norm = c.flag({"qk_layernorm"}, d.qk_norm);
  hidden_dropout = c.number({"hidden_dropout"}, 0);
  attention_dropout = c.number({"attention_dropout"}, 0);
  vocab = c.size({"vocab_size"}, 50257);
  if (const auto padded = c.optional_integer({"padded_vocab_size"}))
    vocab = *padded;
  else
    vocab = round_up(vocab, 128 * s.tensor);  // make-vocab-size-divisible-by

  experts = c.integer({"num_moe_experts", "num_experts", "num_local_experts", "n_routed_experts"}, 0);
  if (experts > 0) {
    top_k = c.size({"moe_router_topk", "num_experts_per_tok"}, 2);
    expert_ffn = c.optional_integer({"moe_ffn_hidden_size", "moe_intermediate_size"}).value_or(ffn);
    shared_ffn = c.integer({"moe_shared_expert_intermediate_size", "shared_expert_intermediate_size"}, 0);
    if (const int64_t shared = c.integer({"n_shared_experts"}, 0); shared > 0) shared_ffn = shared * expert_ffn;
    grouped = c.flag({"moe_grouped_gemm"}, true);
    gathers_all = c.text({"moe_token_dispatcher_type"}, "alltoall") == "allgather";
    capacity = c.number({"moe_expert_capacity_factor"}, 0);
    is_moe = moe_layers(c, layers);
    if (top_k > experts)
      throw Error(fmt::format("[megatron] {} experts a token of {}", top_k, experts), "moe_router_topk is at most the number of experts");
    divides("experts", experts, "expert", s.expert);
    divides("columns of an expert", expert_ffn, "expert_tensor", s.expert_tensor_size());
  } else if (s.expert > 1) {
    throw Error(fmt::format("[megatron] expert {}: {} has no experts", s.expert, family), "leave expert out");
  }
  kv_rank = c.integer({"kv_lora_rank"}, 0);
  if (latent()) {
    q_rank = c.integer({"q_lora_rank"}, 0);
    rope_width = c.size({"qk_pos_emb_head_dim", "qk_rope_head_dim"}, 64);
    channels = c.size({"qk_head_dim", "qk_nope_head_dim"}, 128);
    value_width = c.size({"v_head_dim"}, 128);
  }
  divides("attention heads", heads, "tensor", s.tensor);
  if (groups > s.tensor) divides("key and value heads", groups, "tensor", s.tensor);
  divides("columns of the feed-forward layer", ffn, "tensor", s.tensor);
  if (!s.layers.empty()) {
    int64_t sum = 0;
    for (const int64_t n : s.layers) sum += n;
    if (sum != layers)
      throw Error(fmt::format("[megatron] the stages have {} layers, the model has {}", sum, layers),
                  "the numbers in layers add up to those of the model");
  } else if (layers % (s.pipeline * s.virtual_stages) != 0) {
    const int64_t parts = s.pipeline * s.virtual_stages;
    throw Error(fmt::format("[megatron] {} layers cannot be split over {} stages{}", layers, s.pipeline,
                            s.virtual_stages > 1 ? fmt::format(" of {} chunks", s.virtual_stages) : ""),
                layers < parts ? fmt::format("a stage would have no layer: take a pipeline of at most {}", layers)
                               : fmt::format("say how many each has: layers={}+{}+...", layers / parts + 1, layers / parts));
  }
}

}  // namespace plimsoll
