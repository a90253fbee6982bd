// The trainer of infrabrew/mamba-recursive-model: JSON with model, vram and training, or train.py's flags. Much of what it declares for
// memory is read by nothing; what train.py makes of it is written here with the place in its code.
#include <fmt/format.h>

#include "formats/format.h"
#include "formats/mamba_vram.h"
#include "formats/program.h"
#include "job/settings.h"
#include "util/outcome.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr const char* kTrainer = "mamba_trainer";
constexpr int64_t kTokens = 50257;  // len(tokenizer) of gpt2

const std::vector<std::string> kModelKeys{
    "d_model",     "n_layers",        "d_state",    "expand_factor",       "dropout",
    "max_seq_len", "vocab_size",      "model_type", "max_recursion_depth", "use_hierarchical_attention",
    "description", "estimated_params"};
const std::vector<std::string> kVramKeys{"batch_size",  "gradient_accumulation_steps", "max_seq_len",
                                         "use_fp16",    "use_gradient_checkpointing",  "use_cpu_offload",
                                         "description", "recommended_models",          "effective_batch_size"};
const std::vector<std::string> kTrainingKeys{"learning_rate", "weight_decay",  "max_steps",     "warmup_steps",
                                             "eval_interval", "save_interval", "logging_steps", "adam_beta1",
                                             "adam_beta2",    "adam_epsilon",  "max_grad_norm", "label_smoothing"};
// Keys that are read with [], not with get().
const std::vector<std::string> kRequired{"model.max_seq_len",      "vram.batch_size",        "vram.gradient_accumulation_steps",
                                         "training.learning_rate", "training.adam_beta1",    "training.adam_beta2",
                                         "training.adam_epsilon",  "training.weight_decay",  "training.warmup_steps",
                                         "training.max_steps",     "training.eval_interval", "training.save_interval",
                                         "training.logging_steps", "training.max_grad_norm"};

bool only_keys(const Json& section, const std::vector<std::string>& known) {
  if (!section.is_object() || section.empty()) return false;
  for (const auto& item : section.items())
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) return false;
  return true;
}

// The section vram with keys of its own, beside nothing but model and training: those two alone are anybody's.
Evidence keys_of_sections(const Json& value) {
  if (!value.is_object() || !value.contains("vram")) return {};
  for (const auto& item : value.items())
    if (item.key() != "vram" && item.key() != "model" && item.key() != "training") return {};
  if (value.contains("model") && value["model"].is_object() && !only_keys(value["model"], kModelKeys)) return {};
  if (!value["vram"].is_object()) return value.contains("model") && value.contains("training") ? Evidence{"vram"} : Evidence{};
  if (!only_keys(value["vram"], kVramKeys)) return {};
  Evidence own;
  for (const auto& item : value["vram"].items()) own.push_back("vram." + item.key());
  return own;
}

// Two of its own flags; --model_size alone is anybody's. With --config it is the file that tells.
Evidence flags_of_trainer(const Document& d) {
  if (!has_only_flags(d, {"model_size", "vram", "vram_auto", "vram_safety_margin", "training_preset", "data_dir", "dataset",
                          "dataset_split", "text_column", "output_dir", "config", "resume"}))
    return {};
  if (const std::string path = flag_text(d, "config"); !path.empty()) {
    const Outcome<Document> file = outcome_of([&] { return plimsoll::read_document(path); });
    return file.value ? keys_of_sections(file.value->value) : Evidence{};
  }
  Evidence own = keys_there(d, {"vram", "vram_auto", "vram_safety_margin", "model_size", "training_preset"});
  return own.size() > 1 ? own : Evidence{};
}

void missing_keys(Reader& r) {
  std::vector<std::string> absent;
  for (const char* section : {"model", "vram", "training"})
    if (!has_keys(r.document, {section})) absent.push_back(section);
  if (!absent.empty())
    return r.note(Effect::refused,
                  fmt::format("a part of a configuration: as a file for --config it ends in a KeyError for {}", listed(absent)),
                  "train.py, Trainer: config['model'], config['vram'] and config['training'] are not optional");
  for (const std::string& key : kRequired)
    if (!has_keys(r.document, {key})) absent.push_back(key);
  if (!absent.empty())
    r.note(Effect::refused, fmt::format("train.py stops with a KeyError: {} {} missing", listed(absent), absent.size() == 1 ? "is" : "are"),
           "train.py, Trainer: read with [], no defaults");
}

