#include "score/published_row.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <fstream>

#include "score/published_litgpt.h"
#include "score/published_megatron.h"
#include "score/published_model.h"
#include "score/published_torchtitan.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr std::array kMeasuredKinds{"allocated_peak", "reserved_peak", "device_used", "static_allocated"};

std::string text_at(const Json& j, const char* key) { return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : ""; }
bool is_set(const Json& j, const char* key) {
  return j.contains(key) && !j[key].is_null() && j[key] != false && j[key] != 0 && j[key] != "none";
}

bool is_bitsandbytes(const Json& optimizer) {
  const std::string notes = lower(text_at(optimizer, "notes"));
  return optimizer["state_bits"] == 8 && notes.find("torchao") == std::string::npos &&
         (notes.find("bnb") != std::string::npos || notes.find("bitsandbytes") != std::string::npos);
}

bool is_torchao(const Json& optimizer) { return lower(text_at(optimizer, "notes")).find("torchao") != std::string::npos; }

// Our name of a base's type; empty: none.
std::string quantization_type(const Json& quantization) {
  const std::string kind = text_at(quantization, "kind");
  if (kind.rfind("nf4", 0) == 0) return "nf4";
  return kind == "gptq_int4" ? "gptq" : "";
}

int64_t degree(const Json& parallel, const char* key) {
  return parallel.contains(key) && parallel[key].is_number_integer() ? parallel[key].get<int64_t>() : 1;
}

bool is_fsdp(const Json& parallel) { return text_at(parallel, "fsdp").rfind("fsdp", 0) == 0; }

// Empty for one process, for PyTorch's own DistributedDataParallel over all of them, and for fully_shard. Its predecessor, FSDP1, gathers
// and reduces the same blocks in flat buffers: rows of it are executed as FSDP2.
std::string unsupported_parallel(const Json& row) {
  const Json& parallel = row.at("parallel");
  if (degree(parallel, "world") <= 1) return "";
  for (const char* key : {"zero_stage", "distributed_optimizer"})
    if (is_set(parallel, key) && !is_fsdp(parallel)) return std::string("parallel: ") + key;
  for (const char* key : {"tp", "pp", "cp", "ep"})
    if (degree(parallel, key) > 1) return std::string("parallel: ") + key;
  return "";
}

// What the row asks for that a Job has no word for.
std::string unsupported_part(const Json& row) {
  const Json& train = row.at("train");
  if (const std::string parallel = unsupported_parallel(row); !parallel.empty()) return parallel;
  if (text_at(train, "checkpointing").rfind("selective", 0) == 0) return "checkpointing: " + text_at(train, "checkpointing");
  if (train.at("trainable") != "full" && !is_set(train, "lora")) return "trainable: " + text_at(train, "trainable");
  if (is_set(train, "quantization") && quantization_type(train["quantization"]).empty())
    return "quantization: " + text_at(train["quantization"], "kind");
  if (is_set(train.at("optimizer"), "state_bits") && !is_bitsandbytes(train.at("optimizer")) && !is_torchao(train.at("optimizer")))
    return fmt::format("{}-bit optimizer", train.at("optimizer")["state_bits"].dump());
  return "";
}

// Empty when no Precision is meant.
std::string precision_of(const Json& p) {
  const std::string weights = text_at(p, "weights"), compute = text_at(p, "compute");
  if (weights == "fp32" && compute == "fp32") return "fp32";
  if (weights == "fp32" && compute == "bf16") return "fp32";  // FSDP gathers weights in bf16
  if (weights == "fp32" && compute == "bf16_autocast") return "amp";
  if (weights == "fp32" && compute == "fp16_autocast") return "amp-fp16";
  if (weights == compute && (weights == "bf16" || weights == "fp16")) return weights;
  // What is not quantised: bf16, or fp16 beside GPTQ's weights.
  if (weights == "nf4+bf16" || (weights == "int4+bf16" && compute == "bf16")) return "bf16";
  if (weights == "int4(gptq)+fp16") return "fp16";
  // finetrainers and cogvideox-factory: scripts take bf16, autocast is over weights that are in it when they are frozen.
  if (weights == "fp16_or_bf16") return "bf16";
  if (weights == "fp32" && compute == "fp16_or_bf16_autocast") return "amp";
  return "";
}

