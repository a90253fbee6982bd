#include "score/recorded_row.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <fstream>

#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

// Files beside the recorder that make a model.
struct OwnModel {
  const char* file;
  const char* family;  // empty: the class in its arguments
  InputKind inputs;
  bool checkpoints = false;  // what the argument `ckpt` is when it is left out
};
constexpr std::array kOwnModels{OwnModel{"mlp", "mlp", InputKind::vector},
                                OwnModel{"gsa", "gsa", InputKind::lm, true},
                                OwnModel{"mamba", "mamba-trainer", InputKind::lm},
                                OwnModel{"mamba_kernels", "mamba", InputKind::lm},
                                OwnModel{"stdiff", "stdiff", InputKind::own},
                                OwnModel{"fsdm", "fsdm", InputKind::own},
                                OwnModel{"unet_segmentation", "unet-segmentation", InputKind::own},
                                OwnModel{"yolov8", "yolov8", InputKind::own},
                                OwnModel{"diffusion_trainer", "diffusion-trainer", InputKind::own},
                                OwnModel{"diffusers_models", "", InputKind::own},
                                OwnModel{"diffusers_transformers", "", InputKind::own},
                                OwnModel{"torchtitan_models", "llama", InputKind::lm},
                                OwnModel{"toolkit_transformers", "", InputKind::own}};

std::string python_file(const Json& model) {
  std::string name = model.value("py", "");
  if (name.ends_with(".py")) name.resize(name.size() - 3);
  return name;
}

const OwnModel* own_model(const std::string& name) {
  for (const OwnModel& own : kOwnModels)
    if (name == own.file) return &own;
  return nullptr;
}

// Spec fields that change the run in ways no Job can express yet.
std::string unsupported_field(const Json& spec) {
  const std::string kind = spec.value("parallel", Json::object()).value("kind", "none");
  constexpr std::array kKinds{"none", "ddp", "zero1", "fsdp2", "fsdp1", "zero", "tp", "fsdp2_tp", "torchtitan"};
  if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end()) return "parallel: " + kind;
  // Rows with the recorder's own LoRA may have got it after the model was sharded; PEFT's comes before.
  if ((kind == "fsdp2" || kind == "tp" || kind == "fsdp2_tp") && spec.contains("lora") && !spec["lora"].is_null())
    return "lora with parallel: " + kind;
  if (const std::string name = python_file(spec.at("model")); !name.empty() && !own_model(name)) return "model: " + name;
  return "";
}

// The recorder's own LoRA: it freezes the model and adapts the linear layers of these names.
AdapterSettings lora_of(const Json& lora) {
  AdapterSettings a;
  const bool all = lora.value("target", "qv") == "all";
  a.target_modules.pattern = std::string(R"((.*\.)?)") + (all ? "(q|k|v|o|gate|up|down)_proj" : "(q|v)_proj");
  a.r = lora.value("r", int64_t{16});
  a.dropout = lora.value("dropout", 0.0);
  a.fp32 = lora.value("dtype", "fp32") == "fp32";
  return a;
}

// PEFT's own classes with their own arguments.
AdapterSettings peft_of(const Json& peft) {
  Json config = peft.value("config", Json::object());
  if (peft.contains("autocast_adapter_dtype")) config["autocast_adapter_dtype"] = peft["autocast_adapter_dtype"];
  return parse_adapter(parse_adapter_kind(lower(peft.value("peft_type", "LORA"))), config);
}

AdapterSettings ai_toolkit_lora_of(Json lora) {
  lora["implementation"] = "ai-toolkit";
  return parse_adapter(AdapterKind::lora, lora);
}

TuningSettings tuning_of(const Config& c) {
  TuningSettings t;
  if (const Json* lora = c.find({"lora"})) t.adapter = lora_of(*lora);
  if (const Json* peft = c.find({"peft"})) t.adapter = peft_of(*peft);
  if (const Json* lora = c.find({"ai_toolkit_lora"})) t.adapter = ai_toolkit_lora_of(*lora);
  if (const Json* quantization = c.find({"quantization"})) t.quantization = parse_quantization(*quantization);
  if (const Json* quantization = c.find({"toolkit_quantization"})) t.quantization = parse_quantization(*quantization);
  if (const Json* names = c.find({"frozen"})) t.frozen = parse_name_list(*names, "frozen");
  if (const Json* names = c.find({"trainable"})) t.trainable = parse_name_list(*names, "trainable");
  return t;
}

