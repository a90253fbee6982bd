// The AI Toolkit (ostris/ai-toolkit): YAML whose config.process[0] has network, train, datasets and model. Parts of it, as its documents
// show them, are read too. The model is a preset by the toolkit's name of the architecture.
#include <fmt/format.h>

#include <algorithm>

#include "formats/format.h"
#include "formats/program.h"
#include "job/quantization_kind.h"
#include "job/settings.h"
#include "util/outcome.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr const char* kTrainer = "ai_toolkit";

// The toolkit's names of optimizers, and ours.
constexpr std::pair<const char*, const char*> kOptimizers[]{
    {"adamw8bit", "AdamW8bit"}, {"adam8bit", "Adam8bit"},      {"lion8bit", "Lion8bit"}, {"adamw", "AdamW"},
    {"adam", "Adam"},           {"lion", "lion_pytorch.Lion"}, {"prodigy", "Prodigy"},   {"adafactor", "TransformersAdafactor"}};

// network.transformer_only: adapters are in these parts of a transformer alone (get_transformer_block_names, lora_special.py).
constexpr std::pair<const char*, const char*> kBlocks[]{{"hidream", "double_stream_blocks|single_stream_blocks"},
                                                        {"lumina2", "noise_refiner|context_refiner|layers"},
                                                        {"omnigen2", "noise_refiner|context_refiner|layers"}};

const Json* process_of(const Document& d) {
  if (!has_keys(d, {"config.process"})) return nullptr;
  const Json& list = d.value["config"]["process"];
  return list.is_array() && !list.empty() && list[0].is_object() ? &list[0] : nullptr;
}

// Sections of a process by themselves, with keys that no other trainer has in them.
Evidence keys_of_part(const Document& d) {
  static const std::vector<std::string> kSections{"network", "train", "datasets", "model", "save", "sample", "logging"};
  if (!d.value.is_object()) return {};
  for (const auto& item : d.value.items())
    if (std::find(kSections.begin(), kSections.end(), item.key()) == kSections.end()) return {};
  Evidence own = keys_there(d, {"train.ema_config", "train.diff_output_preservation", "train.auto_scale_batch_size",
                                "train.noise_scheduler", "train.train_unet"});
  const Json& sets = d.value.value("datasets", Json());
  for (const char* key : {"folder_path", "cache_latents", "cache_latents_to_disk", "caption_ext"})
    if (sets.is_array() && !sets.empty() && sets[0].is_object() && sets[0].contains(key)) own.push_back(std::string("datasets.") + key);
  return own;
}

Evidence keys_of_toolkit(const Document& d) {
  if (d.kind != Document::Kind::yaml && d.kind != Document::Kind::json) return {};
  const Json* process = process_of(d);
  if (!process) return keys_of_part(d);
  Evidence own;
  for (const char* key : {"train", "datasets"})
    if (process->contains(key)) own.push_back(std::string("config.process.") + key);
  return own;
}

// What run.py is given, beside the command or from the working directory.
Evidence keys_of_named_toolkit_file(const Document& command) {
  const Json& arguments = command.value.at("arguments");
  if (arguments.size() != 1 || !arguments[0].is_string()) return {};
  const Outcome<Document> file = outcome_of([&] { return read_document(arguments[0].get<std::string>()); });
  return file ? keys_of_toolkit(*file) : Evidence{};
}

// process[0], with datasets[0] as a mapping of its own, as `r` reads no lists.
Document process_document(const Document& d) {
  Document out = d;
  const Json* process = process_of(d);
  Json value = process ? *process : d.value;
  if (value.contains("datasets") && value["datasets"].is_array() && !value["datasets"].empty()) {
    const Json list = value["datasets"];
    value.erase("datasets");
    for (size_t i = 0; i < list.size(); ++i) value[fmt::format("datasets[{}]", i)] = list[i];
  }
  out.value = std::move(value);
  return out;
}

std::vector<std::string> datasets_of(const Document& d) {
  std::vector<std::string> names;
  for (size_t i = 0; d.value.contains(fmt::format("datasets[{}]", i)); ++i) names.push_back(fmt::format("datasets[{}].", i));
  return names;
}

