// accelerate's configuration, as `accelerate config` writes it: processes, mixed precision, and how the model is spread.
#include <fmt/format.h>

#include "formats/format.h"
#include "formats/fsdp_keys.h"
#include "formats/launch.h"
#include "formats/readers.h"
#include "formats/trainer.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

void read_mixed_precision(Reader& r) {
  const std::string type = lower(r.text("mixed_precision", "no"));
  if (type == "bf16" || type == "fp16")
    r.set("precision", type == "bf16" ? "amp" : "amp-fp16", "mixed_precision");
  else if (type == "fp8")
    r.finding(Effect::unknown, "mixed_precision", "fp8 is not simulated: bf16 autocast is"), r.set("precision", "amp", "mixed_precision");
  else if (type != "no" && type != "false")  // YAML's bare no
    throw Error(fmt::format("[{}] '{}' is not known", r.origin("mixed_precision"), printable(type, 40)), "known: no, fp16, bf16, fp8");
}

// The same keys as DeepSpeed's file, under other names.
void read_deepspeed_plugin(Reader& r) {
  if (r.has("deepspeed_config.deepspeed_config_file")) {
    r.include("deepspeed_config.deepspeed_config_file");
    return r.ignore({"deepspeed_config"});
  }
  Document inside;
  inside.kind = Document::Kind::json;
  inside.name = r.origin("deepspeed_config");
  Json zero{{"stage", r.integer("deepspeed_config.zero_stage", 2)}};
  for (const char* which : {"optimizer", "param"}) {
    const std::string device = r.text(fmt::format("deepspeed_config.offload_{}_device", which), "none");
    if (device != "none") zero[std::string("offload_") + which] = {{"device", device}};
  }
  // DeepSpeedPlugin.set_mixed_precision: the type of mixed_precision is DeepSpeed's own, with weights in it.
  inside.value = {{"zero_optimization", zero}, {"bf16", {{"enabled", "auto"}}}, {"fp16", {{"enabled", "auto"}}}};
  for (const char* key : {"gradient_accumulation_steps", "gradient_clipping"})
    if (r.has(std::string("deepspeed_config.") + key)) inside.value[key] = *r.find(std::string("deepspeed_config.") + key);
  r.ignore({"deepspeed_config"});
  Reader inner(r.job, inside);
  read_deepspeed(inner);
}

Evidence evidence_of_accelerate(const Document& d) {
  return d.kind != Document::Kind::command ? keys_there(d, {"compute_environment", "distributed_type"}) : Evidence{};
}

}  // namespace

void read_accelerate(Reader& r) {
  r.ignore({"compute_environment",
            "debug",
            "downcast_bf16",
            "machine_rank",
            "main_process_ip",
            "main_process_port",
            "main_training_function",
            "rdzv_backend",
            "same_network",
            "tpu_env",
            "tpu_use_cluster",
            "tpu_use_sudo",
            "tpu_name",
            "tpu_zone",
            "enable_cpu_affinity",
            "gpu_ids",
            "commands",
            "command_file",
            "tpu_vm",
            "mpirun_config",
            "fp8_config"});
  read_mixed_precision(r);
  const std::string type = lower(r.text("distributed_type", "multi_gpu"));
  const int64_t machines = r.integer("num_machines", 1), processes = r.integer("num_processes", 1);
  if (type == "no" || type == "false") {
    if (processes > 1) r.finding(Effect::none, "num_processes", "one process runs", "distributed_type is NO");
  } else if (r.has("num_processes")) {
    if (machines < 1 || processes < machines || processes % machines != 0)
      throw Error(fmt::format("[{}] {} processes on {} machines", r.origin("num_processes"), processes, machines),
                  "num_processes counts those of all machines");
    set_world(r, processes / machines, machines, r.origin("num_processes"));
  }
  if (type == "deepspeed") read_deepspeed_plugin(r);
  if (type == "fsdp") read_fsdp_keys(r, "distributed_type", "fsdp_config");
  if (type == "megatron_lm" || type == "tp" || type == "xla" || type == "tpu" || type == "multi_cpu")
    not_simulated(r, "distributed_type", "this kind of parallelism");
  // `accelerate config` writes empty sections
  if (const Json* section = r.find("deepspeed_config"); section && !section->empty() && type != "deepspeed")
    r.finding(Effect::none, "deepspeed_config", "DeepSpeed is not used", "distributed_type is not DEEPSPEED");
  if (const Json* section = r.find("fsdp_config"); section && !section->empty() && type != "fsdp")
    r.finding(Effect::none, "fsdp_config", "FSDP is not used", "distributed_type is not FSDP");
  r.ignore({"megatron_lm_config", "deepspeed_config", "fsdp_config"});
  if (r.has("parallelism_config")) not_simulated(r, "parallelism_config", "this kind of parallelism");
  for (const char* path : {"dynamo_backend", "dynamo_config.dynamo_backend"})
    if (r.has(path) && lower(r.text(path)) != "no" && lower(r.text(path)) != "false") r.set("compile", true, path);
  r.ignore({"dynamo_config"});
  if (r.flag("use_cpu", false)) r.finding(Effect::other, "use_cpu", "training runs on the CPU: no device memory is used");
  r.finish();
}