// The recorder gives bucket_mb as an argument, so that its first bucket is like the others; null is PyTorch's default.
DdpSettings ddp_of(const Json& parallel) {
  Json fields{{"world", parallel.value("world", 1)},
              {"bucket_mb", parallel.value("bucket_mb", Json(25))},
              {"bucket_view", parallel.value("bucket_view", false)},
              {"find_unused_parameters", parallel.value("find_unused", false)},
              {"static_graph", parallel.value("static_graph", false)},
              {"broadcast_buffers", parallel.value("broadcast_buffers", true)},
              {"no_sync", parallel.value("skip_sync", false)}};
  return parse_ddp(fields);
}

// The recorder wraps the longest list of modules, and reduces in fp32 unless told.
FsdpSettings fsdp_of(const Json& parallel) {
  const bool casts = parallel.contains("mp") && !parallel["mp"].is_null();
  Json fields{{"world", parallel.value("world", 1)},
              {"rank", parallel.value("rank", 0)},
              {"replicas", parallel.value("replicas", 1)},
              {"reshard", parallel.value("reshard", Json(true))},
              {"no_sync", parallel.value("no_sync", false)},
              {"wrap_embedding", parallel.value("wrap_embed", false)},
              {"checkpoint_inside", parallel.value("ac", "hf") == "wrapper"},
              {"keep_last", parallel.value("keep_last", false)}};
  if (casts) fields["param_dtype"] = parallel["mp"];
  if (casts) fields["reduce_dtype"] = parallel.value("reduce", "fp32");
  if (parallel.contains("reshard_root")) fields["reshard_root"] = parallel["reshard_root"];
  FsdpSettings f = parse_fsdp(fields);
  f.longest_list = true;
  return f;
}

TensorParallelSettings tensor_of(const Json& parallel) {
  return parse_tensor_parallel({{"world", parallel.value("world", 1)},
                                {"rank", parallel.value("rank", 0)},
                                {"sequence", parallel.value("sp", false)},
                                {"loss_parallel", parallel.value("loss_parallel", false)}});
}

// A mesh of two dimensions, tensor parallelism the inner one.
void read_2d(const Json& parallel, ParallelSettings& p) {
  Json outer = parallel, inner = parallel;
  const int64_t tensor = std::max<int64_t>(1, parallel.value("tp", 1)), rank = parallel.value("rank", 0);
  outer["world"] = parallel.value("world", 1) / tensor;
  outer["rank"] = rank / tensor;
  inner["world"] = tensor;
  inner["rank"] = rank % tensor;
  p.fsdp = fsdp_of(outer);
  p.tensor = tensor_of(inner);
}

// torchtitan's own models under its own plans (tools/recorder/torchtitan_models.py).
TorchtitanSettings torchtitan_of(const Json& parallel) {
  Json fields = Json::object();
  for (const auto& [theirs, ours] : {std::pair{"world", "world"},
                                     {"tp", "tensor"},
                                     {"pp", "pipeline"},
                                     {"stage", "stage"},
                                     {"schedule", "schedule"},
                                     {"micro_batches", "micro_batches"},
                                     {"version", "version"},
                                     {"reshard", "reshard"},
                                     {"loss_parallel", "loss_parallel"},
                                     {"loss_chunks", "loss_chunks"},
                                     {"layers", "layers"}})
    if (parallel.contains(theirs)) fields[ours] = parallel[theirs];
  return parse_torchtitan(fields);
}

Fsdp1Settings fsdp1_of(const Json& parallel) {
  Json fields{{"world", parallel.value("world", 1)},
              {"rank", parallel.value("rank", 0)},
              {"replicas", parallel.value("replicas", 1)},
              {"strategy", parallel.value("strategy", "FULL_SHARD")},
              {"prefetch",
               parallel.contains("prefetch") && parallel["prefetch"].is_null() ? Json("none") : parallel.value("prefetch", Json("pre"))},
              {"forward_prefetch", parallel.value("forward_prefetch", false)},
              {"original_parameters", parallel.value("orig_params", false)},
              {"offload", parallel.value("offload", false)},
              {"no_sync", parallel.value("no_sync", false)},
              {"wrap_trained_layers", parallel.value("wrap_trained", true)}};
  if (parallel.contains("mp")) fields["param_dtype"] = parallel["mp"];
  if (parallel.contains("reduce")) fields["reduce_dtype"] = parallel["reduce"];
  return parse_fsdp1(fields);
}