void read_model(Reader& r) {
  if (!has_keys(r.document, {"model"})) return;
  r.set("model", "mamba-trainer", "model");
  for (const char* key :
       {"d_model", "n_layers", "d_state", "expand_factor", "dropout", "max_seq_len", "max_recursion_depth", "use_hierarchical_attention"})
    r.config(key, std::string("model.") + key);
  const std::string type = r.text("model.model_type", "");
  if (type == "hybrid_recursive")
    r.config("model_type", "model.model_type");
  else if (type != "standard")
    r.finding(Effect::other, "model.model_type", "the standard model is built", "train.py: only 'hybrid_recursive' is another one");
  if (r.integer("model.vocab_size", kTokens) != kTokens)
    r.finding(Effect::other, "model.vocab_size", fmt::format("the tokenizer's {} take its place", kTokens), "train.py, Trainer.__init__");
  r.config("vocab_size", kTokens, "the gpt2 tokenizer");
  r.set("seq", "model.max_seq_len");
  r.ignore({"model.description", "model.estimated_params"});
}

void read_vram(Reader& r) {
  r.set("batch", "vram.batch_size");
  r.set("accumulation", "vram.gradient_accumulation_steps");
  const int64_t declared = r.integer("vram.max_seq_len", 0), effective = r.integer("model.max_seq_len", 0);
  if (declared != effective && declared != 0)
    r.finding(Effect::none, "vram.max_seq_len",
              effective != 0 ? fmt::format("every sample is padded to model.max_seq_len, {} tokens", effective)
                             : "every sample is padded to model.max_seq_len, which is not here",
              "train.py: create_dataloader and the model take config['model']['max_seq_len']");
  if (r.has("vram.use_fp16"))
    r.set("precision", r.flag("vram.use_fp16", false) ? "amp-fp16" : "fp32", "vram.use_fp16");
  else
    r.set_default("precision", "fp32", kTrainer);
  if (r.flag("vram.use_fp16", false))
    r.finding(Effect::partial, "vram.use_fp16",
              "autocast: weights, gradients, Adam's states and the scan (exp, softplus) stay in fp32; it does not halve the memory",
              "train.py, train_step; models/mamba_model.py, selective_scan");
  if (r.flag("vram.use_gradient_checkpointing", false))
    r.finding(Effect::none, "vram.use_gradient_checkpointing", "a line is printed, nothing is checkpointed",
              "train.py, Trainer.__init__: no code after the message");
  if (r.flag("vram.use_cpu_offload", false))
    r.finding(Effect::none, "vram.use_cpu_offload", "nothing goes to the host", "no code reads it");
  const double product = r.number("vram.batch_size", 1) * r.number("vram.gradient_accumulation_steps", 1);
  if (r.number("vram.effective_batch_size", product) != product)
    r.finding(Effect::conflict, "vram.effective_batch_size", fmt::format("a label; the effective batch is {}", product));
  r.ignore({"vram.description", "vram.recommended_models"});
}

void read_training(Reader& r) {
  if (r.number("training.max_grad_norm", 0) > 0) r.set("clip", "training.max_grad_norm");
  if (r.number("training.label_smoothing", 0) != 0)
    r.finding(Effect::none, "training.label_smoothing", "the loss is a plain cross-entropy", "no code reads it");
  for (const std::string& key : kTrainingKeys) r.find("training." + key);
}

// What train.py does whatever is configured.
void read_loop(Reader& r) {
  r.job.trainer = kTrainer;
  r.set_default("optimizer", "AdamW", kTrainer);
  r.set_default("drop_output", true, kTrainer);  // train_step returns the loss alone
  r.set_default("pin_memory", true, kTrainer);
  r.set_default("eval_batch", r.job.batch, kTrainer);  // main() holds a tenth of the texts back; evaluate() takes the same loader's batch
  if (!r.job.alloc_conf.empty() && r.job.alloc_conf != "expandable_segments:True")
    r.note(Effect::other,
           fmt::format("the allocator's setting '{}' is replaced by expandable_segments:True", printable(r.job.alloc_conf, 60)),
           "train.py writes PYTORCH_ALLOC_CONF before it imports torch");
  apply_setting(r.job, "alloc_conf", "expandable_segments:True", "train.py");
  r.note(Effect::note,
         "train.py sets PYTORCH_ALLOC_CONF=expandable_segments:True itself; a PyTorch that knows PYTORCH_CUDA_ALLOC_CONF "
         "alone does not see it");
}

// Its own estimator beside the executed answer.
void read_estimator(Reader& r, const MambaShape& shape) {
  if (r.job.seq == 0) return;
  const double model = mamba_model_mb(shape), batch = mamba_batch_mb(shape, r.job.batch, r.job.seq);
  r.note(Effect::note,
         fmt::format(
             "its own estimator (in MiB) says {:.0f} for weights and Adam and {:.0f} for a batch of {} x {}: it counts fp16 weights, no "
             "gradients of weights, and 4 bytes an activation where the scan keeps 14 x {} for each",
             model, batch, r.job.batch, r.job.seq, shape.d_state),
         "utils/vram_optimizer.py, estimate_model_memory and estimate_batch_memory");
}

