// DeepSpeed's ZeRO stages 1 and 2: optimizer states, and with stage 2 gradients, of which a rank has only its part. Plain data;
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
  int64_t reduce_bucket = 500'000'000;  // reduce_bucket_size: a buffer of that many, whatever the model's size
  bool contiguous_gradients = true;
  bool overlap_comm = false;  // a second bucket
  bool reduce_scatter = true;
  bool round_robin_gradients = false;
  bool offload_optimizer = false;           // states, fp32 weights and the update on the host
  WireType gradient_dtype = WireType::own;  // data_types.grad_accum_dtype
};

// `value` is a mapping, or text like "world=8,stage=2".
DeepSpeedSettings parse_deepspeed(const nlohmann::json& value);
nlohmann::ordered_json to_json(const DeepSpeedSettings& d);
std::string to_string(const DeepSpeedSettings& d);  // "DeepSpeed ZeRO-2, rank 0 of 8"

}  // namespace plimsoll
