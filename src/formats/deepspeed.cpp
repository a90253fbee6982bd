// DeepSpeed's ds_config.json. "auto" leaves a value to the trainer. ZeRO's stages are simulated as they are; what is not simulated becomes
// a finding.
#include <fmt/format.h>

#include <cmath>

#include "formats/format.h"
#include "formats/launch.h"
#include "formats/readers.h"
#include "formats/trainer.h"
#include "job/distribution.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr double kMostElements = 1e13;  // in a bucket: more than any model has

// A trainer's own value wins, and has to be the same (transformers, HfTrainerDeepSpeedConfig).
bool agrees(Reader& r, const char* setting, int64_t ours, std::string_view path) {
  if (r.job.trainer.empty() || !r.job.origin.contains(setting) || !r.has(path) || r.integer(path, ours) == ours) return true;
  r.finding(Effect::refused, path, fmt::format("{} says {} ({})", r.job.trainer, ours, r.job.origin[setting]),
            "values of DeepSpeed's file that differ from the trainer's raise a ValueError; write \"auto\"");
  return false;
}

// runtime/config.py, _configure_train_batch_size: what two of the three leave open, and that all three fit.
void read_batch(Reader& r, int64_t world) {
  const char *kAll = "train_batch_size", *kMicro = "train_micro_batch_size_per_gpu", *kSteps = "gradient_accumulation_steps";
  for (const char* path : {kAll, kMicro, kSteps})
    if (r.has(path) && r.integer(path, 1) < 1)
      throw Error(fmt::format("[{}] is {}, expected a whole number above 0", r.origin(path), r.integer(path, 1)), "or \"auto\"");
  if (agrees(r, "batch", r.job.batch, kMicro) && r.has(kMicro)) r.set("batch", kMicro);
  if (agrees(r, "accumulation", r.job.accumulation, kSteps) && r.has(kSteps)) r.set("accumulation", kSteps);
  if (!r.has(kAll)) return;
  const int64_t all = r.integer(kAll, 1);
  const bool own = r.job.trainer.empty();
  if (own && !r.has(kMicro)) {
    const int64_t share = world * (r.has(kSteps) ? r.job.accumulation : 1);
    if (all % share == 0) return r.set("batch", all / share, kAll);
    return r.finding(Effect::refused, kAll, fmt::format("it cannot be divided by {} ({} processes)", share, world),
                     "DeepSpeed asserts that it can");
  }
  if (own && !r.has(kSteps) && all % (r.job.batch * world) == 0) r.set("accumulation", all / (r.job.batch * world), kAll);
  const double product = static_cast<double>(r.job.batch) * static_cast<double>(r.job.accumulation) * static_cast<double>(world);
  if (product != static_cast<double>(all))
    r.finding(Effect::conflict, kAll,
              fmt::format("it is not {} a device x {} steps x {} processes = {:.0f}", r.job.batch, r.job.accumulation, world, product),
              "DeepSpeed asserts that they are equal");
}

// "auto": as the trainer has it.
bool enabled(Reader& r, std::string_view path, bool trainers) {
  const Json* value = r.find(path);
  return value && *value == "auto" ? trainers : r.flag(path, false);
}

// bf16 or fp16: weights and gradients in that type, fp32 copies that the optimizer updates.
void read_precision(Reader& r, bool several) {
  const Precision p = r.job.precision;
  const bool given = r.job.origin.contains("precision");
  const bool bf16 = enabled(r, "bf16.enabled", given && (p == Precision::amp || p == Precision::bf16));
  const bool fp16 = enabled(r, "fp16.enabled", given && (p == Precision::amp_fp16 || p == Precision::fp16));
  const char* path = bf16 ? "bf16.enabled" : "fp16.enabled";
  if (bf16 && fp16)
    r.finding(Effect::refused, "fp16.enabled", "bf16 is enabled too: bf16 is simulated", "DeepSpeed asserts that one of them is");
  r.ignore({"bf16", "fp16", "amp", "data_types", "communication_data_type", "prescale_gradients", "gradient_predivide_factor"});
  if (!bf16 && !fp16) return;
  r.set("precision", bf16 ? "bf16" : "fp16", path);
  r.set("autocast", false, path);
  if (const int64_t stage = r.integer("zero_optimization.stage", 0); several && stage >= 1 && stage <= 3) return;  // ZeRO keeps its own
  if (several)
    r.missing("the fp32 copy of the weights", "DeepSpeed's optimizer updates it; it is not simulated for several processes without ZeRO",
              r.origin(path));
  else
    r.set("master_weights", "fp32", path);
}

