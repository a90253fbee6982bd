// DeepSpeed's ZeRO: optimizer states, from stage 2 on gradients, and with stage 3 parameters, of which a rank has only its part. Plain
// data; step/deepspeed.h acts on it. Sizes are in elements, as in DeepSpeed's own configuration.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "job/wire_type.h"

namespace plimsoll {

// Defaults: deepspeed/runtime/zero/config.py of 0.19.
struct DeepSpeedSettings {
  int64_t world = 1;
  int64_t rank = 0;
  int64_t stage = 2;
  int64_t reduce_bucket = 500'000'000;  // reduce_bucket_size: a buffer of that many, whatever the model's size
  bool contiguous_gradients = true;
  bool overlap_comm = false;  // a second bucket; with stage 3, where it is the default, streams of their own
  bool reduce_scatter = true;
  bool round_robin_gradients = false;
  bool offload_optimizer = false;           // states, fp32 weights and the update on the host
  WireType gradient_dtype = WireType::own;  // data_types.grad_accum_dtype
  // Of stage 3.
  bool offload_param = false;                              // parts of the parameters on the host
  int64_t sub_group = 1'000'000'000;                       // sub_group_size: what is updated at once
  int64_t persistence_threshold = 100'000;                 // stage3_param_persistence_threshold: smaller parameters stay whole
  int64_t model_persistence_threshold = int64_t{1} << 48;  // of all that stay whole
  int64_t prefetch_bucket = 50'000'000;                    // stage3_prefetch_bucket_size
  int64_t max_live_parameters = 1'000'000'000;             // stage3_max_live_parameters
  int64_t max_reuse_distance = 1'000'000'000;              // stage3_max_reuse_distance: what is used again within it is not let go of
};

// Keys of DeepSpeed's "zero_optimization" and ours, but for those that say where something is offloaded to. Those of stage 3 come last.
struct DeepSpeedKey {
  const char *theirs, *ours;
  bool of_stage_3 = false;
};
const std::vector<DeepSpeedKey>& deepspeed_keys();

// `value` is a mapping, or text like "world=8,stage=2".
DeepSpeedSettings parse_deepspeed(const nlohmann::json& value);
nlohmann::ordered_json to_json(const DeepSpeedSettings& d);
std::string to_string(const DeepSpeedSettings& d);  // "DeepSpeed ZeRO-2, rank 0 of 8"

}  // namespace plimsoll
