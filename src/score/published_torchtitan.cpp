#include "score/published_torchtitan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

std::string titan_text(const Json& j, const char* key) { return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : ""; }

int64_t titan_degree(const Json& parallel, const char* key) {
  return parallel.contains(key) && parallel[key].is_number_integer() ? parallel[key].get<int64_t>() : 1;
}

// "chunked_cross_entropy (8 chunks of logits, eager)"
int64_t chunks_of(const std::string& loss) {
  int chunks = 1;
  const size_t at = loss.find("chunked_cross_entropy (");
  return at == std::string::npos || std::sscanf(loss.c_str() + at, "chunked_cross_entropy (%d", &chunks) != 1 ? 1 : chunks;
}

Json settings_of(const Json& row) {
  const Json &parallel = row.at("parallel"), &train = row.at("train");
  const Json extra = train.contains("extra") && train["extra"].is_object() ? train["extra"] : Json::object();
  Json t{{"world", titan_degree(parallel, "world")},
         {"tensor", titan_degree(parallel, "tp")},
         {"pipeline", titan_degree(parallel, "pp")},
         {"context", titan_degree(parallel, "cp")},
         {"loss_parallel", extra.value("loss_parallel", Json(true)) == true},
         {"async_tensor", extra.value("async_tp", Json(false)) == true},
         {"float8", train.contains("quantization") && !train["quantization"].is_null()},
         {"loss_chunks", chunks_of(titan_text(train, "loss"))},
         {"version", titan_text(row.at("software"), "date").substr(0, 7)}};
  const std::string schedule = lower(titan_text(parallel, "pp_schedule"));
  if (schedule.find("gpipe") != std::string::npos) t["schedule"] = "gpipe";
  if (schedule.find("interleaved") != std::string::npos) {
    t["schedule"] = "interleaved";
    t["virtual_stages"] = std::max<int64_t>(2, titan_degree(parallel, "vpp"));
  }
  const Json reshard = parallel.value("reshard_after_forward", Json());
  if (reshard.is_boolean()) t["reshard"] = reshard.get<bool>() ? "always" : "never";
  return t;
}

Json torchtitan_config(const Json& sizes) {
  Json config{{"num_hidden_layers", sizes.at("num_layers")},     {"hidden_size", sizes.at("hidden_size")},
              {"intermediate_size", sizes.at("ffn_size")},       {"num_attention_heads", sizes.at("num_heads")},
              {"num_key_value_heads", sizes.at("num_kv_heads")}, {"vocab_size", sizes.at("vocab_size")}};
  if (sizes.contains("head_dim") && sizes["head_dim"].is_number_integer()) config["head_dim"] = sizes["head_dim"];
  return config;
}

// The release that the nightly builds of that month were after: PyTorch came out in 2024-04, -07, -10, 2025-01, -04, -08 and -10.
Version torch_of(Version month) {
  constexpr std::pair<Version, Version> kReleases[]{{{2025, 10}, {2, 9}}, {{2025, 8}, {2, 9}},  {{2025, 4}, {2, 7}},
                                                    {{2025, 1}, {2, 6}},  {{2024, 10}, {2, 5}}, {{2024, 7}, {2, 4}}};
  for (const auto& [since, torch] : kReleases)
    if (month >= since) return torch;
  return {2, 3};
}

Checkpointing checkpoints_of(const std::string& text) {
  if (text.rfind("full", 0) == 0) return parse_checkpointing(true);
  if (text.rfind("selective_op", 0) == 0) return parse_checkpointing({{"save", "torchtitan"}});
  return parse_checkpointing(false);
}

}  // namespace

bool is_torchtitan_row(const Json& row) {
  return lower(titan_text(row.at("software"), "framework")).find("torchtitan") != std::string::npos;
}

std::string read_torchtitan_row(const Json& row, Job& job) {
  const Json& train = row.at("train");
  const std::string checkpoints = titan_text(train, "checkpointing");
  if (checkpoints.rfind("selective", 0) == 0 && checkpoints.rfind("selective_op", 0) != 0) return "checkpointing: " + checkpoints;
  const Json& sizes = row.at("model").at("config");
  if (titan_text(row.at("model"), "arch") != "decoder_transformer") return "model: " + titan_text(row.at("model"), "arch");
  job.family = sizes.value("qk_norm", Json(false)) == true ? "qwen3" : "llama";
  job.config = Config(job.model + ": config", torchtitan_config(sizes));
  job.program.torchtitan = parse_torchtitan(settings_of(row));
  const TorchtitanSettings& t = *job.program.torchtitan;
  job.batch = train.at("batch_per_gpu").get<int64_t>();
  job.seq = train.at("seq_len").get<int64_t>();
  job.accumulation = train.value("grad_accum", Json(1)).is_number_integer() ? train["grad_accum"].get<int64_t>() : 1;
  job.precision = Precision::fp32;
  job.checkpointing = checkpoints_of(checkpoints);
  if (train.contains("grad_clip") && train["grad_clip"].is_number()) job.clip = train["grad_clip"].get<double>();
  job.optimizer.name = titan_text(train.at("optimizer"), "name") == "adam" ? "Adam" : "AdamW";
  if (train.at("optimizer").value("fused", Json(false)) == true) job.optimizer.args = Config("optimizer", {{"fused", true}});
  job.platform.torch = torch_of(t.version);
  if (t.expandable_segments()) job.alloc_conf = "expandable_segments:True";
  job.compile = train.contains("compile") && !train["compile"].is_null() && train["compile"] != false;
  return "";
}

}  // namespace plimsoll
