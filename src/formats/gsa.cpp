// The trainer of alfredcs/Gated-Sparse-Attention: YAML with model (and in it gsa), training, data and logging, run by torchrun. Parts of
// such a file, as its documents show them, are read too.
#include <fmt/format.h>

#include <filesystem>

#include "formats/format.h"
#include "formats/launch.h"
#include "job/settings.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr const char* kTrainer = "gsa";

constexpr const char* kModelKeys[]{"d_model", "n_layers", "n_heads", "n_kv_heads", "d_ffn", "vocab_size", "max_position_embeddings"};
constexpr const char* kGsaKeys[]{"d_indexer", "n_indexer_heads", "k_base",          "k_min",
                                 "k_max",     "use_value_gate",  "use_output_gate", "use_adaptive_k"};

// Where a part of the file belongs in the whole: settings of training, or the section gsa, alone.
Document whole(Document d) {
  if (!d.value.is_object()) return d;
  if (d.value.contains("micro_batch_size")) d.value = Json{{"training", std::move(d.value)}};
  if (d.value.contains("gsa") && !d.value.contains("model")) d.value = Json{{"model", std::move(d.value)}};
  return d;
}

// The section gsa with a key of its own, or a setting of its indexer. Sizes of a model and settings of training are anybody's.
Evidence keys_of_gsa(const Document& d) {
  if (d.kind != Document::Kind::yaml && d.kind != Document::Kind::json) return {};
  const Document full = whole(d);
  Evidence own;
  for (const char* key : kGsaKeys)
    if (const std::string path = std::string("model.gsa.") + key; has_keys(full, {path})) own.push_back(path);
  for (const char* path : {"training.indexer_warmup_steps", "training.indexer_lr_multiplier"})
    if (has_keys(full, {path})) own.emplace_back(path);
  return own;
}

Evidence keys_of_named_file(const Document& command) {
  const std::string path = flag_text(command, "config");
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  try {
    return keys_of_gsa(read_document(path));
  } catch (const Error&) {
    return {};
  }
}

// From the product of the file, for a launcher that is not at hand.
void read_global_batch(Reader& r) {
  if (!r.has("training.global_batch_size") || !r.has("training.micro_batch_size")) return;
  const double global = r.number("training.global_batch_size", 0);
  const double rank = r.number("training.micro_batch_size", 1) * r.number("training.gradient_accumulation_steps", 1);
  const std::string why = "training/trainer.py: no code reads it";
  if (!r.job.parallel.ddp) {
    const double world = rank > 0 ? global / rank : 0;
    if (world >= 1 && world == static_cast<double>(static_cast<int64_t>(world)))
      r.finding(Effect::none, "training.global_batch_size", fmt::format("a label, for {:g} processes; the launcher decides", world), why);
    else
      r.finding(Effect::conflict, "training.global_batch_size",
                fmt::format("a label that no number of processes makes true: one takes {:g} samples a step", rank), why);
    return;
  }
  const double product = rank * static_cast<double>(r.job.parallel.ddp->world);
  if (global != product)
    r.finding(Effect::conflict, "training.global_batch_size",
              fmt::format("a label; {} processes take {:g} samples a step", r.job.parallel.ddp->world, product), why);
}