MambaShape shape_of(const Job& job) {
  MambaShape s;
  s.d_model = job.config.size({"d_model"}, s.d_model);
  s.n_layers = job.config.size({"n_layers"}, s.n_layers);
  s.d_state = job.config.size({"d_state"}, s.d_state);
  s.expand_factor = job.config.size({"expand_factor"}, s.expand_factor);
  return s;
}

void read_document(Reader& r) {
  require_mappings(r.document, {"model", "vram", "training"});
  if (r.document.comments)
    r.note(Effect::refused, "JSON has no comments: json.load stops with a JSONDecodeError", "configs/model_configs.py, load_config");
  missing_keys(r);
  read_model(r);
  read_vram(r);
  read_training(r);
  read_loop(r);
  if (!r.job.model.empty()) read_estimator(r, shape_of(r.job));
  r.finish();
}

void read_sizes(Reader& r, const MambaPreset& preset) {
  const std::string origin = fmt::format("{}: {}", r.origin("/flags/model_size"), preset.name);
  r.set("model", "mamba-trainer", "/flags/model_size");
  r.config("d_model", preset.shape.d_model, origin);
  r.config("n_layers", preset.shape.n_layers, origin);
  r.config("max_seq_len", preset.max_seq_len, origin);
  r.config("vocab_size", kTokens, "the gpt2 tokenizer");
  if (preset.recursion == 0) return;
  r.config("model_type", "hybrid_recursive", origin);
  r.config("max_recursion_depth", preset.recursion, origin);
}

// --vram: a number for the optimizer, or (16gb_medium alone) a preset.
void read_vram_flag(Reader& r, const MambaPreset& preset) {
  const std::string vram = r.text("/flags/vram", "16gb");
  const std::optional<double> target = mamba_vram_number(vram);
  MambaVram v;
  int64_t seq = preset.max_seq_len;
  if (target) {
    v = mamba_optimize(preset.shape, *target, static_cast<double>(r.integer("/flags/vram_safety_margin", 2048)));
    r.finding(Effect::other, "/flags/vram",
              fmt::format("not the preset of that name but a number for VRAMOptimizer, which takes {} x {} at {:g} GiB", v.batch,
                          v.accumulation, v.usable_gb),
              "train.py: without dots and 'gb' it is digits, so that get_config is never called");
    if (v.seq != seq)
      r.note(Effect::none, fmt::format("the {} tokens that VRAMOptimizer chooses: every sample is padded to the model's {}", v.seq, seq),
             "train.py: create_dataloader and the model take config['model']['max_seq_len']");
  } else if (vram == "16gb_medium") {
    v = {1, 16, 256, 0};
    seq = std::min(seq, v.seq);
    r.note(Effect::note, fmt::format("the one --vram that reaches its preset: 1 x 16, and the model's length becomes {}", seq),
           "configs/model_configs.py, get_config");
    r.note(Effect::none, "use_cpu_offload of the preset: nothing goes to the host", "no code reads it");
  } else {
    r.finding(Effect::refused, "/flags/vram", "train.py stops with a ValueError: it is neither a number nor a preset",
              "configs/model_configs.py, get_config");
    return;
  }
  r.set("batch", v.batch, "/flags/vram");
  r.set("accumulation", v.accumulation, "/flags/vram");
  r.set("seq", seq, "/flags/model_size");
  r.config("max_seq_len", seq, r.origin("/flags/model_size"));
  r.set("precision", "amp-fp16", "/flags/vram");
  if (v.checkpointing)
    r.note(Effect::none, "use_gradient_checkpointing, which it turns on: nothing is checkpointed", "train.py, Trainer.__init__");
}

void read_flags(Reader& r) {
  const std::string size = r.text("/flags/model_size", "medium"), training = r.text("/flags/training_preset", "default");
  const MambaPreset* preset = mamba_preset(size);
  if (!preset || !preset->choice)
    r.finding(Effect::refused, "/flags/model_size", "train.py does not offer it", "train.py: the choices of --model_size");
  if (training != "default" && training != "fast" && training != "careful")
    r.finding(Effect::refused, "/flags/training_preset", "known: default, fast, careful", "train.py: the choices of --training_preset");
  if (!preset) return;
  read_sizes(r, *preset);
  if (r.has("/flags/vram_auto"))
    r.finding(Effect::unknown, "/flags/vram_auto",
              "the batch follows from the cards it finds, all of them added up though one is used: give --vram",
              "utils/vram_optimizer.py, _calculate_total_vram");
  else
    read_vram_flag(r, *preset);
  r.set_default("clip", 1.0, kTrainer);
  read_loop(r);
  read_estimator(r, preset->shape);
}

