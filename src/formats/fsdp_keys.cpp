#include "formats/fsdp_keys.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "job/distribution.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

// A key of the section, under either of its names.
class FsdpKeys {
 public:
  FsdpKeys(Reader& r, std::string section) : reader_(r), section_(std::move(section)) {}

  std::string path(const char* key) {
    const std::string plain = section_ + "." + key, prefixed = section_ + ".fsdp_" + key;
    return reader_.has(prefixed) ? prefixed : plain;
  }
  bool has(const char* key) { return reader_.has(path(key)); }
  bool flag(const char* key, bool fallback) { return reader_.flag(path(key), fallback); }
  std::string word(const char* key, const std::string& fallback) {  // numbers, too
    const Json* value = reader_.find(path(key));
    if (!value) return fallback;
    return lower(value->is_string() ? value->get<std::string>() : value->dump());
  }

 private:
  Reader& reader_;
  std::string section_;
};

bool says(const std::string& words, const char* word) {
  std::istringstream in(lower(words));
  for (std::string w; in >> w;)
    if (w == word) return true;
  return false;
}

// accelerate's plugin, set_mixed_precision: weights, gradients and buffers in the type of the mixed precision.
const char* wire_type(const Job& job) {
  if (!job.origin.contains("precision")) return "own";
  return job.precision == Precision::amp ? "bf16" : job.precision == Precision::amp_fp16 ? "fp16" : "own";
}

std::string strategy_of(FsdpKeys& keys, const std::string& words) {
  for (const char* name : {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard_zero2", "hybrid_shard"})
    if (says(words, name)) return name;
  return keys.word("sharding_strategy", "full_shard");
}

std::string prefetch_of(FsdpKeys& keys) {
  const std::string text = keys.word("backward_prefetch", "backward_pre");
  return text == "backward_post" ? "post" : text == "no_prefetch" || text == "none" ? "none" : "pre";
}

Json version_1(Reader& r, FsdpKeys& keys, const std::string& words, int64_t world) {
  const ShardingStrategy strategy = parse_sharding_strategy(strategy_of(keys, words));
  Json f{{"world", world},
         {"strategy", to_string(strategy)},
         {"param_dtype", wire_type(r.job)},
         {"reduce_dtype", wire_type(r.job)},
         {"prefetch", prefetch_of(keys)},
         {"forward_prefetch", keys.flag("forward_prefetch", false)},
         {"original_parameters", keys.flag("use_orig_params", true)},
         {"offload", says(words, "offload") || keys.flag("offload_params", false)}};
  const bool hybrid = strategy == ShardingStrategy::hybrid_shard || strategy == ShardingStrategy::hybrid_shard_zero2;
  const int64_t here = r.job.host.ranks_per_host;
  if (hybrid && here > 0 && world % here == 0) f["replicas"] = world / here;  // shards within a node
  return f;
}

Json version_2(Reader& r, FsdpKeys& keys, std::string_view path, int64_t world) {
  if (keys.flag("offload_params", false))
    r.finding(Effect::unknown, path, "FSDP2's offload is not simulated: shards and states are on the device in the answer");
  return {{"world", world},
          {"reshard", keys.flag("reshard_after_forward", true)},
          {"param_dtype", wire_type(r.job)},
          {"reduce_dtype", wire_type(r.job)}};
}

}  // namespace

void read_fsdp_keys(Reader& r, std::string_view path, const std::string& section, const std::string& words) {
  FsdpKeys keys(r, section);
  const int64_t world = world_size(r.job);
  if (world == 1) {
    r.finding(Effect::partial, path, "with one process nothing is sharded; if there are more, say so: --fsdp1 world=N or --fsdp world=N");
    return;
  }
  const std::string version = keys.word("version", "1");
  if (version != "1" && version != "2")
    throw Error(fmt::format("[{}] FSDP version {} is not known", r.origin(path), printable(version, 20)), "known: 1, 2");
  const Json settings = version == "2" ? version_2(r, keys, path, world) : version_1(r, keys, words, world);
  apply_setting(r.job, "ddp", false, r.origin(path));
  r.set(version == "2" ? "fsdp" : "fsdp1", settings, path);
  if (keys.flag("activation_checkpointing", false)) r.set("checkpointing", true, path);
}

}  // namespace plimsoll