// DeepSpeed's own names within "zero".
DeepSpeedSettings deepspeed_of(const Json& parallel) {
  const Json zero = parallel.value("zero", Json::object());
  Json fields{{"world", parallel.value("world", 1)}, {"rank", parallel.value("rank", 0)}, {"stage", parallel.value("stage", 2)}};
  for (const auto& [theirs, ours, stage_3] : deepspeed_keys())
    if (zero.contains(theirs)) fields[ours] = zero[theirs];
  for (const char* key : {"offload_optimizer", "offload_param"})
    if (zero.contains(key)) fields[key] = true;
  const Json types = parallel.value("config", Json::object()).value("data_types", Json::object());
  if (types.contains("grad_accum_dtype")) fields["gradient_dtype"] = types["grad_accum_dtype"];
  return parse_deepspeed(fields);
}

ParallelSettings parallel_of(const Json& parallel) {
  ParallelSettings p;
  const std::string kind = parallel.value("kind", "none");
  if (kind == "fsdp2_tp") read_2d(parallel, p);
  if (kind == "ddp" || (kind == "zero1" && parallel.value("ddp", true))) p.ddp = ddp_of(parallel);
  if (kind == "fsdp2") p.fsdp = fsdp_of(parallel);
  if (kind == "fsdp1") p.fsdp1 = fsdp1_of(parallel);
  if (kind == "zero") p.deepspeed = deepspeed_of(parallel);
  if (kind == "tp") p.tensor = tensor_of(parallel);
  if (kind == "zero1")
    p.zero1 = parse_zero1({{"world", parallel.value("world", 1)},
                           {"rank", parallel.value("rank", 0)},
                           {"ddp", p.ddp.has_value()},
                           {"parameter_view", parallel.value("params_bucket_view", false)}});
  return p;
}

void apply_collation(const Config& c, Job& job) {
  Collation& collation = job.collation;
  collation.padding_given = true;
  if (c.flag({"padding"}, false)) collation.padding = Padding::mask;
  collation.collate = parse_collate(c.text({"collate"}, "pad"));
  const Json* lengths = c.find({"lengths"});
  if (!lengths) return;
  collation.lengths = parse_lengths(*lengths);
  job.batch = static_cast<int64_t>(collation.lengths.size());
  job.seq = *std::max_element(collation.lengths.begin(), collation.lengths.end());
}

// True, or what the average is.
void read_ema(Job& job, const Json& ema) {
  job.ema = ema.is_object() || ema == true;
  if (!ema.is_object()) return;
  job.averaging.update = parse_ema_update(ema.value("update", "loop"));
  job.averaging.dtype = parse_ema_type(ema.value("dtype", "weights"));
}

// Kinds of the recorder that the model makes here.
bool makes_inputs(const std::string& kind) { return kind == "audio" || kind == "segmentation" || kind == "multimodal"; }

