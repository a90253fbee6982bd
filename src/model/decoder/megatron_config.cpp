#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "job/settings.h"
#include "model/decoder/megatron.h"
#include "model/registry.h"
#include "util/text.h"

namespace plimsoll {

namespace {

const MegatronDefaults& defaults_of(const std::string& name) {
  const Family* family = find_family(name);
  if (family && family->programs.megatron) return *family->programs.megatron;
  throw Error(fmt::format("[megatron] {} is not built by Megatron here", name), "known: " + join(megatron_families(), ", "));
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
  return families_where([](const Family& f) { return f.programs.megatron.has_value(); });
}

bool knows_megatron(const std::string& name) {
  const Family* family = find_family(name);
  return family && family->programs.megatron;
}

MegatronConfig::MegatronConfig(const std::string& family, const Config& c, const MegatronSettings& s) {
  const MegatronDefaults& d = defaults_of(family);
  layers = c.size({"num_layers", "encoder_num_layers", "num_hidden_layers", "n_layer"}, d.layers);
  hidden = c.size({"hidden_size", "n_embd"}, d.hidden);
  heads = c.size({"num_attention_heads", "n_head"}, d.heads);
  groups = c.size({"num_query_groups", "num_key_value_heads"}, d.groups > 0 ? d.groups : heads);
  channels = c.optional_integer({"kv_channels", "head_dim"}).value_or(d.head_dim > 0 ? d.head_dim : hidden / heads);
  ffn = c.optional_integer({"ffn_hidden_size", "intermediate_size", "n_inner"}).value_or(d.ffn > 0 ? d.ffn : 4 * hidden);
  positions = c.size({"max_position_embeddings", "n_positions"}, d.positions);
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
