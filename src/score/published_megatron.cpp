#include "score/published_megatron.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

std::string text(const Json& j, const char* key) { return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : ""; }
bool flag(const Json& j, const char* key) { return j.contains(key) && j[key] == true; }
int64_t number(const Json& j, const char* key, int64_t fallback) {
  return j.contains(key) && j[key].is_number_integer() ? j[key].get<int64_t>() : fallback;
}

Json config_of(const Json& sizes) {
  Json c{{"num_layers", sizes.contains("encoder_layers") ? sizes["encoder_layers"] : sizes.at("num_layers")},
         {"hidden_size", sizes.at("hidden_size")},
         {"num_attention_heads", sizes.at("num_heads")},
         {"num_query_groups", number(sizes, "num_kv_heads", sizes.at("num_heads").get<int64_t>())},
         {"ffn_hidden_size", sizes.at("ffn_size")},
         {"swiglu", text(sizes, "ffn_kind") == "swiglu"},
         {"position_embedding_type", text(sizes, "position") == "learned" ? "learned_absolute" : "rope"},
         {"normalization", text(sizes, "norm") == "rmsnorm" ? "RMSNorm" : "LayerNorm"},
         {"tie_word_embeddings", flag(sizes, "tie_embeddings")},
         {"add_bias_linear", flag(sizes, "mlp_bias")},
         {"add_qkv_bias", flag(sizes, "qkv_bias")},
         {"hidden_dropout", sizes.value("hidden_dropout", 0.0)},
         {"attention_dropout", sizes.value("attention_dropout", 0.0)}};
  for (const auto& [theirs, ours] : {std::pair("head_dim", "kv_channels"), std::pair("vocab_size", "vocab_size"),
                                     std::pair("vocab_padded", "padded_vocab_size"), std::pair("max_position", "max_position_embeddings")})
    if (const int64_t n = number(sizes, theirs, 0); n > 0) c[ours] = n;
  if (sizes.contains("mla"))
    c.update(sizes["mla"]);
  else
    c["qk_layernorm"] = flag(sizes, "qk_norm");
  if (sizes.contains("moe")) {
    const Json& moe = sizes["moe"];
    c["num_moe_experts"] = moe.at("num_experts");
    c["moe_router_topk"] = moe.at("topk");
    c["moe_ffn_hidden_size"] = moe.at("expert_ffn");
    c["moe_shared_expert_intermediate_size"] = moe.value("shared_expert_ffn", 0);
    c["moe_layer_freq"] = moe.value("layer_freq", "1");
    c["moe_grouped_gemm"] = flag(moe, "grouped_gemm");
    c["moe_token_dispatcher_type"] = text(moe, "dispatcher");
    if (moe.contains("capacity_factor") && moe["capacity_factor"].is_number()) c["moe_expert_capacity_factor"] = moe["capacity_factor"];
  }
  return c;
}

std::string kind_of(const std::string& arch) {
  if (arch.rfind("decoder_transformer", 0) == 0) return "gpt";
  if (arch == "encoder_transformer") return "bert";
  return arch == "encoder_decoder_transformer" ? "t5" : "";
}

// "first=2,last=2,middle even"
Json uneven_layers(const std::string& text, int64_t layers, int64_t stages) {
  int first = 0, last = 0;
  if (std::sscanf(text.c_str(), "first=%d,last=%d", &first, &last) != 2 || stages < 3)
    throw Error("parallel: layout of the pipeline '" + text + "'");
  Json out = Json::array({first});
  for (int64_t i = 2; i < stages; ++i) out.push_back((layers - first - last) / (stages - 2));
  out.push_back(last);
  return out;
}

Json layout_of(const Json& row) {
  const Json &p = row.at("parallel"), &train = row.at("train");
  const Json extra = train.contains("extra") && train["extra"].is_object() ? train["extra"] : Json::object();
  Json m{{"world", number(p, "world", 1)},
         {"tensor", number(p, "tp", 1)},
         {"pipeline", number(p, "pp", 1)},
         {"virtual_stages", std::max<int64_t>(1, number(p, "vpp", 1))},
         {"context", number(p, "cp", 1)},
         {"expert", number(p, "ep", 1)},
         {"expert_tensor", number(p, "etp", number(p, "tp", 1))},
         {"sequence", flag(p, "sequence_parallel")},
         {"distributed_optimizer", flag(p, "distributed_optimizer")},
         {"overlap", flag(extra, "overlap_grad_reduce")},
         {"fused_gradients", flag(extra, "gradient_accumulation_fusion")},
         {"fused_loss", text(train, "loss").find("fused_te") != std::string::npos},
         {"fused_residual", !extra.contains("bias_dropout_fusion") || extra["bias_dropout_fusion"] == true},
         {"local", text(extra, "transformer_impl") == "local"},
         {"all_to_all", text(extra, "cp_comm_type") == "a2a"},
         {"attention_mask", flag(extra, "attention_mask_created")}};
  const std::string layout = text(p, "pp_layout");
  if (!layout.empty()) m["layers"] = uneven_layers(layout, number(row.at("model").at("config"), "num_layers", 0), number(p, "pp", 1));
  const std::string attention = text(train, "attention");
  m["attention"] = attention.find("unfused") != std::string::npos ? "unfused" : attention.rfind("te_flash", 0) == 0 ? "flash" : "fused";
  const std::string rank = text(row.at("measured"), "rank");
  if (rank.rfind("last", 0) == 0) m["stage"] = number(p, "pp", 1) - 1;
  if (rank.rfind("first", 0) == 0) m["stage"] = 0;
  return m;
}

}  // namespace

bool is_megatron_row(const Json& row) { return lower(text(row.at("software"), "framework")).find("megatron") != std::string::npos; }

std::string read_megatron_row(const Json& row, Job& job) {
  const Json& train = row.at("train");
  const std::string arch = text(row.at("model"), "arch");
  const std::string kind = kind_of(arch);
  if (kind.empty()) return "model: Megatron's " + arch;
  if (text(train.at("precision"), "weights") != "bf16")
    return "precision: Megatron with weights in " + text(train.at("precision"), "weights");
  if (row.at("parallel").contains("fsdp") && row["parallel"]["fsdp"].is_object()) return "parallel: Megatron's FSDP";
  const std::string recompute = text(train, "checkpointing");
  if (recompute != "none" && recompute.rfind("full", 0) != 0) return "checkpointing: " + recompute;
  const Config c(row.at("id").get<std::string>(), train);
  job.family = "megatron";
  const Json& sizes = row.at("model").at("config");
  Json config = config_of(sizes);
  config["model_type"] = kind;
  if (kind == "t5") {
    config["decoder_num_layers"] = sizes.at("decoder_layers");
    config["decoder_seq_length"] = train.at("decoder_seq_len");
  }
  job.config = Config(row.at("id").get<std::string>() + ": config", config);
  job.precision = Precision::bf16;
  job.batch = c.size({"batch_per_gpu"}, 1);
  job.seq = c.size({"seq_len"}, 1);
  job.accumulation = c.size({"grad_accum"}, 1);
  job.checkpointing.on = recompute != "none";
  job.program.megatron = parse_megatron(layout_of(row));
  return "";
}

}  // namespace plimsoll
