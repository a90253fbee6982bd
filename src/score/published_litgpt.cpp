#include "score/published_litgpt.h"

#include <nlohmann/json.hpp>

#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

std::string text_of(const Json& j, const char* key) { return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : ""; }
bool flag_of(const Json& j, const char* key) { return j.contains(key) && j[key] == true; }

// The tables of resources were measured at a commit of October 2023, those of the config hub from April to September 2024.
bool is_of_2023(const Json& row) { return text_of(row.at("software"), "commit").find("8641822") != std::string::npos; }

// Empty for a feed-forward that litgpt has not.
std::string mlp_class(const Json& sizes) {
  const std::string kind = text_of(sizes, "ffn_kind");
  if (kind == "swiglu") return "LLaMAMLP";
  if (kind == "geglu") return "GemmaMLP";
  return kind == "gelu" || kind == "gelu_tanh" ? "GptNeoxMLP" : "";
}

}  // namespace

bool is_litgpt_row(const Json& row) { return lower(text_of(row.at("software"), "framework")).find("litgpt") != std::string::npos; }

std::string litgpt_config(const Json& row, Json& config) {
  const Json& sizes = row.at("model").at("config");
  if (sizes.contains("moe")) return "model: litgpt's experts";
  const std::string mlp = mlp_class(sizes);
  if (mlp.empty()) return "model: litgpt's feed-forward " + text_of(sizes, "ffn_kind");
  const int64_t norms = sizes.value("norms_per_layer", 2);
  config = {{"litgpt_version", is_of_2023(row) ? "0.1" : "0.4"},
            {"block_size", row.at("train").value("seq_len", 2048)},  // fit() makes the tables as long as the longest sample
            {"n_layer", sizes.at("num_layers")},
            {"n_embd", sizes.at("hidden_size")},
            {"n_head", sizes.at("num_heads")},
            {"n_query_groups", sizes.value("num_kv_heads", sizes.at("num_heads").get<int64_t>())},
            {"intermediate_size", sizes.at("ffn_size")},
            {"padded_vocab_size", sizes.at("vocab_size")},
            {"rotary_percentage", sizes.value("rotary_pct", 1.0)},
            {"parallel_residual", flag_of(sizes, "parallel_residual")},
            {"shared_attention_norm", flag_of(sizes, "shared_attention_norm") || norms == 1},
            {"post_attention_norm", norms == 4},
            {"post_mlp_norm", norms == 4},
            {"bias", flag_of(sizes, "mlp_bias")},
            {"attn_bias", flag_of(sizes, "qkv_bias")},
            {"lm_head_bias", flag_of(sizes, "lm_head_bias")},
            {"scale_embeddings", flag_of(sizes, "scale_embeddings")},
            {"norm_class_name", text_of(sizes, "norm") == "rmsnorm" ? "RMSNorm" : "LayerNorm"},
            {"mlp_class_name", mlp}};
  if (sizes.contains("head_dim")) config["head_size"] = sizes["head_dim"];
  if (sizes.contains("attn_logit_softcap")) config["attention_logit_softcapping"] = sizes["attn_logit_softcap"];
  if (sizes.contains("final_logit_softcap")) config["final_logit_softcapping"] = sizes["final_logit_softcap"];
  if (sizes.contains("sliding_window") && norms == 4) config["sliding_window_size"] = sizes["sliding_window"];  // of Gemma 2 alone
  return "";
}

Json litgpt_targets(const Json& row) {
  Json out = Json::array();
  for (const Json& target : row.at("train").at("lora").at("targets")) {
    if (target != "mlp.*") {
      out.push_back(target);
      continue;
    }
    const bool gated = mlp_class(row.at("model").at("config")) != "GptNeoxMLP";
    for (const char* name : {gated ? "mlp.fc_1" : "mlp.fc", gated ? "mlp.fc_2" : "mlp.proj", "mlp.proj"})
      if (out.empty() || out.back() != name) out.push_back(name);
  }
  return out;
}

void finish_litgpt_job(const Json& row, Job& job) {
  job.autocast = false;           // bf16-true: Fabric casts nothing inside
  if (job.tuning.quantization) {  // finetune/lora.py takes bitsandbytes' optimizer then
    job.optimizer.name = "PagedAdamW";
    job.optimizer.args = Config();
  }
  if (text_of(row.at("software"), "torch").empty()) job.platform.torch = {2, 3};  // of that summer
}

}  // namespace plimsoll