AttentionKernel attention_of(const std::string& text) {
  if (text.rfind("eager", 0) == 0) return AttentionKernel::eager;
  if (text.rfind("flash_attention_2", 0) == 0) return AttentionKernel::flash_attention_2;
  if (text.rfind("flash_attention", 0) == 0) return AttentionKernel::flash;
  return AttentionKernel::automatic;
}

void read_optimizer(const Json& o, Job& job) {
  static constexpr std::pair<const char*, const char*> kNames[]{{"adamw", "AdamW"},
                                                                {"adam", "Adam"},
                                                                {"sgd", "SGD"},
                                                                {"rmsprop", "RMSprop"},
                                                                {"adagrad", "Adagrad"},
                                                                {"none", "none"},
                                                                {"adafactor", "TransformersAdafactor"}};
  const std::string name = text_at(o, "name");
  job.optimizer.name = name;
  job.optimizer_in_backward = is_set(o, "step_in_backward");
  if (is_set(o, "paged")) {
    if (name != "adamw") throw Error("[published row] a paged " + name + " is not known", "paged are AdamW's 8- and 32-bit forms");
    job.optimizer.name = is_set(o, "state_bits") ? "PagedAdamW8bit" : "PagedAdamW";
    return;
  }
  if (is_set(o, "state_bits")) {
    job.optimizer.name = name == "adam" ? "Adam8bit" : "AdamW8bit";
    if (is_torchao(o)) job.optimizer.name = o["state_bits"] == 4 ? "torchao.AdamW4bit" : "torchao.AdamW8bit";
    return;
  }
  for (const auto& [theirs, ours] : kNames)
    if (name == theirs) job.optimizer.name = ours;
  Json args = Json::object();
  if (o.contains("foreach") && o["foreach"] == false) args["foreach"] = false;
  if (is_set(o, "fused")) args["fused"] = true;
  if (is_set(o, "momentum")) args["momentum"] = o["momentum"];
  if (name == "none" || name == "adafactor") args.clear();
  job.optimizer.args = Config("optimizer", args);
}

// Qwen's own code came with PEFT before 0.12, whose adapters took the type of a base in half precision.
bool is_first_qwen(const Job& job) { return job.family == "qwen"; }

// Lists that serve several models name modules which one of them has not; PEFT asks for one match. A pattern does, too.
Json any_of(const Json& names) {
  if (!names.is_array()) return names;
  std::string pattern;
  for (const Json& name : names) {
    if (!pattern.empty()) pattern += '|';
    for (const char c : name.get<std::string>()) pattern += c == '.' ? std::string("[.]") : std::string(1, c);
  }
  return "(?:.*[.])?(?:" + pattern + ")";
}

void read_tuning(const Json& row, Job& job) {
  const Json& train = row.at("train");
  if (is_set(train, "lora")) {
    const Json& lora = train["lora"];
    const std::string method = text_at(lora, "method");
    Json settings = Json::object();
    if (is_set(lora, "targets")) settings["target_modules"] = any_of(is_litgpt_row(row) ? litgpt_targets(row) : lora["targets"]);
    if (is_set(lora, "modules_to_save")) settings["modules_to_save"] = lora["modules_to_save"];
    if (text_at(train.at("precision"), "lora") == "bf16" || is_first_qwen(job)) settings["dtype"] = "base";
    if (method != "ln_tuning") {
      if (is_set(lora, "rank")) settings["r"] = lora["rank"];
      if (is_set(lora, "dropout")) settings["dropout"] = lora["dropout"];
      if (method == "dora") settings["use_dora"] = true;
    }
    if (method == "ia3") settings.erase("r"), settings.erase("dropout");
    job.tuning.adapter = parse_adapter(method == "ln_tuning" ? AdapterKind::ln_tuning
                                       : method == "ia3"     ? AdapterKind::ia3
                                                             : AdapterKind::lora,
                                       settings);
  }
  if (is_set(train, "quantization")) {
    Json settings{{"type", quantization_type(train["quantization"])}, {"double_quant", is_set(train["quantization"], "double_quant")}};
    if (is_fsdp(row.at("parallel")) && settings["type"] == "nf4") settings["storage"] = "bf16";  // else nothing would be sharded
    if (is_first_qwen(job) && settings["type"] == "gptq") settings["type"] = "gptq-torch";       // GPTQConfig(bits=4, disable_exllama=True)
    // The residual stream is in fp32 when prepare_model_for_kbit_training made the norms so.
    settings["prepare"] =
        train.contains("extra") && train["extra"].is_object() && text_at(train["extra"], "residual_stream_dtype") == "fp32";
    job.tuning.quantization = parse_quantization(settings);
    job.autocast = true;
  }
}

