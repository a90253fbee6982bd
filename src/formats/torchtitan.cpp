// torchtitan's TOML (its JobConfig, up to 2026-02), and `torchrun ... -m torchtitan.train --job.config_file x.toml --training.seq_len 512`.
#include <fmt/format.h>

#include "formats/format.h"
#include "formats/launch.h"
#include "formats/torchtitan_layout.h"
#include "formats/trainer.h"
#include "job/distribution.h"
#include "job/settings.h"
#include "job/torchtitan_models.h"
#include "util/bytes.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr const char* kTrainer = "torchtitan";

// Gives whether it is one of those known here.
bool read_model(Reader& r) {
  const std::string preset = preset_of(r.text("model.name", "llama3"), r.text("model.flavor", "debugmodel"));
  r.ignore({"model.hf_assets_path", "model.tokenizer_path", "model.print_after_conversion", "model.norm_type"});
  if (!preset.empty())
    r.set("model", preset, "model.flavor");
  else
    r.finding(
        Effect::unknown, r.has("model.flavor") ? "model.flavor" : "model.name",
        "no model of that name is known: name one beside the file; models with experts are simulated in Megatron-LM's layout (--megatron)");
  return !preset.empty();
}

// What was not taken for float8 layers of its own trainer.
void read_converters(Reader& r) {
  const Json* converters = r.find("model.converters");
  if (converters && !converters->empty() && !(r.job.program.torchtitan && r.job.program.torchtitan->float8))
    r.finding(Effect::unknown, "model.converters", "float8 and MX layers are not simulated");
}

// distributed/utils.py, maybe_enable_amp: FSDP casts where there are shards, autocast does with one process or DDP
void read_precision(Reader& r) {
  const std::string weights = short_type(r.text("training.dtype", "float32")),
                    mixed = short_type(r.text("training.mixed_precision_param", "bfloat16"));
  for (const char* path : {"training.dtype", "training.mixed_precision_param"})
    if (r.has(path) && short_type(r.text(path)).empty())
      throw Error(fmt::format("[{}] '{}' is not known", r.origin(path), printable(r.text(path), 40)), "known: float32, bfloat16");
  const bool given = r.has("training.mixed_precision_param") || r.has("training.dtype");
  set_types(r, weights, mixed == "fp32" ? "" : mixed,
            given ? r.origin(r.has("training.dtype") ? "training.dtype" : "training.mixed_precision_param") : "default of torchtitan");
  r.ignore({"training.mixed_precision_reduce"});
}

void read_optimizer(Reader& r) {
  const std::string name = r.text("optimizer.name", "AdamW"), form = r.text("optimizer.implementation", "fused");
  const Json args = form == "fused" ? Json{{"fused", true}} : form == "foreach" ? Json{{"foreach", true}} : Json{{"foreach", false}};
  if (r.has("optimizer.name") || r.has("optimizer.implementation")) {
    set_optimizer(r, name, args, r.has("optimizer.name") ? "optimizer.name" : "optimizer.implementation");
  } else {
    r.set_default("optimizer", name, kTrainer);
    r.set_default("optimizer_args", args, kTrainer);
  }
  if (r.flag("optimizer.early_step_in_backward", false)) r.set("optimizer_in_backward", true, "optimizer.early_step_in_backward");
  r.ignore({"optimizer"});
}

void read_checkpointing(Reader& r) {
  const std::string mode = lower(r.text("activation_checkpoint.mode", "selective")),
                    option = lower(r.text("activation_checkpoint.selective_ac_option", "2"));
  const char* path = "activation_checkpoint.mode";
  Json value = mode == "full";
  if (mode == "selective" && option == "op") {
    value = {{"save", "torchtitan"}};
  } else if (mode == "selective") {
    const int64_t every = r.integer("activation_checkpoint.selective_ac_option", 2);
    if (every < 1)
      throw Error(
          fmt::format("[{}] is {}, expected 'op' or a number above 0", r.origin("activation_checkpoint.selective_ac_option"), every),
          "e.g. \"2\"");
    value = {{"every", every}};
  } else if (mode == "memory_budget") {
    r.finding(Effect::unknown, path, "what the compiler keeps under a budget is not simulated: nothing is checkpointed in the answer");
  } else if (mode != "none" && mode != "full") {
    throw Error(fmt::format("[{}] '{}' is not known", r.origin(path), printable(mode, 40)), "known: none, selective, full, memory_budget");
  }
  if (r.has(path))
    r.set("checkpointing", value, path);
  else
    r.set_default("checkpointing", value, kTrainer);
  r.ignore({"activation_checkpoint"});
}

