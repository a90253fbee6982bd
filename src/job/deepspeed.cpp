#include "job/deepspeed.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "job/processes.h"
#include "util/error.h"

namespace plimsoll {

namespace {

constexpr int64_t kLargestCount = int64_t{1} << 48;  // elements: more than any model has

int64_t count_of(const Config& c, const char* key, int64_t fallback, int64_t least) {
  const auto n = static_cast<double>(fallback);
  const double value = c.number({key}, n);  // files say 5e8
  if (!(value >= static_cast<double>(least) && value <= static_cast<double>(kLargestCount)))
    throw Error(fmt::format("[zero] {} {} is not between {} and {}", key, value, least, kLargestCount),
                fmt::format("it is a number of elements; DeepSpeed's default is {}", fallback));
  return static_cast<int64_t>(value);
}

int64_t stage_of(const Config& c) {
  const int64_t stage = c.integer({"stage"}, 2);
  if (stage < 1 || stage > 3)
    throw Error(fmt::format("[zero] stage {} is not known", stage),
                "1: states are sharded; 2: gradients, too; 3: parameters, too; without ZeRO take ddp");
  return stage;
}

void parse_stage_3(const Config& c, DeepSpeedSettings& d) {
  d.offload_param = c.flag({"offload_param"}, false);
  d.sub_group = count_of(c, "sub_group", d.sub_group, 1);
  d.persistence_threshold = count_of(c, "persistence_threshold", d.persistence_threshold, 0);
  d.model_persistence_threshold = count_of(c, "model_persistence_threshold", d.model_persistence_threshold, 0);
  d.prefetch_bucket = count_of(c, "prefetch_bucket", d.prefetch_bucket, 0);
  d.max_live_parameters = count_of(c, "max_live_parameters", d.max_live_parameters, 0);
  d.max_reuse_distance = count_of(c, "max_reuse_distance", d.max_reuse_distance, 0);
}

void refuse_stage_3(const Config& c, int64_t stage) {
  const auto refuse = [&](const char* key) {
    if (c.find({key}))
      throw Error(fmt::format("[zero] {} is of stage 3, and the stage is {}", key, stage), "set stage: 3, or leave it out");
  };
  refuse("offload_param");
  for (const DeepSpeedKey& key : deepspeed_keys())
    if (key.of_stage_3) refuse(key.ours);
}

}  // namespace

const std::vector<DeepSpeedKey>& deepspeed_keys() {
  static const std::vector<DeepSpeedKey> kKeys{{"reduce_bucket_size", "reduce_bucket"},
                                               {"contiguous_gradients", "contiguous_gradients"},
                                               {"overlap_comm", "overlap_comm"},
                                               {"reduce_scatter", "reduce_scatter"},
                                               {"round_robin_gradients", "round_robin_gradients"},
                                               {"sub_group_size", "sub_group", true},
                                               {"stage3_param_persistence_threshold", "persistence_threshold", true},
                                               {"stage3_model_persistence_threshold", "model_persistence_threshold", true},
                                               {"stage3_prefetch_bucket_size", "prefetch_bucket", true},
                                               {"stage3_max_live_parameters", "max_live_parameters", true},
                                               {"stage3_max_reuse_distance", "max_reuse_distance", true}};
  return kKeys;
}

DeepSpeedSettings parse_deepspeed(const nlohmann::json& value) {
  const Config c =
      process_fields(value, "zero",
                     {"world", "rank", "stage", "reduce_bucket", "contiguous_gradients", "overlap_comm", "reduce_scatter",
                      "round_robin_gradients", "offload_optimizer", "gradient_dtype", "offload_param", "sub_group", "persistence_threshold",
                      "model_persistence_threshold", "prefetch_bucket", "max_live_parameters", "max_reuse_distance"});
  DeepSpeedSettings d;
  d.world = world_of(c);
  d.rank = rank_of(c, d.world, "ranks count from 0");
  d.stage = stage_of(c);
  d.reduce_bucket = count_of(c, "reduce_bucket", d.reduce_bucket, 1);
  d.contiguous_gradients = c.flag({"contiguous_gradients"}, true);
  d.overlap_comm = c.flag({"overlap_comm"}, d.stage == 3);
  d.reduce_scatter = c.flag({"reduce_scatter"}, true);
  d.round_robin_gradients = c.flag({"round_robin_gradients"}, false);
  d.offload_optimizer = c.flag({"offload_optimizer"}, false);
  d.gradient_dtype = parse_wire_type(c, "gradient_dtype", WireType::own);
  if (d.stage == 3)
    parse_stage_3(c, d);
  else
    refuse_stage_3(c, d.stage);
  return d;
}

nlohmann::ordered_json to_json(const DeepSpeedSettings& d) {
  nlohmann::ordered_json j{{"world", d.world}, {"rank", d.rank}, {"stage", d.stage}, {"reduce_bucket", d.reduce_bucket}};
  j["contiguous_gradients"] = d.contiguous_gradients;
  j["overlap_comm"] = d.overlap_comm;
  j["reduce_scatter"] = d.reduce_scatter;
  j["round_robin_gradients"] = d.round_robin_gradients;
  j["offload_optimizer"] = d.offload_optimizer;
  j["gradient_dtype"] = to_string(d.gradient_dtype);
  if (d.stage < 3) return j;
  j["offload_param"] = d.offload_param;
  j["sub_group"] = d.sub_group;
  j["persistence_threshold"] = d.persistence_threshold;
  j["model_persistence_threshold"] = d.model_persistence_threshold;
  j["prefetch_bucket"] = d.prefetch_bucket;
  j["max_live_parameters"] = d.max_live_parameters;
  j["max_reuse_distance"] = d.max_reuse_distance;
  return j;
}

std::string to_string(const DeepSpeedSettings& d) {
  const char* offload = d.offload_optimizer || d.offload_param ? " with offload" : "";
  return fmt::format("DeepSpeed ZeRO-{}{}, rank {} of {}", d.stage, offload, d.rank, d.world);
}

}  // namespace plimsoll