void read_optimizer(Reader& r) {
  if (!r.has("optimizer.type")) return r.ignore({"optimizer"});
  const std::string type = r.text("optimizer.type"), name = lower(type);
  const Json* params = r.find("optimizer.params");
  const Json args = params ? *params : Json();
  const bool torch_adam = r.flag("optimizer.params.torch_adam", false);
  if (name == "adam" || name == "adamw") {
    const bool decoupled = name == "adamw" || r.flag("optimizer.params.adam_w_mode", true);
    // FusedAdam is one kernel for all parameters, as the fused form of torch.optim is
    set_optimizer(r, decoupled ? "AdamW" : "Adam", torch_adam ? Json() : Json{{"fused", true}}, "optimizer.type");
  } else if (name == "sgd" || name == "adagrad") {
    set_optimizer(r, name == "sgd" ? "SGD" : "Adagrad", args, "optimizer.type");
  } else if (name == "lion") {
    set_optimizer(r, "Lion", Json(), "optimizer.type");
  } else if (name == "muon") {
    set_optimizer(r, "Muon+AdamW", Json(), "optimizer.type");
  } else {
    set_optimizer(r, type, Json(), "optimizer.type");
    r.finding(Effect::unknown, "optimizer.type", "this optimizer is not modelled: choose a near one with --optimizer, e.g. AdamW");
  }
  r.ignore({"optimizer"});
}

// Elements of a bucket, as 500000000, 5e8 or "5e8".
double elements(Reader& r, std::string_view path, double fallback) {
  const double n = r.number(path, fallback);
  if (!(n >= 0 && n <= kMostElements)) throw Error(fmt::format("[{}] is {}, expected a number of elements", r.origin(path), n), "e.g. 5e8");
  return n;
}

// To a device of its own, under its new and its old name.
bool offloads(Reader& r, const char* what, const char* old_name) {
  const std::string path = fmt::format("zero_optimization.{}.device", what);
  const std::string device = r.has(path) ? r.text(path) : "none";
  if (device == "nvme")
    r.finding(Effect::partial, path, "simulated as if it were the host's memory", "DeepSpeed swaps through buffers there");
  return device != "none" || r.flag(std::string("zero_optimization.") + old_name, false);
}

// What transformers' HfTrainerDeepSpeedConfig makes of "auto" in a number of elements, for a model of this hidden size.
double automatic(std::string_view key, double hidden) {
  if (key == "reduce_bucket_size") return hidden * hidden;
  if (key == "stage3_prefetch_bucket_size") return std::floor(0.9 * hidden * hidden);
  return key == "stage3_param_persistence_threshold" ? 10 * hidden : 0;
}

Json zero_settings(Reader& r, int64_t world, int64_t stage) {
  Json settings{{"world", world}, {"stage", stage}};
  const auto hidden = static_cast<double>(r.job.config.integer({"hidden_size", "n_embd", "d_model"}, 0));
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    const std::string path = std::string("zero_optimization.") + key.theirs;
    const Json* value = r.find(path);
    if (!value || (key.of_stage_3 && stage < 3)) continue;
    const double automatic_value = *value == "auto" ? automatic(key.theirs, hidden) : 0;
    if (value->is_boolean())
      settings[key.ours] = r.flag(path, false);
    else if (automatic_value > 0)
      settings[key.ours] = automatic_value;
    else if (r.has(path))
      settings[key.ours] = elements(r, path, 0);
  }
  return settings;
}

void read_zero(Reader& r, int64_t world) {
  const char* kStage = "zero_optimization.stage";
  const int64_t stage = r.integer(kStage, 0);
  if (stage < 0 || stage > 3) throw Error(fmt::format("[{}] is {}, expected 0 to 3", r.origin(kStage), stage), "0 is no ZeRO");
  elements(r, "zero_optimization.allgather_bucket_size", 5e8);
  Json settings = zero_settings(r, world, stage);
  const bool optimizer = offloads(r, "offload_optimizer", "cpu_offload"), parameters = offloads(r, "offload_param", "cpu_offload_params");
  if (optimizer) settings["offload_optimizer"] = true;
  if (parameters && stage == 3) settings["offload_param"] = true;
  r.ignore({"zero_optimization"});
  if (parameters && stage < 3)
    r.finding(Effect::none, "zero_optimization.offload_param", "parameters stay on the device", "it is of stage 3");
  if (stage == 0) {
    if (optimizer) r.finding(Effect::none, kStage, "nothing is offloaded", "ZeRO is off");
    return;
  }
  if (world == 1)
    return r.finding(Effect::partial, kStage, "with one process nothing is shared out; if there are more, say so: --zero world=N");
  apply_setting(r.job, "ddp", false, r.origin(kStage));
  r.set("zero", settings, kStage);
}

Evidence evidence_of_deepspeed(const Document& d) {
  if (d.kind != Document::Kind::json || !d.value.is_object()) return {};
  if (Evidence own = keys_there(d, {"zero_optimization", "train_micro_batch_size_per_gpu"}); !own.empty()) return own;
  Evidence sections = keys_there(d, {"train_batch_size", "optimizer.type", "fp16.enabled", "bf16.enabled"});
  return d.value.contains("train_batch_size") && sections.size() > 1 ? sections : Evidence{};
}

}  // namespace