void read_batch(Reader& r) {
  if (!r.set("batch", "training.local_batch_size") && !r.set("batch", "training.batch_size")) r.set_default("batch", 8, kTrainer);
  if (!r.set("seq", "training.seq_len")) r.set_default("seq", 2048, kTrainer);
  const int64_t all = r.integer("training.global_batch_size", -1), world = replica_count(r.job);
  if (all < 1) return;
  const int64_t share = r.job.batch * world;
  if (all % share != 0)
    r.finding(Effect::refused, "training.global_batch_size",
              fmt::format("it cannot be divided by {} a device x {} processes", r.job.batch, world), "the trainer asserts that it can");
  else
    r.set("accumulation", all / share, "training.global_batch_size");
}

void read_settings(Reader& r) {
  r.job.trainer = kTrainer;
  const bool knows_model = read_model(r);
  read_precision(r);
  read_torchtitan_layout(r, knows_model);
  read_converters(r);
  read_batch(r);
  read_optimizer(r);
  read_checkpointing(r);
  if (r.number("training.max_norm", 1.0) > 0 && !r.set("clip", "training.max_norm")) r.set_default("clip", 1.0, kTrainer);
  r.set_default("drop_output", true, kTrainer);  // `del pred` before backward
  if (r.flag("compile.enable", r.flag("training.compile", false)))
    r.set("compile", true, r.has("compile.enable") ? "compile.enable" : "training.compile");
  if (r.flag("training.enable_cpu_offload", false))
    r.finding(Effect::unknown, "training.enable_cpu_offload", "not simulated: all is on the device");
  if (r.flag("validation.enable", false) && !r.set("eval_batch", "validation.local_batch_size")) r.set_default("eval_batch", 8, kTrainer);
  r.set("workers", "training.dataloader.num_workers");
  if (r.flag("training.dataloader.pin_memory", false)) r.set("pin_memory", true, "training.dataloader.pin_memory");
  r.ignore({"job",
            "profiling",
            "metrics",
            "lr_scheduler",
            "checkpoint",
            "comm",
            "memory_estimation",
            "fault_tolerance",
            "debug",
            "compile",
            "validation",
            "quantize",
            "float8",
            "mx",
            "training.dataloader",
            "training.dataset",
            "training.dataset_path",
            "training.steps",
            "training.gc_freq",
            "training.gc_debug",
            "training.warmup_steps",
            "training.seed",
            "training.deterministic"});
  r.finish();
}

Evidence evidence_of_torchtitan(const Document& d) {
  if (d.kind == Document::Kind::command) {
    if (program_of(d) == "torchtitan.train") return {"torchtitan.train"};
    if (d.value["flags"].contains("job.config_file")) return {"--job.config_file"};
    const bool script = program_of(d) == "run_train.sh" && d.value["environment"].contains("CONFIG_FILE");
    return script ? Evidence{"run_train.sh", "CONFIG_FILE"} : Evidence{};
  }
  if (d.kind != Document::Kind::toml || !d.value.is_object() || !d.value.contains("training") || !d.value["training"].is_object() ||
      keys_there(d, {"parallelism", "job", "activation_checkpoint"}).empty())
    return {};
  return keys_there(
      d, {"model.flavor", "training.local_batch_size", "training.mixed_precision_param", "training.data_parallel_shard_degree",
          "training.data_parallel_replicate_degree", "training.tensor_parallel_degree", "parallelism.tensor_parallel_degree",
          "parallelism.data_parallel_shard_degree", "parallelism.data_parallel_replicate_degree", "parallelism.pipeline_parallel_degree",
          "parallelism.context_parallel_degree", "activation_checkpoint.mode", "job.dump_folder", "metrics.enable_tensorboard",
          "optimizer.implementation"});
}

void read_torchtitan(Reader& r) {
  if (r.document.kind != Document::Kind::command) return read_settings(r);
  read_launch(r);
  Document command = r.document;  // its script takes the file and the number of processes from variables
  if (r.has("/environment/CONFIG_FILE") && !command.value["flags"].contains("job.config_file"))
    command.value["flags"]["job.config_file"] = r.text("/environment/CONFIG_FILE");
  if (program_of(r.document) == "run_train.sh") {
    set_world(r, r.integer("/environment/NGPU", 8), 1, r.document.name + ": NGPU");
    if (r.job.alloc_conf.empty()) apply_setting(r.job, "alloc_conf", "expandable_segments:True", "default of run_train.sh");
  }
  Reader of_command(r.job, command);
  const Document settings = settings_of(of_command, {"job.config_file"});
  Reader inner(r.job, settings);
  read_settings(inner);
}