// Where the published loop has it: told by the row, or known from the project's public script.
ZeroGrad zero_grad_of(const Json& train, const std::string& framework) {
  const Json& extra = train.contains("extra") ? train["extra"] : Json();
  if (extra.is_object() && text_at(extra, "zero_grad") == "before forward") return ZeroGrad::before_forward;
  if (framework.find("peft method_comparison") != std::string::npos) return ZeroGrad::before_forward;
  if (framework.find("fabric") != std::string::npos) return ZeroGrad::before_backward;
  return ZeroGrad::after_step;
}

// torchtune's chunked loss takes logits by parts; others are the models' own.
void read_loss(const std::string& text, Job& job) {
  if (text.rfind("chunked_ce", 0) != 0) return;
  job.loss_settings.kernel = LossKernel::chunked_output;
  if (int chunks = 0; std::sscanf(text.c_str(), "chunked_ce(%d)", &chunks) == 1 && chunks > 0) job.loss_settings.chunks = chunks;
}

// The Trainer of transformers, or one that is made of it.
bool is_trainer(const Json& row) { return lower(text_at(row.at("software"), "framework")).find("trainer") != std::string::npos; }

void read_training(const Json& row, MeasuredKind kind, Job& job) {
  const Json& train = row.at("train");
  const Config c(row.at("id").get<std::string>(), train);
  job.batch = c.size({"batch_per_gpu"}, 1);
  job.seq = c.size({"seq_len"}, 1);
  if (is_set(train, "image_size")) {  // of a canvas that is not square the configuration knows the rest
    job.seq = train["image_size"].at(0).get<int64_t>();
    if (train["image_size"].at(1) != job.seq && !job.config.find({"width"})) throw Error("image that is not square");
    job.inputs = InputKind::image;
  }
  // Samples of different length: the peak is at the longest, what is left after a step is of the usual length.
  const Json& extra = train.contains("extra") ? train["extra"] : Json();
  if (extra.is_object() && is_set(extra, "mean_tokens_per_sample")) {
    job.longest = kind == MeasuredKind::resting ? 0 : job.seq;
    job.seq = extra["mean_tokens_per_sample"].get<int64_t>();
  }
  if (job.family == "mobilenet_v2" && extra.is_object() && is_set(extra, "images_per_step"))
    job.batch = extra["images_per_step"].get<int64_t>();
  job.precision = parse_precision(precision_of(train.at("precision")));
  job.attention = attention_of(text_at(train, "attention"));
  job.checkpointing.on = is_set(train, "checkpointing");
  job.accumulation = c.size({"grad_accum"}, 1);
  if (is_set(train, "grad_clip")) job.clip = train["grad_clip"].get<double>();
  if (text_at(train, "loss").rfind("logits.sum()", 0) == 0) job.loss = Loss::logits_sum;
  if (const int64_t world = degree(row.at("parallel"), "world"); is_fsdp(row.at("parallel"))) {
    const bool lower = text_at(train.at("precision"), "weights") == "fp32" && text_at(train.at("precision"), "compute") == "bf16";
    Json settings{{"world", world}, {"param_dtype", lower ? "bf16" : "own"}, {"reduce_dtype", lower ? "fp32" : "own"}};
    if (text_at(row.at("parallel"), "fsdp").rfind("fsdp1", 0) == 0) {
      settings["original_parameters"] = is_trainer(row);     // accelerate's default
      if (is_trainer(row) && is_set(train, "quantization"))  // _fsdp_qlora_plugin_updates: mixed precision in the type of the storage
        settings["param_dtype"] = settings["reduce_dtype"] = "bf16";
      job.parallel.fsdp1 = parse_fsdp1(settings);
    } else {
      job.parallel.fsdp = parse_fsdp(settings);
    }
  } else if (world > 1) {
    job.parallel.ddp = parse_ddp({{"world", world}});
  }
  read_optimizer(train.at("optimizer"), job);
  read_tuning(row, job);
  read_loss(text_at(train, "loss"), job);
  job.compile = is_set(train, "compile");
  if (text_at(train, "checkpointing").find("offload") != std::string::npos) job.offload_activations = Offload::pinned;
  const Json& software = row.at("software");
  if (const std::string torch = text_at(software, "torch"); !torch.empty()) job.platform.torch = parse_version("torch", torch);
  if (const std::string cuda = text_at(software, "cuda"); !is_set(software, "torch") && !cuda.empty())
    if (parse_version("cuda", cuda) < Version{11, 7}) job.platform.torch = {1, 10};  // not stated: the last built for such a CUDA
  if (const std::string version = text_at(software, "transformers"); !version.empty()) {
    job.platform.transformers = parse_version("transformers", version[0] == '~' ? version.substr(1) : version);
  } else if (job.platform.torch < Version{2, 6}) {
    job.platform.transformers = {4, 44};  // not stated: one of the time of its PyTorch
  }
  job.zero_grad = zero_grad_of(train, text_at(software, "framework"));
  // The Trainer of transformers keeps the loss alone during backward, and of that only the number after it.
  const std::string framework = lower(text_at(software, "framework"));
  job.drop_output = is_trainer(row) || framework.find("swift") != std::string::npos;
  // gradient_checkpointing_enable asked for reentrant checkpoints before 5.
  job.checkpointing.reentrant = job.checkpointing.on && is_trainer(row) && job.platform.transformers < Version{5, 0};
  job.drop_after = job.drop_output;
  // finetune.py and ms-swift give the Trainer bf16 or fp16, and the model is in that type when it is loaded.
  const bool named = text_at(train.at("precision"), "compute") == "16-bit autocast";
  job.autocast = job.autocast || is_first_qwen(job) || named;
  if (is_litgpt_row(row)) finish_litgpt_job(row, job);
}

