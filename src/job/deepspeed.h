// DeepSpeed's ZeRO stages 1, 2 and 3: which of optimizer states, gradients and parameters a rank has only its part of. Plain data;
// step/deepspeed.h acts on it. Sizes are in elements, as in DeepSpeed's own configuration.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "job/wire_type.h"

namespace plimsoll {

// Defaults: deepspeed/runtime/zero/config.py of 0.19.
struct DeepSpeedSettings {
  int64_t world = 1;
  int64_t rank = 0;
  int64_t stage = 2;
  int64_t reduce_bucket = 500'000'000;          // reduce_bucket_size: a buffer of that many, whatever the model's size
  int64_t prefetch_bucket = 50'000'000;         // stage3_prefetch_bucket_size
  int64_t persistence_threshold = 100'000;      // stage3_param_persistence_threshold: smaller parameters stay whole
  int64_t max_live_parameters = 1'000'000'000;  // stage3_max_live_parameters
  int64_t max_reuse_distance = 1'000'000'000;   // stage3_max_reuse_distance
  int64_t sub_group = 1'000'000'000;            // sub_group_size: updated at once
  bool contiguous_gradients = true;
  bool overlap_comm = false;  // a second bucket; DeepSpeed's default for stage 3
  bool reduce_scatter = true;
  bool round_robin_gradients = false;
  bool offload_optimizer = false;           // states, fp32 weights and the update on the host
  bool offload_parameters = false;          // shards of the parameters on the host, too; stage 3
  WireType gradient_dtype = WireType::own;  // data_types.grad_accum_dtype
};

// `value` is a mapping, or text like "world=8,stage=3".
DeepSpeedSettings parse_deepspeed(const nlohmann::json& value);
nlohmann::ordered_json to_json(const DeepSpeedSettings& d);
std::string to_string(const DeepSpeedSettings& d);  // "DeepSpeed ZeRO-2, rank 0 of 8"

}  // namespace plimsoll
