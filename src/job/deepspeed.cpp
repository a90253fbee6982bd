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
  if (stage == 3) throw Error("[zero] stage 3 is not simulated", "fsdp1 with strategy full_shard shards the same; or stage: 2");
  if (stage < 1 || stage > 3)
    throw Error(fmt::format("[zero] stage {} is not known", stage), "1: states are sharded; 2: gradients, too; without ZeRO take ddp");
  return stage;
}

}  // namespace

DeepSpeedSettings parse_deepspeed(const nlohmann::json& value) {
  const Config c = process_fields(value, "zero",
                                  {"world", "rank", "stage", "reduce_bucket", "contiguous_gradients", "overlap_comm", "reduce_scatter",
                                   "round_robin_gradients", "offload_optimizer", "gradient_dtype"});
  DeepSpeedSettings d;
  d.world = world_of(c);
  d.rank = rank_of(c, d.world, "ranks count from 0");
  d.stage = stage_of(c);
  d.reduce_bucket = count_of(c, "reduce_bucket", d.reduce_bucket, 1);
  d.contiguous_gradients = c.flag({"contiguous_gradients"}, true);
  d.overlap_comm = c.flag({"overlap_comm"}, false);
  d.reduce_scatter = c.flag({"reduce_scatter"}, true);
  d.round_robin_gradients = c.flag({"round_robin_gradients"}, false);
  d.offload_optimizer = c.flag({"offload_optimizer"}, false);
  d.gradient_dtype = parse_wire_type(c, "gradient_dtype", WireType::own);
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
  return j;
}

std::string to_string(const DeepSpeedSettings& d) {
  const char* offload = d.offload_optimizer ? " with offload" : "";
  return fmt::format("DeepSpeed ZeRO-{}{}, rank {} of {}", d.stage, offload, d.rank, d.world);
}

}  // namespace plimsoll
