#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "job/settings.h"
#include "model/decoder/megatron.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// What a family is unless its configuration says otherwise: that of its class in transformers 5.12. Of numbers, 0 is none.
struct FamilyDefaults {
  const char* name;
  bool gated, rope, rms, tied, bias, qkv_bias, qk_norm;
  int64_t layers = 32, hidden = 4096, heads = 32, groups = 0, ffn = 11008, vocab = 32000, head_dim = 0;
  int64_t experts = 0, top_k = 2, expert_ffn = 0, shared_experts = 0, dense_layers = 0, kv_rank = 0, q_rank = 0;
};

FamilyDefaults of_experts(FamilyDefaults f, int64_t experts, int64_t top_k, int64_t expert_ffn) {
  f.experts = experts;
  f.top_k = top_k;
  f.expert_ffn = expert_ffn;
  return f;
}

// Keys and values from one narrow product, with shared experts and dense layers first.
FamilyDefaults of_deepseek(FamilyDefaults f, int64_t shared_experts, int64_t dense_layers) {
  f.shared_experts = shared_experts;
  f.dense_layers = dense_layers;
  f.kv_rank = 512;
  f.q_rank = 1536;
  return f;
}

const std::vector<FamilyDefaults>& families() {
  static const std::vector<FamilyDefaults> kFamilies{
      {"megatron", false, false, false, true, true, true, false, 32, 4096, 32, 0, 0, 50257},
      {"gpt2", false, false, false, true, true, true, false, 12, 768, 12, 0, 0, 50257},
      {"llama", true, true, true, false, false, false, false},
      {"mistral", true, true, true, false, false, false, false, 32, 4096, 32, 8, 14336},
      {"qwen2", true, true, true, false, false, true, false, 32, 4096, 32, 32, 22016, 151936},
      {"qwen3", true, true, true, false, false, false, true, 32, 4096, 32, 32, 22016, 151936, 128},
      of_experts({"mixtral", true, true, true, false, false, false, false, 32, 4096, 32, 8, 14336}, 8, 2, 0),
      of_experts({"qwen3_moe", true, true, true, false, false, false, true, 24, 2048, 32, 4, 6144, 151936}, 128, 8, 768),
      of_deepseek(of_experts({"deepseek_v2", true, true, true, false, false, false, false}, 64, 6, 1408), 2, 0),
      of_deepseek(
          of_experts({"deepseek_v3", true, true, true, false, false, false, false, 61, 7168, 128, 128, 18432, 129280}, 256, 8, 2048), 1,
          3)};
  return kFamilies;
}