// Accumulation is what the global batch leaves.
Encoded encode_batch(const EncodeRequest& w) {
  Encoded encoded;
  const std::string key =
      w.has("training.batch_size") && !w.has("training.local_batch_size") ? "training.batch_size" : "training.local_batch_size";
  if (w.job.batch != w.before.batch) encoded.keys.push_back({key, w.job.batch});
  if (w.whole("training.global_batch_size") > 0 || w.job.accumulation > 1)
    encoded.keys.push_back({"training.global_batch_size", w.job.batch * w.job.accumulation * replica_count(w.job)});
  return encoded;
}

Encoded encode_precision(const EncodeRequest& w) {
  const Precision p = w.job.precision;
  if (p == Precision::fp16 || p == Precision::amp_fp16) return {{}, "torchtitan trains in bfloat16 or float32"};
  const std::string weights = p == Precision::bf16 ? "bfloat16" : "float32";
  const auto& fsdp = w.job.parallel.fsdp;
  const std::string mixed = p == Precision::amp || w.job.program.torchtitan || (fsdp && fsdp->param_dtype == WireType::bf16) ||
                                    (p == Precision::bf16 && w.job.autocast)
                                ? "bfloat16"
                                : "float32";
  Encoded encoded{{{"training.mixed_precision_param", mixed}}, ""};
  if (w.has("training.dtype") || weights != "float32") encoded.keys.insert(encoded.keys.begin(), {"training.dtype", weights});
  return encoded;
}

Encoded encode_checkpoints(const EncodeRequest& w) {
  const Checkpointing& c = w.job.checkpointing;
  const char *kMode = "activation_checkpoint.mode", *kOption = "activation_checkpoint.selective_ac_option";
  if (!c.on) return {{{kMode, "none"}}, ""};
  if (c.reentrant || !c.modules.empty()) return {};
  const bool by_op = c.save == parse_checkpointing({{"save", "torchtitan"}}).save || c.save == matmul_ops();
  if (!c.save.empty()) return by_op ? Encoded{{{kMode, "selective"}, {kOption, "op"}}, ""} : Encoded{};
  if (c.every > 1) return {{{kMode, "selective"}, {kOption, std::to_string(c.every)}}, ""};
  return {{{kMode, "full"}}, ""};
}

Encoded encode_optimizer(const EncodeRequest& w) {
  const std::string& name = w.job.optimizer.name;
  if (name != "AdamW" && name != "Adam") return {{}, "torchtitan knows Adam and AdamW"};
  const Json& args = w.job.optimizer.args.values();
  const char* form = args.value("fused", Json()) == true ? "fused" : args.value("foreach", Json()) == false ? "for-loop" : "foreach";
  return {{{"optimizer.name", name}, {"optimizer.implementation", form}}, ""};
}

Encoded encode_compile(const EncodeRequest& w) {
  return {{{w.has("training.compile") && !w.has("compile.enable") ? "training.compile" : "compile.enable", w.job.compile}}, ""};
}

const SettingsEncoder& writes_torchtitan() {
  static const SettingsEncoder kWrites{{{"batch", "training.local_batch_size", encode_batch},
                                        {"accumulation", "training.global_batch_size", encode_batch},
                                        {"seq", "training.seq_len"},
                                        {"precision", "training.mixed_precision_param", encode_precision},
                                        {"autocast", "training.mixed_precision_param", encode_precision},
                                        {"checkpointing", "activation_checkpoint.mode", encode_checkpoints},
                                        {"optimizer", "optimizer.name", encode_optimizer},
                                        {"optimizer_args", "optimizer.implementation", encode_optimizer},
                                        {"optimizer_in_backward", "optimizer.early_step_in_backward"},
                                        {"clip", "training.max_norm"},
                                        {"compile", "compile.enable", encode_compile},
                                        {"workers", "training.dataloader.num_workers"},
                                        {"pin_memory", "training.dataloader.pin_memory"},
                                        {"eval_batch", "validation.local_batch_size"}},
                                       FlagStyle::dotted};
  return kWrites;
}

}  // namespace

const Format& torchtitan_format() {
  static const Format kFormat{
      "torchtitan", "torchtitan's TOML or command", Rank::trainer, evidence_of_torchtitan, read_torchtitan, nullptr, writes_torchtitan};
  return kFormat;
}

}  // namespace plimsoll