std::string arch_of(Reader& r) {
  std::string arch = r.text("model.arch", "");
  arch = arch.substr(0, arch.find(':'));
  if (arch == "sd15") arch = "sd1";
  if (!arch.empty()) return arch;
  for (const auto& [flag, name] : {std::pair{"is_v2", "sd2"},
                                   {"is_v3", "sd3"},
                                   {"is_xl", "sdxl"},
                                   {"is_pixart_sigma", "pixart_sigma"},
                                   {"is_pixart", "pixart"},
                                   {"is_auraflow", "auraflow"},
                                   {"is_flux", "flux"},
                                   {"is_lumina2", "lumina2"},
                                   {"is_vega", "vega"},
                                   {"is_ssd", "ssd"}})
    if (r.flag(std::string("model.") + flag, false)) return name;
  return "sd1";
}

std::string optimizer_of(Reader& r) {
  const std::string name = lower(r.text("train.optimizer", "adamw"));
  for (const auto& [theirs, ours] : kOptimizers)
    if (name == theirs) return ours;
  r.finding(Effect::unknown, "train.optimizer", "AdamW is simulated in its place");
  return "AdamW";
}

bool is_unet(const std::string& arch) { return arch == "sd1" || arch == "sd2" || arch == "sdxl"; }

// Convolutions larger than 1 x 1 have a rank of their own; those of 1 x 1 count as linear layers.
void target_convolutions(Reader& r, Json& lora) {
  lora["target_modules"] = {"to_q",    "to_k",     "to_v",          "to_out.0", "net.0.proj", "net.2",
                            "proj_in", "proj_out", "time_emb_proj", "linear_1", "linear_2",   "conv_shortcut",
                            "conv1",   "conv2",    "conv",          "conv_in",  "conv_out"};
  lora["rank_pattern"] = Json{{"conv1|conv2|conv|conv_in|conv_out", r.integer("network.conv", 1)}};
}

Json targets_of(Reader& r, const std::string& arch) {
  for (const auto& [name, blocks] : kBlocks)
    if (arch == name && r.flag("network.transformer_only", true)) return fmt::format(".*({})\\..*", blocks);
  return "all-linear";
}

void read_network(Reader& r) {
  if (!r.document.value.contains("network")) return;
  const std::string type = lower(r.text("network.type", "lora")), arch = arch_of(r);
  const char* rank_at = r.has("network.rank") ? "network.rank" : "network.linear";
  const int64_t rank = r.integer(rank_at, 4);
  const double alpha = r.number("network.linear_alpha", r.number("network.alpha", 1));
  Json lora{{"r", rank}, {"lora_alpha", alpha}, {"target_modules", targets_of(r, arch)}, {"implementation", "ai-toolkit"}};
  if (type == "lokr") {
    r.set("lokr", Json{{"r", rank}, {"target_modules", "all-linear"}}, rank_at);
    r.finding(Effect::note, "network.type", "simulated as PEFT computes it; the toolkit's own LoKr differs in its temporaries");
    r.finding(Effect::unknown, "network.conv", "adapters of convolutions larger than 1 x 1 are not counted");
  } else {
    if (type != "lora" && type != "locon") r.finding(Effect::unknown, "network.type", "LoRA is simulated in its place");
    if (r.has("network.conv") && is_unet(arch)) target_convolutions(r, lora);
    r.set("lora", lora, rank_at);
    if (r.has("network.conv") && !is_unet(arch))
      r.finding(Effect::none, "network.conv", "the blocks of this model have no convolutions", "toolkit/lora_special.py, transformer_only");
  }
  r.finding(Effect::unknown, "network.layer_offloading", "moving the adapter's layers is not simulated");
  r.ignore({"network"});
}

