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

ShardingStrategy strategy_of(const Config& c) {
  const nlohmann::json* strategy = c.find({"strategy"});
  const bool number = strategy && strategy->is_number_integer();
  return parse_sharding_strategy(number ? strategy->dump() : c.text({"strategy"}, "full_shard"));
}

const Mapping<Fsdp1Settings>& fsdp1_mapping() {
  using S = Fsdp1Settings;
  static const Mapping<S> kMapping{
      "fsdp1",
      process_example("fsdp1"),
      {field::world<S>(),
       field::replicas<S>(),
       {"strategy",
        [](S& f, const Config& c) {
          f.strategy = strategy_of(c);
          check_replicas(f);
        },
        [](const S& f) { return to_string(f.strategy); }},
       field::rank<S>([](const S& f) { return f.shards(); }, "ranks count from 0 among those that share one copy of the weights"),
       field::wire_type("param_dtype", &S::param_dtype),
       field::wire_type("reduce_dtype", &S::reduce_dtype),
       {"prefetch", [](S& f, const Config& c) { f.prefetch = parse_prefetch(c); }, [](const S& f) { return to_string(f.prefetch); }},
       field::flag("forward_prefetch", &S::forward_prefetch),
       field::flag("original_parameters", &S::original_parameters),
       field::flag("offload", &S::offload),
       field::flag("no_sync", &S::no_sync),
       field::flag("wrap_trained_layers", &S::wrap_trained_layers)}};
  return kMapping;
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

Fsdp1Settings parse_fsdp1(const nlohmann::json& value) { return fsdp1_mapping().read(value); }
nlohmann::ordered_json to_json(const Fsdp1Settings& f) { return fsdp1_mapping().print(f); }

std::string to_string(const Fsdp1Settings& f) {
  const std::string kind = fmt::format("FSDP1 {}{}", to_string(f.strategy), f.offload ? " with offload" : "");
  if (!f.sharded()) return fmt::format("{} on {}", kind, f.world);
  if (f.replicas > 1) return fmt::format("{}, {} copies of {} shards", kind, f.replicas, f.shards());
  return fmt::format("{}, rank {} of {}", kind, f.rank, f.world);
}

}  // namespace plimsoll