void read_model(Reader& r) {
  if (!has_keys(r.document, {"model"})) return;
  r.set("model", "gsa", "model");
  std::vector<std::string> missing;
  const auto require = [&](const std::string& path) {
    if (!r.has(path)) missing.push_back(path);
  };
  for (const char* key : kModelKeys) {
    const std::string path = std::string("model.") + key;
    require(path);
    r.config(key, path);
  }
  for (const char* key : kGsaKeys) require(std::string("model.gsa.") + key);
  for (const char* key : kGsaKeys) r.config(key, std::string("model.gsa.") + key);  // one level, so that each can be overridden
  if (!missing.empty())
    r.note(Effect::refused,
           fmt::format("as the file of --config it stops: {} not there; here the published run's values fill in",
                       missing.size() == 1 ? missing[0] + " is" : listed(missing) + " are"),
           "training/train.py: GSAConfig takes each of them");
  if (r.flag("model.gsa.use_adaptive_k", true))
    r.finding(Effect::none, "model.gsa.k_base",
              "with use_adaptive_k every query gathers min(k_max, length) keys; k_base alone saves nothing",
              "gsa/attention/adaptive_topk.py: tensors are k_max wide, k only masks");
  r.finding(Effect::none, "model.gsa.use_triton_kernels", "the model never calls the kernels in gsa/kernels",
            "gsa/attention/gated_sparse_attention.py");
  r.finding(Effect::none, "model.gsa.use_flash_attention", "keys and values are gathered, and no fused kernel is called",
            "gsa/attention/gated_sparse_attention.py");
}

void read_training(Reader& r) {
  r.set("batch", "training.micro_batch_size");
  r.set("accumulation", "training.gradient_accumulation_steps");
  r.set("seq", "training.max_seq_len");
  const std::string precision = r.text("training.precision", "bf16");
  set_or_default(r, "precision", precision == "bf16" ? "amp" : precision == "fp16" ? "amp-fp16" : "fp32", "training.precision", kTrainer);
  if (precision == "fp16")
    r.finding(Effect::note, "training.precision",
              "as many bytes as bf16, and a GradScaler besides; weights, gradients and Adam stay in fp32",
              "training/trainer.py: autocast and GradScaler");
  else if (precision != "bf16")
    r.finding(Effect::other, "training.precision", "autocast is off: all is fp32", "training/trainer.py: bf16 and fp16 alone turn it on");
  if (r.flag("training.gradient_checkpointing", false)) r.set("checkpointing", true, "training.gradient_checkpointing");
  if (const double norm = r.number("training.grad_clip", 1.0); norm > 0) set_or_default(r, "clip", norm, "training.grad_clip", kTrainer);
  if (const std::string optimizer = r.text("training.optimizer", "adamw"); optimizer != "adamw")
    r.finding(Effect::other, "training.optimizer", "AdamW is used", "training/optimizer.py: create_optimizer knows one");
  r.set_default("optimizer", "AdamW", kTrainer);
  r.finding(Effect::none, "training.indexer_warmup_steps", "stored and not used", "training/trainer.py");
  r.finding(
      Effect::partial, "training.indexer_lr_multiplier",
      "the indexer gets no gradient (it reaches the loss through indices alone), so that its weights never change and have no Adam state",
      "gsa/attention/gated_indexer.py");
  r.finding(Effect::none, "logging.eval_interval", "nothing is evaluated while it trains", "training/trainer.py: stored and not used");
  read_global_batch(r);
}

void read_file(Reader& outer) {
  const Document document = whole(outer.document);
  require_mappings(document, {"model", "training", "data"});
  Reader r(outer.job, document);
  r.job.trainer = kTrainer;
  const bool complete = has_keys(document, {"model", "training"});
  if (!complete)
    r.note(Effect::note, "a part of a configuration of Gated-Sparse-Attention: the rest is not said",
           "training/train.py needs model, training, data and logging");
  read_model(r);
  if (has_keys(document, {"training"})) read_training(r);
  r.set("workers", "data.num_workers");
  if (has_keys(document, {"data"})) r.set_default("pin_memory", true, kTrainer);
  r.ignore({"training.learning_rate", "training.min_learning_rate", "training.weight_decay", "training.beta1", "training.beta2",
            "training.eps", "training.warmup_steps", "training.lr_scheduler", "training.max_steps", "data", "logging"});
  r.finish();
}