namespace {

// Under DeepSpeed the mixed type is that of the weights.
Encoded encode_precision(const EncodeRequest& w) {
  const Precision p = w.job.precision;
  if (w.job.parallel.deepspeed && (p == Precision::bf16 || p == Precision::fp16)) return {{{"mixed_precision", to_string(p)}}, ""};
  return encode_mixed_precision(w, "mixed_precision", "no");
}

bool has_deepspeed(const EncodeRequest& w) { return w.text("distributed_type") == "deepspeed"; }

Encoded encode_accumulation(const EncodeRequest& w) {
  if (!has_deepspeed(w))
    return {{},
            fmt::format("accelerate's file has it with DeepSpeed alone: Accelerator(gradient_accumulation_steps={})", w.job.accumulation)};
  return {{{"deepspeed_config.gradient_accumulation_steps", w.job.accumulation}}, ""};
}

Encoded encode_clip(const EncodeRequest& w) {
  if (!has_deepspeed(w) || !w.job.clip) return {};
  return {{{"deepspeed_config.gradient_clipping", *w.job.clip}}, ""};
}

Encoded encode_zero(const EncodeRequest& w) {
  if (w.find("deepspeed_config.deepspeed_config_file")) return {{}, "the stage is said in DeepSpeed's own file: zero_optimization.stage"};
  const auto& zero = w.job.parallel.deepspeed;
  const std::string section = "deepspeed_config.";
  Encoded encoded{{{"distributed_type", "DEEPSPEED"}, {section + "zero_stage", zero ? zero->stage : 0}}, ""};
  if (zero && zero->world != w.whole("num_processes")) encoded.keys.push_back({"num_processes", zero->world});
  for (const auto& [key, on] :
       {std::pair{"offload_optimizer_device", zero && zero->offload_optimizer}, {"offload_param_device", zero && zero->offload_param}})
    if (on || w.find(section + key)) encoded.keys.push_back({section + key, on ? "cpu" : "none"});
  return encoded;
}

Encoded encode_ddp(const EncodeRequest& w) {
  const std::optional<DdpSettings>&now = w.before.parallel.ddp, &then = w.job.parallel.ddp;
  if (then && now && now->bucket_view != then->bucket_view)
    return {{}, "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)])"};
  Encoded encoded{{{"num_processes", then ? then->world : 1}}, ""};
  if (then && (w.text("distributed_type").empty() || w.text("distributed_type") == "no" || w.text("distributed_type") == "false"))
    encoded.keys.push_back({"distributed_type", "MULTI_GPU"});
  return encoded;
}

// fully_shard, version 2 of its plugin; FullyShardedDataParallel is version 1.
Encoded encode_fsdp(const EncodeRequest& w) {
  const auto& f = w.job.parallel.fsdp;
  if (!f || f->replicas > 1 || f->reshard_to > 0) return {};
  return {{{"distributed_type", "FSDP"},
           {"num_processes", f->world},
           {"fsdp_config.fsdp_version", 2},
           {"fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
           {"fsdp_config.fsdp_reshard_after_forward", f->reshard}},
          ""};
}

Encoded encode_compile(const EncodeRequest& w) {
  const bool old = w.find("dynamo_backend") != nullptr;
  return {{{old ? "dynamo_backend" : "dynamo_config.dynamo_backend", w.job.compile ? "INDUCTOR" : "NO"}}, ""};
}

const SettingsEncoder& writes_accelerate() {
  static const SettingsEncoder kWrites{{{"precision", "mixed_precision", encode_precision},
                                        {"accumulation", "deepspeed_config.gradient_accumulation_steps", encode_accumulation},
                                        {"clip", "deepspeed_config.gradient_clipping", encode_clip},
                                        {"ddp", "num_processes", encode_ddp},
                                        {"fsdp", "fsdp_config.fsdp_version", encode_fsdp},
                                        {"zero", "deepspeed_config.zero_stage", encode_zero},
                                        {"compile", "dynamo_config.dynamo_backend", encode_compile}}};
  return kWrites;
}

}  // namespace

const Format& accelerate_format() {
  static const Format kFormat{
      "accelerate", "accelerate's configuration", Rank::launcher, evidence_of_accelerate, read_accelerate, nullptr, writes_accelerate};
  return kFormat;
}

}  // namespace plimsoll