// The largest of all buckets decides; whether everything is cached decides about the autoencoder.
void read_datasets(Reader& r) {
  const std::vector<std::string> datasets = datasets_of(r.document);
  if (datasets.empty()) return;
  int64_t largest = 0, workers = 0, frames = 1;
  size_t resolutions = 0;
  std::string at = datasets[0] + "resolution", workers_at = datasets[0] + "num_workers";
  bool latents = true, texts = true;
  for (const std::string& set : datasets) {
    const Json* sides = r.find(set + "resolution");
    std::vector<Json> list = !sides ? std::vector<Json>{} : sides->is_array() ? sides->get<std::vector<Json>>() : std::vector<Json>{*sides};
    for (const Json& side : list) {
      if (!side.is_number_integer())
        throw Error(fmt::format("[{}] is {}, expected sides in pixels", r.origin(set + "resolution"), dump(*sides).substr(0, 80)),
                    "e.g. [512, 1024]");
      ++resolutions;
      if (side.get<int64_t>() > largest) largest = side.get<int64_t>(), at = set + "resolution";
    }
    const bool augmented = (r.has(set + "augments") && !r.find(set + "augments")->empty()) ||
                           (r.has(set + "augmentations") && !r.find(set + "augmentations")->empty());
    const bool cached = r.flag(set + "cache_latents", false) || r.flag(set + "cache_latents_to_disk", false);
    if (cached && augmented)
      r.finding(Effect::none, r.flag(set + "cache_latents", false) ? set + "cache_latents" : set + "cache_latents_to_disk",
                "with augmentations nothing is cached, and the autoencoder stays on the device",
                "toolkit/config_modules.py, DatasetConfig");
    latents = latents && cached && !augmented;
    texts = texts && r.flag(set + "cache_text_embeddings", false);
    if (const int64_t n = r.integer(set + "num_workers", 2); n > workers) workers = n, workers_at = set + "num_workers";
    frames = std::max(frames, r.integer(set + "num_frames", 1));
    if (r.integer(set + "gpu_prefetch_batches", 0) > 0)
      r.finding(Effect::unknown, set + "gpu_prefetch_batches", "batches that wait on the device are not counted");
    r.ignore({set.substr(0, set.size() - 1)});
  }
  if (largest > 0) {
    r.set("seq", largest, at);
    if (resolutions > 1) r.note(Effect::note, fmt::format("of {} resolutions the largest decides: {} px", resolutions, largest));
  } else {
    r.set_default("seq", 512, kTrainer);
  }
  if (frames > 1) r.config("frames", frames, r.origin("num_frames"));
  set_or_default(r, "workers", workers, workers_at, kTrainer);
  r.config("cache_latents", latents, r.origin(datasets[0] + "cache_latents"));
  if (texts) r.config("cache_text_embeddings", true, r.origin(datasets[0] + "cache_text_embeddings"));
}

void read_tuner(Reader& r) {
  if (!r.flag("train.auto_scale_batch_size", false)) return;
  r.finding(
      Effect::none, "train.auto_scale_batch_size",
      fmt::format("only the number in the progress bar changes; the DataLoader keeps batch_size {}, and a batch that runs out of memory is "
                  "skipped, not tried again",
                  r.integer("train.batch_size", 1)),
      "jobs/process/BaseSDTrainProcess.py prints the tuner's value; toolkit/batch_size_tuner.py");
  r.finding(Effect::none, "train.max_batch_size", "never reached: nothing but the tuner's tests ends its warm-up",
            "BatchSizeTuner.complete_warmup");
  r.finding(Effect::none, "train.batch_size_warmup_steps", "from the initial to the stable size, which are the same",
            "BatchSizeTuner.get_batch_size");
}

void read_accumulation(Reader& r) {
  const int64_t legacy = r.integer("train.gradient_accumulation_steps", 1), proper = r.integer("train.gradient_accumulation", 1);
  if (legacy > 1 && proper > 1)
    r.finding(Effect::refused, "train.gradient_accumulation", "not together with gradient_accumulation_steps: a ValueError",
              "toolkit/config_modules.py");
  if (legacy == -1)
    r.finding(Effect::note, "train.gradient_accumulation_steps", "over a whole epoch; the memory is that of two micro-steps");
  const int64_t steps = legacy == -1 ? 2 : std::max(legacy, proper);
  set_or_default(r, "accumulation", steps, proper > 1 ? "train.gradient_accumulation" : "train.gradient_accumulation_steps", kTrainer);
}