void read_command(Reader& r) {
  read_surroundings(r);
  r.ignore({"/flags/data_dir", "/flags/dataset", "/flags/dataset_split", "/flags/text_column", "/flags/output_dir", "/flags/resume"});
  if (!r.has("/flags/config")) {
    read_flags(r);
  } else {
    for (const char* flag : {"/flags/model_size", "/flags/vram", "/flags/vram_auto", "/flags/vram_safety_margin", "/flags/training_preset"})
      r.finding(Effect::none, flag, "the file of --config stands alone", "train.py, main: load_config, and nothing else");
    r.include("/flags/config");
    read_loop(r);
  }
  r.finish();
}

Evidence evidence_of_mamba_trainer(const Document& d) {
  if (d.kind == Document::Kind::command) return runs(d, {"train.py"}) ? flags_of_trainer(d) : Evidence{};
  return d.kind == Document::Kind::json || d.kind == Document::Kind::yaml ? keys_of_sections(d.value) : Evidence{};
}

void read_mamba_trainer(Reader& r) {
  if (r.document.kind == Document::Kind::command)
    read_command(r);
  else
    read_document(r);
}

Encoded encode_batch(const EncodeRequest& w) {
  Encoded encoded;
  if (w.job.batch != w.before.batch) encoded.keys.push_back({"vram.batch_size", w.job.batch});
  if (w.job.accumulation != w.before.accumulation) encoded.keys.push_back({"vram.gradient_accumulation_steps", w.job.accumulation});
  if (w.find("vram.effective_batch_size")) encoded.keys.push_back({"vram.effective_batch_size", w.job.batch * w.job.accumulation});
  return encoded;
}

Encoded encode_length(const EncodeRequest& w) {
  Encoded encoded{{{"model.max_seq_len", w.job.seq}}, ""};
  if (w.find("vram.max_seq_len")) encoded.keys.push_back({"vram.max_seq_len", w.job.seq});
  return encoded;
}

Encoded encode_precision(const EncodeRequest& w) {
  if (w.job.precision != Precision::fp32 && w.job.precision != Precision::amp_fp16)
    return {{}, "train.py has fp32 and, with use_fp16, fp16 autocast: write torch.autocast(\"cuda\", torch.bfloat16) into its train_step"};
  return {{{"vram.use_fp16", w.job.precision == Precision::amp_fp16}}, ""};
}

Encoded no_checkpoints(const EncodeRequest&) {
  return {
      {},
      "use_gradient_checkpointing does nothing in train.py: wrap each layer of models/mamba_model.py in torch.utils.checkpoint.checkpoint"};
}

Encoded no_optimizer(const EncodeRequest& w) {
  return {{}, fmt::format("train.py makes torch.optim.AdamW itself: write {} there", w.job.optimizer.name)};
}

Encoded no_allocator(const EncodeRequest&) {
  return {{}, "train.py sets PYTORCH_ALLOC_CONF itself before it imports torch: write the value there"};
}

Encoded encode_config(const EncodeRequest& w) {
  Encoded encoded;
  for (const auto& item : w.job.config.values().items())
    if (w.before.config.values().value(item.key(), Json()) != item.value()) encoded.keys.push_back({"model." + item.key(), item.value()});
  return encoded;
}

const SettingsEncoder& writes_mamba_trainer() {
  static const SettingsEncoder kWrites{{{"batch", "vram.batch_size", encode_batch},
                                        {"accumulation", "vram.gradient_accumulation_steps", encode_batch},
                                        {"seq", "model.max_seq_len", encode_length},
                                        {"precision", "vram.use_fp16", encode_precision},
                                        {"clip", "training.max_grad_norm"},
                                        {"checkpointing", "", no_checkpoints},
                                        {"optimizer", "", no_optimizer},
                                        {"optimizer_args", "", no_optimizer},
                                        {"alloc_conf", "", no_allocator},
                                        {"config", "model.n_layers", encode_config}}};
  return kWrites;
}

}  // namespace

const Format& mamba_trainer_format() {
  static const Format kFormat{"mamba_trainer",     "mamba-recursive-model's JSON, or its train.py",
                              Rank::trainer,       evidence_of_mamba_trainer,
                              read_mamba_trainer,  nullptr,
                              writes_mamba_trainer};
  return kFormat;
}

}  // namespace plimsoll