const FamilyDefaults& defaults_of(const std::string& family) {
  for (const FamilyDefaults& f : families())
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
std::vector<bool> moe_layers(const Config& c, int64_t layers, int64_t dense_layers) {
  std::vector<bool> out(static_cast<size_t>(layers), true);
  const int64_t dense = c.integer({"first_k_dense_replace"}, dense_layers), every = c.integer({"decoder_sparse_step"}, 1);
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

// What of a layout BERT and T5 are not executed with.
void check_encoder(const MegatronSettings& s, int64_t experts, const std::string& kind) {
  if (s.pipeline > 1 || s.context > 1 || s.sequence || experts > 0)
    throw Error("[megatron] " + kind + " with pipeline, context, sequence or experts is not simulated", "tensor and data parallelism are");
}

// "11+11+10"
std::string split_text(int64_t layers, int64_t parts) {
  std::vector<std::string> each;
  for (int64_t i = 0; i < parts; ++i) each.push_back(std::to_string(layers / parts + (i < layers % parts)));
  return join(each, "+");
}

}  // namespace

std::vector<std::string> megatron_families() {
  std::vector<std::string> names;
  for (const FamilyDefaults& f : families()) names.emplace_back(f.name);
  return names;
}

bool knows_megatron(const std::string& family) {
  return std::any_of(families().begin(), families().end(), [&](const FamilyDefaults& f) { return family == f.name; });
}

MegatronConfig::MegatronConfig(const std::string& family, const Config& c, const MegatronSettings& s) {
  const FamilyDefaults& d = defaults_of(family);
  layers = c.size({"num_layers", "encoder_num_layers", "num_hidden_layers", "n_layer"}, d.layers);
  hidden = c.size({"hidden_size", "n_embd"}, d.hidden);
  heads = c.size({"num_attention_heads", "n_head"}, d.heads);
  groups = c.size({"num_query_groups", "num_key_value_heads"}, d.groups > 0 ? d.groups : heads);
  channels = c.optional_integer({"kv_channels", "head_dim"}).value_or(d.head_dim > 0 ? d.head_dim : hidden / heads);
  ffn = c.optional_integer({"ffn_hidden_size", "intermediate_size", "n_inner"}).value_or(d.ffn > 0 ? d.ffn : 4 * hidden);
  positions = c.size({"max_position_embeddings", "n_positions"}, family == "gpt2" ? 1024 : 2048);
  gated = c.flag({"swiglu"}, d.gated);
  rope = c.text({"position_embedding_type"}, d.rope ? "rope" : "learned_absolute") == "rope";
  rms = c.text({"normalization"}, d.rms ? "RMSNorm" : "LayerNorm") == "RMSNorm";
  tied = c.flag({"tie_word_embeddings"}, d.tied);
  bias = c.flag({"add_bias_linear"}, d.bias);
  qkv_bias = c.flag({"add_qkv_bias", "attention_bias"}, bias || d.qkv_bias);
  qk_norm = c.flag({"qk_layernorm"}, d.qk_norm);
  hidden_dropout = c.number({"hidden_dropout"}, 0);
  attention_dropout = c.number({"attention_dropout"}, 0);
  vocab = c.size({"vocab_size"}, d.vocab);
  if (const auto padded = c.optional_integer({"padded_vocab_size"}))
    vocab = *padded;
  else
    vocab = round_up(vocab, 128 * s.tensor);  // make-vocab-size-divisible-by

  experts = c.integer({"num_moe_experts", "num_experts", "num_local_experts", "n_routed_experts"}, d.experts);
  if (experts > 0) {
    top_k = c.size({"moe_router_topk", "num_experts_per_tok"}, d.top_k);
    expert_ffn = c.optional_integer({"moe_ffn_hidden_size", "moe_intermediate_size"}).value_or(d.expert_ffn > 0 ? d.expert_ffn : ffn);
    shared_ffn = c.integer({"moe_shared_expert_intermediate_size", "shared_expert_intermediate_size"}, 0);
    if (const int64_t shared = c.integer({"n_shared_experts"}, d.shared_experts); shared > 0) shared_ffn = shared * expert_ffn;
    grouped = c.flag({"moe_grouped_gemm"}, true);
    gathers_all = c.text({"moe_token_dispatcher_type"}, "alltoall") == "allgather";
    capacity = c.number({"moe_expert_capacity_factor"}, 0);
    imbalance = c.number({"moe_load_imbalance"}, 1);
    if (!(imbalance >= 1) || imbalance > static_cast<double>(s.expert))
      throw Error(fmt::format("[megatron] moe_load_imbalance {} is not between 1 and {}", imbalance, s.expert),
                  "it is how many times its equal share the busiest of the expert ranks gets; all tokens at most");
    if (capacity > 0 && imbalance > 1)
      throw Error("[megatron] moe_load_imbalance with moe_expert_capacity_factor",
                  "a capacity is the same for every expert: leave one out");
    is_moe = moe_layers(c, layers, d.dense_layers);
    if (top_k > experts)
      throw Error(fmt::format("[megatron] {} experts a token of {}", top_k, experts), "moe_router_topk is at most the number of experts");
    divides("experts", experts, "expert", s.expert);
    divides("columns of an expert", expert_ffn, "expert_tensor", s.expert_tensor_size());
  } else if (s.expert > 1) {
    throw Error(fmt::format("[megatron] expert {}: {} has no experts", s.expert, family), "leave expert out");
  }
  const std::pair<const char*, MegatronKind> kinds[]{{"gpt", MegatronKind::gpt}, {"bert", MegatronKind::bert}, {"t5", MegatronKind::t5}};
  const std::string wanted = family == "megatron" ? c.text({"model_type"}, "gpt") : "gpt";
  const auto found = std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& k) { return wanted == k.first; });
  if (found == std::end(kinds))
    throw Error(fmt::format("[megatron] model_type '{}' is not known", printable(wanted, 40)), "known: gpt, bert, t5");
  kind = found->second;
  if (kind != MegatronKind::gpt) check_encoder(s, experts, wanted);
  if (kind == MegatronKind::t5) {
    decoder_layers = c.size({"decoder_num_layers"}, layers);
    decoder_tokens = c.size({"decoder_seq_length"}, 128);
  }
  kv_rank = c.integer({"kv_lora_rank"}, d.kv_rank);
  if (latent()) {
    q_rank = c.is_null("q_lora_rank") ? 0 : c.integer({"q_lora_rank"}, d.q_rank);
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
                               : "say how many each has: layers=" + split_text(layers, parts));
  }
}

}  // namespace plimsoll