void read_train(Reader& r) {
  if (!r.document.value.contains("train")) return;
  r.set("batch", "train.batch_size");
  read_accumulation(r);
  const std::string dtype = r.text("train.dtype", "fp32");
  set_or_default(r, "precision",
                 dtype == "bf16" || dtype == "bfloat16"  ? "bf16"
                 : dtype == "fp16" || dtype == "float16" ? "fp16"
                                                         : "fp32",
                 "train.dtype", kTrainer);
  set_or_default(r, "optimizer", optimizer_of(r), "train.optimizer", kTrainer);
  if (r.flag("train.gradient_checkpointing", true)) set_or_default(r, "checkpointing", true, "train.gradient_checkpointing", kTrainer);
  if (optimizer_of(r) == "TransformersAdafactor")
    r.finding(Effect::none, "train.max_grad_norm", "gradients are not clipped for adafactor", "SDTrainer.py, hook_train_loop");
  else if (const double norm = r.number("train.max_grad_norm", 1.0); norm > 0)
    set_or_default(r, "clip", norm, "train.max_grad_norm", kTrainer);
  if (r.flag("train.ema_config.use_ema", false)) {
    r.set("ema_update", "ai-toolkit", "train.ema_config.use_ema");
    r.finding(Effect::note, "train.ema_config.use_ema",
              "a copy of what is trained: of an adapter some megabytes, of a whole model as much again");
  }
  if (r.flag("train.diff_output_preservation", false)) {
    r.config("dop", "train.diff_output_preservation");
    r.finding(Effect::note, "train.diff_output_preservation",
              "two predictions more in each step, one of them kept for backward: no fixed number of GB");
  }
  if (r.has("train.unload_text_encoder")) r.config("unload_text_encoder", "train.unload_text_encoder");
  if (r.flag("train.cache_text_embeddings", false)) r.config("cache_text_embeddings", "train.cache_text_embeddings");
  if (!r.flag("train.train_unet", true)) r.finding(Effect::unknown, "train.train_unet", "the denoiser is simulated as trained");
  read_tuner(r);
  r.ignore({"train"});
}

// What training in full leaves alone (toolkit/stable_diffusion_model.py, prepare_optimizer_params): the time embedding of U-Nets, and what
// has no name of its own in the maps of Stable Diffusion's checkpoints, as OpenCLIP keeps q, k and v in one matrix.
void read_full_training(Reader& r, const std::string& arch, bool texts) {
  r.set("frozen", Json{"time_embedding"}, "model.arch");
  r.note(Effect::partial, "the time embedding is not trained", "toolkit/stable_diffusion_model.py, DO_NOT_TRAIN_WEIGHTS");
  if (!texts || arch == "sd1") return;
  const std::string encoder = arch == "sdxl" ? "text_encoder_2" : "text_encoder";
  r.config("te_frozen", Json{{encoder, {"q_proj", "k_proj", "v_proj", "text_projection"}}}, r.origin("train.train_text_encoder"));
  r.finding(Effect::partial, "train.train_text_encoder", "q, k and v of OpenCLIP's text encoder are not trained",
            "toolkit/keymaps has no names for them: a checkpoint keeps them in one matrix");
}

// SDTrainer.py, BaseSDTrainProcess.py and toolkit/lora_special.py
void read_text_encoder_training(Reader& r) {
  const char* path = "train.train_text_encoder";
  const std::string arch = arch_of(r);
  const bool wanted = r.flag(path, false), full = !r.document.value.contains("network");
  const Config& config = r.job.config;
  const bool cached = config.flag({"unload_text_encoder"}, false) || config.flag({"cache_text_embeddings"}, false);
  static const std::vector<std::string> kWithoutClip{"chroma", "lumina2", "omnigen2", "qwen_image", "pixart", "pixart_sigma", "auraflow"};
  const bool clip = std::find(kWithoutClip.begin(), kWithoutClip.end(), arch) == kWithoutClip.end();
  bool trains = false;
  if (wanted && cached)
    r.finding(Effect::refused, path, "text encoders that are cached or unloaded cannot be trained: a ValueError", "SDTrainer.py");
  else if (wanted && config.flag({"dop"}, false))
    r.finding(Effect::refused, path, "not together with diff_output_preservation: a ValueError", "SDTrainer.py");
  else if (wanted && full && !is_unet(arch))
    r.finding(Effect::none, path, "no parameter of these text encoders is given to the optimizer",
              "prepare_optimizer_params knows the names of Stable Diffusion's alone");
  else if (wanted && !clip)
    r.finding(Effect::none, path, "no layer of these text encoders gets an adapter", "LoRA is put into CLIPAttention and CLIPMLP alone");
  else
    trains = wanted;
  if (trains) r.config("train_text_encoder", path);
  if (full && is_unet(arch)) read_full_training(r, arch, trains);
}