void read_command(Reader& r) {
  read_surroundings(r);
  if (!r.document.value.value("launcher", "").empty())  // RANK is in the environment, also of one process
    set_world(r, processes_per_node(r), r.integer("nodes", 1), r.origin("launcher"),
              {{"find_unused_parameters", true}, {"no_sync", false}});
  r.include("/flags/config");
  if (!has_flag(r.document, "output_dir"))
    r.note(Effect::refused, "training/train.py asks for --output_dir", "training/train.py: argparse, required");
  r.finding(Effect::note, "/flags/resume_from",
            "torch.load without map_location: every process puts weights and Adam states on the device they were saved from, GPU 0, first",
            "gsa/utils/checkpoint.py");
  r.ignore({"/flags/wandb_run_name", "/flags/seed", "/flags/local_rank", "/flags/output_dir"});
  r.job.trainer = kTrainer;
  r.finish();
}

Evidence evidence_of_gsa(const Document& d) {
  if (d.kind != Document::Kind::command) return keys_of_gsa(d);
  const std::string config = runs(d, {"train.py"}) ? flag_text(d, "config") : "";
  if ((!config.ends_with(".yaml") && !config.ends_with(".yml")) ||
      !has_only_flags(d, {"config", "output_dir", "resume_from", "wandb_run_name", "seed", "local_rank"}))
    return {};
  return keys_of_named_file(d);
}

void read_gsa(Reader& r) {
  if (r.document.kind == Document::Kind::command)
    read_command(r);
  else
    read_file(r);
}

// Training settings, or the model's section, may stand alone.
std::string place_of(const Json& file, const std::string& key) {
  if (file.is_object() && file.contains("micro_batch_size") && key.starts_with("training.")) return key.substr(9);
  if (file.is_object() && file.contains("gsa") && !file.contains("model") && key.starts_with("model.")) return key.substr(6);
  return key;
}

Encoded encode_batch(const EncodeRequest& w) {
  Encoded encoded;
  if (w.job.batch != w.before.batch) encoded.keys.push_back({"training.micro_batch_size", w.job.batch});
  if (w.job.accumulation != w.before.accumulation) encoded.keys.push_back({"training.gradient_accumulation_steps", w.job.accumulation});
  for (KeyValue& k : product_of_batch(w, "training.global_batch_size")) encoded.keys.push_back(std::move(k));
  return encoded;
}

Encoded encode_precision(const EncodeRequest& w) { return encode_mixed_precision(w, "training.precision", "fp32"); }
Encoded encode_checkpoints(const EncodeRequest& w) { return encode_plain_checkpointing(w, "training.gradient_checkpointing"); }
Encoded no_optimizer(const EncodeRequest& w) {
  return {{}, fmt::format("training/optimizer.py knows AdamW alone: write {} there", w.job.optimizer.name)};
}

Encoded encode_config(const EncodeRequest& w) {
  Encoded encoded;
  for (const auto& item : w.job.config.values().items()) {
    if (w.before.config.values().value(item.key(), Json()) == item.value()) continue;
    const bool shape = std::find(std::begin(kModelKeys), std::end(kModelKeys), item.key()) != std::end(kModelKeys);
    encoded.keys.push_back({(shape ? "model." : "model.gsa.") + item.key(), item.value()});
  }
  return encoded;
}

const SettingsEncoder& writes_gsa() {
  static const SettingsEncoder kWrites{{{"batch", "training.micro_batch_size", encode_batch},
                                        {"accumulation", "training.gradient_accumulation_steps", encode_batch},
                                        {"seq", "training.max_seq_len"},
                                        {"precision", "training.precision", encode_precision},
                                        {"checkpointing", "training.gradient_checkpointing", encode_checkpoints},
                                        {"clip", "training.grad_clip"},
                                        {"optimizer", "", no_optimizer},
                                        {"optimizer_args", "", no_optimizer},
                                        {"workers", "data.num_workers"},
                                        {"config", "model.gsa.k_max", encode_config}},
                                       FlagStyle::none,
                                       place_of};
  return kWrites;
}

}  // namespace

const Format& gsa_format() {
  static const Format kFormat{
      "gsa", "Gated-Sparse-Attention's YAML, or its training/train.py", Rank::trainer, evidence_of_gsa, read_gsa, nullptr, writes_gsa};
  return kFormat;
}

}  // namespace plimsoll
