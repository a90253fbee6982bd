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

Field<DeepSpeedSettings> count(const char* key, int64_t DeepSpeedSettings::*member, int64_t least) {
  return {key,
          [=](DeepSpeedSettings& d, const Config& c) { d.*member = count_of(c, key, field::defaults<DeepSpeedSettings>().*member, least); },
          [=](const DeepSpeedSettings& d) { return d.*member; }};
}

// Refused with a smaller stage, and not printed.
Field<DeepSpeedSettings> of_stage_3(Field<DeepSpeedSettings> f) {
  f.read = [read = std::move(f.read)](DeepSpeedSettings& d, const Config& c) {
    if (d.stage == 3) read(d, c);
  };
  return field::only([](const DeepSpeedSettings& d) { return d.stage == 3; }, std::move(f));
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

const Mapping<DeepSpeedSettings>& deepspeed_mapping() {
  using S = DeepSpeedSettings;
  static const Mapping<S> kMapping{"zero",
                                   process_example("zero"),
                                   {field::world<S>(),
                                    field::rank<S>([](const S& d) { return d.world; }, "ranks count from 0"),
                                    {"stage", [](S& d, const Config& c) { d.stage = stage_of(c); }, [](const S& d) { return d.stage; }},
                                    count("reduce_bucket", &S::reduce_bucket, 1),
                                    field::flag("contiguous_gradients", &S::contiguous_gradients),
                                    {"overlap_comm", [](S& d, const Config& c) { d.overlap_comm = c.flag({"overlap_comm"}, d.stage == 3); },
                                     [](const S& d) { return d.overlap_comm; }},
                                    field::flag("reduce_scatter", &S::reduce_scatter),
                                    field::flag("round_robin_gradients", &S::round_robin_gradients),
                                    field::flag("offload_optimizer", &S::offload_optimizer),
                                    field::wire_type("gradient_dtype", &S::gradient_dtype),
                                    of_stage_3(field::flag("offload_param", &S::offload_param)),
                                    of_stage_3(count("sub_group", &S::sub_group, 1)),
                                    of_stage_3(count("persistence_threshold", &S::persistence_threshold, 0)),
                                    of_stage_3(count("model_persistence_threshold", &S::model_persistence_threshold, 0)),
                                    of_stage_3(count("prefetch_bucket", &S::prefetch_bucket, 0)),
                                    of_stage_3(count("max_live_parameters", &S::max_live_parameters, 0)),
                                    of_stage_3(count("max_reuse_distance", &S::max_reuse_distance, 0))},
                                   [](S& d, const Config& c) {
                                     if (d.stage < 3) refuse_stage_3(c, d.stage);
                                   }};
  return kMapping;
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

DeepSpeedSettings parse_deepspeed(const nlohmann::json& value) { return deepspeed_mapping().read(value); }
nlohmann::ordered_json to_json(const DeepSpeedSettings& d) { return deepspeed_mapping().print(d); }

std::string to_string(const DeepSpeedSettings& d) {
  const char* offload = d.offload_optimizer || d.offload_param ? " with offload" : "";
  return fmt::format("DeepSpeed ZeRO-{}{}, rank {} of {}", d.stage, offload, d.rank, d.world);
}

}  // namespace plimsoll