// toolkit/util/quantize.py, get_qtype: names of the toolkit's own codes, of torchao, or of optimum-quanto.
void read_qtype(Reader& r) {
  const std::string given = r.text("model.qtype", "qfloat8");
  const std::string qtype = given.substr(0, given.find('|'));  // toolkit/config_modules.py: behind it an accuracy recovery adapter
  if (qtype != given)
    r.finding(Effect::partial, "model.qtype", "the weights of its accuracy recovery adapter are not part of the answer",
              "a LoRA in the type of training that stays frozen beside the base");
  if (qtype == "uint8")
    return r.finding(Effect::none, "model.qtype", "no layer is quantised: uint8 is refused for each, and the toolkit goes on",
                     "toolkit/util/uintx_quant.py, UIntXQuantizer.can_quantize");
  const bool own = qtype.size() == 5 && qtype.starts_with("uint") && qtype[4] >= '2' && qtype[4] <= '7';
  r.set("quantization", own ? qtype : "qfloat8", r.has("model.qtype") ? "model.qtype" : "model.quantize");
  if (own && !r.flag("train.gradient_checkpointing", true))
    r.finding(Effect::partial, "model.qtype",
              "each layer unpacks its weight for a plain linear, which keeps it for backward: without checkpoints all of them are alive at "
              "once, in the full type",
              "toolkit/util/uintx_quant.py, UIntXQuantizer.forward");
  const bool same = qtype.starts_with("qfloat8") || qtype == "qint8";  // one byte a weight, one class (WeightQBytesTensor)
  if (!own && !same) r.finding(Effect::unknown, "model.qtype", "qfloat8 is simulated in its place");
}

// Of the architectures here, the loader of Qwen-Image alone attaches the memory manager.
void read_layer_offloading(Reader& r, const std::string& arch) {
  if (!arch.starts_with("qwen_image"))
    return r.finding(Effect::none, "model.layer_offloading", "nothing reads it for this architecture: all layers stay on the device",
                     "MemoryManager.attach is called by the loaders of qwen_image, wan21, wan22_14b, z_image, flux2 and newer ones");
  r.config("layer_offloading",
           Json{{"transformer", r.number("model.layer_offloading_transformer_percent", 1.0)},
                {"text_encoder", r.number("model.layer_offloading_text_encoder_percent", 1.0)}},
           r.origin("model.layer_offloading"));
  r.finding(Effect::note, "model.layer_offloading",
            "weights of these layers are in pinned memory of the host; two rings of four buffers pass them through the device, counted at "
            "their fullest",
            "toolkit/memory_management, PIPELINE_DEPTH");
}

void read_model(Reader& r) {
  if (!r.document.value.contains("model")) return;
  const std::string arch = arch_of(r);
  r.set("model", "ai-toolkit-" + arch, r.has("model.arch") ? "model.arch" : "model.name_or_path");
  const bool quantize = r.flag("model.quantize", false);
  if (r.flag("model.quantize_te", quantize))
    r.config("quantize_te", true, r.origin(r.has("model.quantize_te") ? "model.quantize_te" : "model.quantize"));
  if (quantize) read_qtype(r);
  if (const std::string te = r.text("model.qtype_te", "qfloat8"); te != "qfloat8" && r.flag("model.quantize_te", quantize))
    r.finding(Effect::unknown, "model.qtype_te", "text encoders are simulated in qfloat8");
  if (r.flag("model.low_vram", false))
    r.finding(Effect::partial, "model.low_vram", "quantises on the host, layer by layer; the training step needs the same");
  if (r.flag("model.layer_offloading", false)) read_layer_offloading(r, arch);
  if (arch == "hidream" && !r.flag("train.gradient_checkpointing", true))
    r.finding(Effect::refused, "train.gradient_checkpointing",
              "HiDream's experts are written into in place, which autograd allows under a checkpoint alone: backward ends in an error",
              "hidream/src/models/moe.py");
  r.ignore({"model"});
}