Job job_of(const std::string& id, const Json& spec) {
  const Json& model = spec.at("model");
  Job job;
  job.model = id;
  const OwnModel* own = own_model(python_file(model));
  job.family = own                    ? (*own->family ? own->family : model.at("args").at("class").get<std::string>())
               : model.contains("tv") ? model["tv"].get<std::string>()
                                      : model.value("class", "");
  Json args = model.value("args", Json::object());
  if (spec.contains("use_cache")) args["use_cache"] = spec["use_cache"];
  for (const char* setting : {"images", "image_size"})  // of the inputs of multimodal.py
    if (model.contains(setting)) args[setting] = model[setting];
  if (own) {  // the model's own switch
    job.checkpointing.on = args.value("ckpt", own->checkpoints);
    args.erase("ckpt");
  }
  job.config = Config(id + ": args", args);
  const Config c(id, spec);
  job.batch = c.size({"batch"}, 1);
  job.seq = c.size({"seq"}, 128);
  const std::string kind = c.text({"inputs"}, "lm");
  job.inputs = own ? own->inputs : makes_inputs(kind) ? InputKind::own : parse_inputs(kind);
  job.precision = parse_precision(c.text({"precision"}, "fp32"));
  job.autocast = c.flag({"autocast"}, false);
  job.tuning = tuning_of(c);
  job.attention = parse_attention(c.text({"attn"}, "auto"));
  if (spec.contains("checkpoint")) job.checkpointing = parse_checkpointing(spec["checkpoint"]);
  if (spec.contains("offload_activations")) job.offload_activations = parse_offload(spec["offload_activations"], id);
  if (spec.contains("optimizer")) {
    job.optimizer.name = spec["optimizer"].value("name", "AdamW");
    job.optimizer.args = Config(id + ": optimizer", spec["optimizer"].value("args", Json::object()));
  }
  apply_collation(c, job);
  job.loss_settings.kernel = parse_loss_kernel(c.text({"loss_kernel"}, "model"));
  job.loss_settings.chunks = c.size({"loss_chunks"}, 8);
  if (const Json* kernels = c.find({"liger_kernels"})) job.loss_settings.liger = parse_liger_kernels(*kernels);
  job.accumulation = c.size({"accum"}, 1);
  const Json parallel = spec.value("parallel", Json::object());
  job.parallel = parallel_of(parallel);
  if (parallel.value("kind", "") == "torchtitan") job.program.torchtitan = torchtitan_of(parallel);
  if (job.program.torchtitan && args.contains("head_dim")) job.family = "qwen3";
  if (c.find({"clip"})) job.clip = c.number({"clip"}, 0);
  read_ema(job, spec.value("ema", Json(false)));
  job.optimizer_in_backward = c.flag({"optimizer_in_backward"}, false);
  job.loss_scaling = c.flag({"scaler"}, false);
  job.drop_output = c.flag({"drop_output"}, false);
  job.drop_after = c.flag({"drop_after"}, false);
  job.warm_optimizer = c.flag({"preopt"}, false);
  job.steps = c.size({"steps"}, 2);
  job.recorded_item = c.number({"item"}, 1);
  if (parallel.value("ac", "") == "outside") job.platform.transformers = {4, 51};  // the last to have it so
  return job;
}

RecordedRow row_of(const Json& j) {
  RecordedRow row;
  row.id = j.at("id").get<std::string>();
  const Json& spec = j.at("spec");
  row.unsupported = j.contains("error") ? "recording failed: " + j["error"].get<std::string>() : unsupported_field(spec);
  if (!j.contains("error")) row.peak = j.at("peak").get<int64_t>();
  row.rounded_peak = j.value("peak512", int64_t{0});
  row.parameters = j.value("params_rank", j.value("params", int64_t{0}));  // `params` was counted before adapters came
  row.trainable = j.value("trainable_rank", row.parameters);
  row.seconds = j.value("secs", 0.0);
  row.step_peaks = j.value("step_peaks", std::vector<int64_t>{});
  row.breakdown = j.value("breakdown", std::map<std::string, int64_t>{});
  if (row.breakdown.contains("ema_step")) row.breakdown["optim"] += row.breakdown.extract("ema_step").mapped();
  row.pools = j.value("stream_peak", std::map<std::string, int64_t>{});
  std::erase_if(row.pools, [](const auto& pool) { return pool.second == 0; });
  row.phase_peaks = j.value("phase_peak", std::map<std::string, int64_t>{});
  if (row.unsupported.empty()) row.job = job_of(row.id, spec);
  return row;
}

}  // namespace

std::vector<RecordedRow> read_recorded_rows(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw Error("[score] cannot open " + path, "give the path of a file with one recorded row per line");
  std::vector<RecordedRow> rows;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      rows.push_back(row_of(Json::parse(line)));
    } catch (const Json::exception& e) {
      throw Error(fmt::format("[score] {}:{}: {}", path, number, e.what()), "each line is one JSON object, see tools/recorder/README.md");
    }
  }
  return rows;
}

}  // namespace plimsoll