void read_deepspeed(Reader& r) {
  if (r.document.comments) r.note(Effect::refused, "JSON has no comments: DeepSpeed's reader stops at the first one", "json.load");
  for (const std::string& key : r.document.duplicates)
    r.note(Effect::refused, fmt::format("'{}' is there twice", printable(key, 60)), "DeepSpeed raises a ValueError for duplicate keys");
  const int64_t world = world_size(r.job);
  read_batch(r, world);
  if (r.has("gradient_clipping") && r.number("gradient_clipping", 0) > 0) r.set("clip", "gradient_clipping");
  read_precision(r, world > 1);
  read_optimizer(r);
  read_zero(r, world);
  const char* kPartition = "activation_checkpointing.partition_activations";
  const char* kHost = "activation_checkpointing.cpu_checkpointing";
  for (const char* path : {kPartition, kHost})
    if (r.flag(path, false))
      r.finding(Effect::none, path, "only models that call deepspeed.checkpointing themselves use it",
                "transformers' models call torch.utils.checkpoint");
  r.ignore({"activation_checkpointing",
            "scheduler",
            "steps_per_print",
            "wall_clock_breakdown",
            "dump_state",
            "comms_logger",
            "flops_profiler",
            "zero_allow_untested_optimizer",
            "zero_force_ds_cpu_optimizer",
            "tensorboard",
            "wandb",
            "csv_monitor",
            "aio",
            "gradient_clipping",
            "prescale_gradients",
            "memory_breakdown",
            "checkpoint",
            "elasticity",
            "logging",
            "torch_autocast",
            "disable_allgather"});
  r.finish();
}

namespace {

// The three numbers are bound to each other; what is "auto" stays so.
Encoded encode_batch(const EncodeRequest& w) {
  Encoded encoded;
  if (w.job.batch != w.before.batch || w.has("train_micro_batch_size_per_gpu"))
    encoded.keys.push_back({"train_micro_batch_size_per_gpu", w.job.batch});
  if (w.job.accumulation != w.before.accumulation || w.has("gradient_accumulation_steps"))
    encoded.keys.push_back({"gradient_accumulation_steps", w.job.accumulation});
  for (KeyValue& k : product_of_batch(w, "train_batch_size")) encoded.keys.push_back(std::move(k));
  return encoded;
}

Encoded encode_precision(const EncodeRequest& w) {
  const Precision p = w.job.precision;
  if (p == Precision::amp || p == Precision::amp_fp16 || w.job.autocast)
    return {{}, "DeepSpeed's bf16 and fp16 put the weights into that type, beside fp32 copies"};
  Encoded encoded;
  for (const auto& [key, on] : {std::pair{"bf16", p == Precision::bf16}, {"fp16", p == Precision::fp16}})
    if (on || w.find(key)) encoded.keys.push_back({std::string(key) + ".enabled", on});
  return encoded;
}

Encoded encode_optimizer(const EncodeRequest& w) {
  const std::string& name = w.job.optimizer.name;
  const bool fused = w.job.optimizer.args.values().value("fused", Json()) == true;
  if (name != "AdamW" && name != "Adam") return {{}, "give DeepSpeed the optimizer from Python: deepspeed.initialize(optimizer=...)"};
  Encoded encoded{{{"optimizer.type", name}}, ""};
  if (name == "Adam") encoded.keys.push_back({"optimizer.params.adam_w_mode", false});
  if (!fused || w.find("optimizer.params.torch_adam")) encoded.keys.push_back({"optimizer.params.torch_adam", !fused});
  return encoded;
}

// The stage, what differs from its defaults, and what the file says already.
Encoded encode_zero(const EncodeRequest& w) {
  const auto& zero = w.job.parallel.deepspeed;
  const std::string section = "zero_optimization.";
  Encoded encoded{{{section + "stage", zero ? zero->stage : 0}}, ""};
  if (!zero) return encoded;
  const Json all = to_json(*zero), usual = to_json(parse_deepspeed({{"world", zero->world}, {"stage", zero->stage}}));
  for (const DeepSpeedKey& key : deepspeed_keys())
    if (all.contains(key.ours) && (all[key.ours] != usual[key.ours] || w.has(section + key.theirs)))
      encoded.keys.push_back({section + key.theirs, all[key.ours]});
  for (const auto& [key, on] : {std::pair{"offload_optimizer", zero->offload_optimizer}, {"offload_param", zero->offload_param}})
    if (on || w.find(section + key)) encoded.keys.push_back({fmt::format("{}{}.device", section, key), on ? "cpu" : "none"});
  return encoded;
}

const SettingsEncoder& writes_deepspeed() {
  static const SettingsEncoder kWrites{{{"batch", "train_micro_batch_size_per_gpu", encode_batch},
                                        {"accumulation", "gradient_accumulation_steps", encode_batch},
                                        {"clip", "gradient_clipping"},
                                        {"precision", "bf16.enabled", encode_precision},
                                        {"autocast", "bf16.enabled", encode_precision},
                                        {"optimizer", "optimizer.type", encode_optimizer},
                                        {"optimizer_args", "optimizer.params.torch_adam", encode_optimizer},
                                        {"zero", "zero_optimization.stage", encode_zero}}};
  return kWrites;
}

}  // namespace

const Format& deepspeed_format() {
  static const Format kFormat{"deepspeed",     "DeepSpeed's ds_config.json", Rank::launcher, evidence_of_deepspeed, read_deepspeed, nullptr,
                              writes_deepspeed};
  return kFormat;
}

}  // namespace plimsoll