void read_yaml(Reader& outer) {
  const Document document = process_document(outer.document);
  require_mappings(document, {"network", "train", "model"});
  Reader r(outer.job, document);
  r.job.trainer = kTrainer;
  if (!process_of(outer.document)) r.note(Effect::note, "a part of a configuration of the AI Toolkit: the rest is not said");
  if (const Json* list = process_of(outer.document) ? &outer.document.value["config"]["process"] : nullptr; list && list->size() > 1)
    r.note(Effect::note, fmt::format("the first of {} processes", list->size()));
  read_model(r);
  read_network(r);
  read_train(r);
  read_datasets(r);
  if (r.document.value.contains("train") && r.document.value.contains("model")) read_text_encoder_training(r);
  r.ignore({"type", "training_folder", "device", "trigger_word", "performance_log_every", "save", "sample", "logging", "sqlite_db_path"});
  r.finish();
}

Evidence evidence_of_ai_toolkit(const Document& d) { return runs(d, {"run.py"}) ? keys_of_named_toolkit_file(d) : keys_of_toolkit(d); }

void read_ai_toolkit(Reader& r) {
  if (r.document.kind != Document::Kind::command) return read_yaml(r);
  read_surroundings(r);
  Document file = r.document;  // what run.py is given is a word, not a flag
  file.value = Json{{"file", r.document.value["arguments"][0]}};
  Reader named(r.job, file);
  named.include("file");
}

std::string place_of(const Json& file, const std::string& key) {
  return file.is_object() && file.contains("config") && file["config"].is_object() && file["config"].contains("process")
             ? "config.process.0." + key
             : key;
}

Encoded encode_accumulation(const EncodeRequest& w) {
  const bool legacy = w.whole("train.gradient_accumulation_steps") != 0 && w.whole("train.gradient_accumulation") <= 1;
  return {{{legacy ? "train.gradient_accumulation_steps" : "train.gradient_accumulation", w.job.accumulation}}, ""};
}

Encoded encode_precision(const EncodeRequest& w) {
  const Precision p = w.job.precision;
  if (p == Precision::amp || p == Precision::amp_fp16 || w.job.autocast)
    return {{}, "train.dtype is the type of everything: no autocast over fp32 weights"};
  return {{{"train.dtype", to_string(p)}}, ""};
}

Encoded encode_optimizer(const EncodeRequest& w) {
  for (const auto& [theirs, ours] : kOptimizers)
    if (w.job.optimizer.name == ours && w.job.optimizer.args.values().empty()) return {{{"train.optimizer", theirs}}, ""};
  return {};
}

Encoded encode_checkpoints(const EncodeRequest& w) { return encode_plain_checkpointing(w, "train.gradient_checkpointing"); }
Encoded encode_ema(const EncodeRequest& w) { return {{{"train.ema_config.use_ema", w.job.ema}}, ""}; }

Encoded encode_rank(const EncodeRequest& w) {
  const std::optional<AdapterSettings>& a = w.job.tuning.adapter;
  if (!a) return {{}, "leave the section network out to train the whole model"};
  Encoded encoded;
  if (w.text("network.type") != to_string(a->kind)) encoded.keys.push_back({"network.type", to_string(a->kind)});
  encoded.keys.push_back({w.has("network.rank") ? "network.rank" : "network.linear", a->r});
  if (a->kind == AdapterKind::lora)
    encoded.keys.push_back(
        {w.has("network.alpha") && !w.has("network.linear_alpha") ? "network.alpha" : "network.linear_alpha", plain_number(a->alpha)});
  return encoded;
}

