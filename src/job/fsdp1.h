// FullyShardedDataParallel (FSDP1): each block, and the model, keeps its parameters in one flat tensor that is sharded. Plain data;
// step/fsdp1.h acts on it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "job/wire_type.h"

namespace plimsoll {

// ShardingStrategy. Hybrid strategies shard within groups and keep a copy of the weights in each.
enum class ShardingStrategy : uint8_t { full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2 };
const char* to_string(ShardingStrategy s);  // "full_shard"
// Names in any case, with or without a leading underscore, and the numbers 1 to 5 of accelerate's files.
ShardingStrategy parse_sharding_strategy(const std::string& text);

enum class BackwardPrefetch : uint8_t { none, pre, post };
const char* to_string(BackwardPrefetch p);

struct Fsdp1Settings {
  int64_t world = 1;     // processes in all
  int64_t rank = 0;      // among those that share a copy of the weights
  int64_t replicas = 1;  // copies of the weights, of hybrid strategies
  ShardingStrategy strategy = ShardingStrategy::full_shard;
  WireType param_dtype = WireType::own;  // MixedPrecision
  WireType reduce_dtype = WireType::own;
  BackwardPrefetch prefetch = BackwardPrefetch::pre;
  bool forward_prefetch = false;
  bool original_parameters = false;  // use_orig_params: the optimizer sees parts of the model's parameters, not flat ones
  bool offload = false;              // CPUOffload: shards, gradients and the update are on the host
  bool no_sync = false;              // gradients of all micro-steps but the last stay whole
  bool wrap_trained_layers = true;   // PEFT's policy: each layer of an adapter is a unit of its own

  int64_t shards() const { return strategy == ShardingStrategy::no_shard ? 1 : world / replicas; }
  bool sharded() const { return shards() > 1; }  // of one process nothing is: FSDP takes NO_SHARD
  bool reshards() const { return strategy == ShardingStrategy::full_shard || strategy == ShardingStrategy::hybrid_shard; }
};

// `value` is a mapping, or text like "world=8,strategy=shard_grad_op".
Fsdp1Settings parse_fsdp1(const nlohmann::json& value);
nlohmann::ordered_json to_json(const Fsdp1Settings& f);
std::string to_string(const Fsdp1Settings& f);  // "FSDP1 full_shard, rank 0 of 8"

}  // namespace plimsoll