PublishedRow published_row_of(const Json& j) {
  PublishedRow row;
  row.id = j.at("id").get<std::string>();
  row.family = j.at("family").get<std::string>();
  const Json& measured = j.at("measured");
  row.bytes = measured.at("bytes").get<int64_t>();
  if (row.bytes <= 0) throw Error(fmt::format("[score] {}: {} bytes were measured", row.id, row.bytes), "a measurement is above 0");
  const std::string kind = measured.at("kind").get<std::string>();
  const auto found = std::find(kMeasuredKinds.begin(), kMeasuredKinds.end(), kind);
  if (found == kMeasuredKinds.end())
    throw Error(fmt::format("[score] {}: kind '{}' is not known", row.id, kind),
                did_you_mean(kind, {kMeasuredKinds.begin(), kMeasuredKinds.end()}));
  row.kind = static_cast<MeasuredKind>(found - kMeasuredKinds.begin());
  row.confidence = j.value("confidence", 1.0);
  row.gpu = text_at(j.at("gpu"), "name");
  row.torch_stated = is_set(j.at("software"), "torch") || is_set(j.at("software"), "cuda");
  row.without_context = text_at(j.at("software"), "framework").find("xMem") != std::string::npos;
  Job& job = row.job;
  job.model = row.id;
  if (is_megatron_row(j) || is_torchtitan_row(j)) {
    try {
      row.unsupported = is_megatron_row(j) ? read_megatron_row(j, job) : read_torchtitan_row(j, job);
    } catch (const Error& e) {
      row.unsupported = e.what();
    }
    return row;
  }
  row.unsupported = unsupported_part(j);
  if (!row.unsupported.empty()) return row;
  if (precision_of(j.at("train").at("precision")).empty()) {
    row.unsupported = "precision: weights " + text_at(j.at("train")["precision"], "weights") + ", compute " +
                      text_at(j.at("train")["precision"], "compute");
    return row;
  }
  Json config = Json::object();
  const PublishedModel model = published_model(j, config);
  row.unsupported = model.unsupported;
  if (!row.unsupported.empty()) return row;
  job.family = model.family;
  job.config = Config(row.id + ": config", config);
  try {
    read_training(j, row.kind, job);
  } catch (const Error& e) {
    row.unsupported = e.what();
  }
  return row;
}

}  // namespace

const char* to_string(MeasuredKind kind) { return kMeasuredKinds[static_cast<size_t>(kind)]; }

bool is_published_row(const std::string& line) {
  const Json j = Json::parse(line, nullptr, false);
  return j.is_object() && j.contains("measured") && j["measured"].is_object();
}

std::vector<PublishedRow> read_published_rows(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw Error("[score] cannot open " + path, "give the path of a file with one row per line");
  std::vector<PublishedRow> rows;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      rows.push_back(published_row_of(Json::parse(line)));
    } catch (const Json::exception& e) {
      throw Error(fmt::format("[score] {}:{}: {}", path, number, e.what()), "each line is one JSON object with model, train and measured");
    }
  }
  return rows;
}

}  // namespace plimsoll