Encoded encode_quantization(const EncodeRequest& w) {
  const std::optional<QuantizationSettings>& q = w.job.tuning.quantization;
  if (q && is_bitsandbytes(*q)) return {{}, "the toolkit's base is quantised as qfloat8 or uint2 to uint7, not by bitsandbytes"};
  Encoded encoded{{{"model.quantize", q.has_value()}}, ""};
  if (q && (q->type != "qfloat8" || w.has("model.qtype"))) encoded.keys.push_back({"model.qtype", q->type});
  return encoded;
}

// The largest of a list of resolutions decides: larger ones go.
Encoded encode_sides(const EncodeRequest& w) {
  Encoded encoded;
  for (size_t i = 0; w.find(fmt::format("datasets.{}", i)); ++i) {
    const std::string key = fmt::format("datasets.{}.resolution", i);
    const Json* sides = w.find(key);
    if (!sides) continue;
    if (!sides->is_array()) {
      encoded.keys.push_back({key, w.job.seq});
      continue;
    }
    Json kept = Json::array();
    for (const Json& side : *sides)
      if (side.is_number_integer() && side.get<int64_t>() < w.job.seq) kept.push_back(side);
    kept.push_back(w.job.seq);
    encoded.keys.push_back({key, kept});
  }
  if (encoded.keys.empty() && w.find("datasets.0")) encoded.keys.push_back({"datasets.0.resolution", Json::array({w.job.seq})});
  return encoded;
}

Encoded encode_workers(const EncodeRequest& w) {
  Encoded encoded;
  for (size_t i = 0; w.find(fmt::format("datasets.{}", i)); ++i)
    encoded.keys.push_back({fmt::format("datasets.{}.num_workers", i), w.job.host.workers});
  return encoded;
}

// What its reader takes from the toolkit's own keys.
Encoded encode_config(const EncodeRequest& w) {
  Encoded encoded;
  for (const auto& item : w.job.config.values().items()) {
    if (w.before.config.values().value(item.key(), Json()) == item.value()) continue;
    if (item.key() == "dop")
      encoded.keys.push_back({"train.diff_output_preservation", item.value()});
    else if (item.key() == "quantize_te")
      encoded.keys.push_back({"model.quantize_te", item.value()});
    else if (item.key() == "unload_text_encoder" || item.key() == "cache_text_embeddings" || item.key() == "train_text_encoder")
      encoded.keys.push_back({"train." + item.key(), item.value()});
    else if (item.key() == "cache_latents")
      for (size_t i = 0; w.find(fmt::format("datasets.{}", i)); ++i)
        encoded.keys.push_back({fmt::format("datasets.{}.cache_latents", i), item.value()});
    else
      return {};
  }
  return encoded;
}

const SettingsEncoder& writes_ai_toolkit() {
  static const SettingsEncoder kWrites{{{"batch", "train.batch_size"},
                                        {"accumulation", "train.gradient_accumulation", encode_accumulation},
                                        {"seq", "datasets.0.resolution", encode_sides},
                                        {"precision", "train.dtype", encode_precision},
                                        {"checkpointing", "train.gradient_checkpointing", encode_checkpoints},
                                        {"optimizer", "train.optimizer", encode_optimizer},
                                        {"optimizer_args", "train.optimizer", encode_optimizer},
                                        {"clip", "train.max_grad_norm"},
                                        {"ema", "train.ema_config.use_ema", encode_ema},
                                        {"lora", "network.linear", encode_rank},
                                        {"lokr", "network.linear", encode_rank},
                                        {"quantization", "model.quantize", encode_quantization},
                                        {"workers", "datasets.0.num_workers", encode_workers},
                                        {"config", "train.diff_output_preservation", encode_config}},
                                       FlagStyle::none,
                                       place_of};
  return kWrites;
}

}  // namespace

const Format& ai_toolkit_format() {
  static const Format kFormat{"ai_toolkit", "the AI Toolkit's YAML", Rank::trainer, evidence_of_ai_toolkit, read_ai_toolkit,
                              nullptr,      writes_ai_toolkit};
  return kFormat;
}

}  // namespace plimsoll
