#include "job/fsdp1.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "job/processes.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr std::array kStrategies{ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op, ShardingStrategy::no_shard,
                                 ShardingStrategy::hybrid_shard, ShardingStrategy::hybrid_shard_zero2};

bool is_hybrid(ShardingStrategy s) { return s == ShardingStrategy::hybrid_shard || s == ShardingStrategy::hybrid_shard_zero2; }

BackwardPrefetch parse_prefetch(const Config& c) {
  const nlohmann::json* value = c.find({"prefetch"});
  if (value && (value->is_null() || *value == false)) return BackwardPrefetch::none;
  const std::string text = c.text({"prefetch"}, "pre");
  for (BackwardPrefetch p : {BackwardPrefetch::none, BackwardPrefetch::pre, BackwardPrefetch::post})
    if (text == to_string(p)) return p;
  throw Error(fmt::format("[fsdp1] prefetch '{}' is not known", text), "known: pre, post, none");
}

void check_replicas(const Fsdp1Settings& f) {
  if (is_hybrid(f.strategy) || f.replicas == 1) return;
  throw Error(fmt::format("[fsdp1] replicas {} with strategy {}: there is one copy of the weights, or each process has one", f.replicas,
                          to_string(f.strategy)),
              "take strategy hybrid_shard or hybrid_shard_zero2, or leave replicas out");
}

}  // namespace

const char* to_string(ShardingStrategy s) {
  switch (s) {
    case ShardingStrategy::full_shard: return "full_shard";
    case ShardingStrategy::shard_grad_op: return "shard_grad_op";
    case ShardingStrategy::no_shard: return "no_shard";
    case ShardingStrategy::hybrid_shard: return "hybrid_shard";
    case ShardingStrategy::hybrid_shard_zero2: return "hybrid_shard_zero2";
  }
  return "";
}

const char* to_string(BackwardPrefetch p) { return p == BackwardPrefetch::pre ? "pre" : p == BackwardPrefetch::post ? "post" : "none"; }

ShardingStrategy parse_sharding_strategy(const std::string& text) {
  std::string name = lower(text);
  if (name.starts_with('_')) name.erase(0, 1);
  for (size_t i = 0; i < kStrategies.size(); ++i)
    if (name == to_string(kStrategies[i]) || name == std::to_string(i + 1)) return kStrategies[i];
  throw Error(fmt::format("[fsdp1] strategy '{}' is not known", text),
              "known: full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2");
}

Fsdp1Settings parse_fsdp1(const nlohmann::json& value) {
  const Config c = process_fields(value, "fsdp1",
                                  {"world", "rank", "replicas", "strategy", "param_dtype", "reduce_dtype", "prefetch", "forward_prefetch",
                                   "original_parameters", "offload", "no_sync", "wrap_trained_layers"});
  Fsdp1Settings f;
  f.world = world_of(c);
  f.replicas = replicas_of(c, f.world);
  const nlohmann::json* strategy = c.find({"strategy"});
  const bool number = strategy && strategy->is_number_integer();
  f.strategy = parse_sharding_strategy(number ? strategy->dump() : c.text({"strategy"}, "full_shard"));
  check_replicas(f);
  f.rank = rank_of(c, f.shards(), "ranks count from 0 among those that share one copy of the weights");
  f.param_dtype = parse_wire_type(c, "param_dtype", WireType::own);
  f.reduce_dtype = parse_wire_type(c, "reduce_dtype", WireType::own);
  f.prefetch = parse_prefetch(c);
  f.forward_prefetch = c.flag({"forward_prefetch"}, false);
  f.original_parameters = c.flag({"original_parameters"}, false);
  f.offload = c.flag({"offload"}, false);
  f.no_sync = c.flag({"no_sync"}, false);
  f.wrap_trained_layers = c.flag({"wrap_trained_layers"}, true);
  return f;
}

nlohmann::ordered_json to_json(const Fsdp1Settings& f) {
  return {{"world", f.world},
          {"rank", f.rank},
          {"replicas", f.replicas},
          {"strategy", to_string(f.strategy)},
          {"param_dtype", to_string(f.param_dtype)},
          {"reduce_dtype", to_string(f.reduce_dtype)},
          {"prefetch", to_string(f.prefetch)},
          {"forward_prefetch", f.forward_prefetch},
          {"original_parameters", f.original_parameters},
          {"offload", f.offload},
          {"no_sync", f.no_sync},
          {"wrap_trained_layers", f.wrap_trained_layers}};
}

std::string to_string(const Fsdp1Settings& f) {
  const std::string kind = fmt::format("FSDP1 {}{}", to_string(f.strategy), f.offload ? " with offload" : "");
  if (!f.sharded()) return fmt::format("{} on {}", kind, f.world);
  if (f.replicas > 1) return fmt::format("{}, {} copies of {} shards", kind, f.replicas, f.shards());
  return fmt::format("{}, rank {} of {}", kind, f.rank, f.world);
}

}  // namespace plimsoll
