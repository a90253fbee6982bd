// Few-shot diffusion models in JAX (thanhlamauto/few-shot-diffusion-models-jax): the flags of main_jax.py, under pmap on all local devices.
#include <fmt/format.h>

#include <algorithm>

#include "formats/format.h"
#include "formats/program.h"
#include "job/settings.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr const char* kTrainer = "fsdm";
constexpr int64_t kDevices = 8;  // TPU v5e-8, which its scripts are for

// Flags that shape the model, with main_jax.py's defaults.
struct ModelFlag {
  const char* name;
  Json otherwise;
};
const std::vector<ModelFlag>& model_flags() {
  static const std::vector<ModelFlag> kFlags{{"sample_size", 6},
                                             {"image_size", 32},
                                             {"patch_size", 2},
                                             {"diffusion_steps", 1000},
                                             {"dropout", 0.0},
                                             {"hidden_size", 468},
                                             {"depth", 6},
                                             {"num_heads", 9},
                                             {"mlp_ratio", 3.0},
                                             {"hdim", 448},
                                             {"encoder_depth", 6},
                                             {"encoder_heads", 8},
                                             {"encoder_dim_head", 56},
                                             {"encoder_mlp_ratio", 1.0},
                                             {"context_channels", 448},
                                             {"mode_conditioning", "film"},
                                             {"context_pool_size", 0},
                                             {"cross_attn_layers", "all"},
                                             {"use_remat", false}};
  return kFlags;
}

// Flags that are read and change nothing of a training step's memory.
constexpr std::string_view kOtherFlags[]{"dataset",
                                         "data_dir",
                                         "augment",
                                         "lr",
                                         "weight_decay",
                                         "lr_anneal_steps",
                                         "max_steps",
                                         "log_interval",
                                         "save_interval",
                                         "num_sample_batches",
                                         "resume_checkpoint",
                                         "clip_denoised",
                                         "use_ddim",
                                         "eta",
                                         "tag",
                                         "seed",
                                         "use_wandb",
                                         "wandb_project",
                                         "wandb_run_name",
                                         "compute_fid",
                                         "fid_mode",
                                         "fid_num_samples",
                                         "log_support_target",
                                         "vis_num_sets",
                                         "noise_schedule",
                                         "timestep_respacing",
                                         "use_kl",
                                         "predict_xstart",
                                         "rescale_timesteps",
                                         "rescale_learned_sigmas",
                                         "class_dropout_prob",
                                         "num_classes",
                                         "mode_context",
                                         "pool",
                                         "model",
                                         "in_channels"};

void read_batch(Reader& r) {
  const int64_t global = r.integer("/flags/batch_size", 16);
  int64_t devices = kDevices;
  if (global < 1) throw Error(fmt::format("[{}] is {}, expected a size", r.origin("/flags/batch_size"), global), "at least 1");
  if (global % kDevices != 0) {
    while (global % devices != 0) --devices;
    r.finding(Effect::refused, "/flags/batch_size",
              fmt::format("main_jax.py stops with a ValueError on {} devices: {} is not a multiple of {}; what follows is for {}", kDevices,
                          global, kDevices, devices),
              "main_jax.py: batch_size % jax.local_device_count()");
  }
  r.set("batch", global / devices, "/flags/batch_size");
  r.set("replicas", devices, "/flags/batch_size");
  r.note(Effect::note,
         fmt::format("{} devices are assumed: {} of {} sets on each, and a full copy of the state", devices, global / devices, global),
         "jax.pmap over jax.local_device_count()");
}

void read_effects(Reader& r) {
  if (r.flag("/flags/use_fp16", false))
    r.finding(Effect::none, "/flags/use_fp16", "all is fp32", "script_util_jax.py: not passed to the model");
  if (r.integer("/flags/freeze_dit_steps", 0) > 0)
    r.finding(Effect::none, "/flags/freeze_dit_steps", "gradients of the DiT are made and then set to zero: the same memory",
              "train_util_jax.py: lax.cond");
  if (const std::string mode = r.text("/flags/encoder_mode", "vit_set"); mode != "vit_set")
    r.finding(Effect::unknown, "/flags/encoder_mode", "vit_set is simulated in its place");
  if (const std::string mode = r.text("/flags/encoder_tokenize_mode", "stack"); mode != "stack")
    r.finding(Effect::unknown, "/flags/encoder_tokenize_mode", "stack is simulated in its place");
  r.finding(Effect::note, "/flags/ema_rate", "a full copy of the parameters, in fp32");
  if (r.integer("/flags/num_eval_batches", 10) > 0)
    r.note(Effect::note,
           fmt::format("evaluation runs op by op on one device, in batches of {}, with the averaged parameters; it is not simulated",
                       r.integer("/flags/batch_size_eval", 16)),
           "main_jax.py: eval_loop calls vfsddpm_loss outside of jit");
  r.note(Effect::note, "the state is not donated: at the end of a step the old and the new parameters, EMA and Adam are there at once",
         "train_util_jax.py: pmap without donate_argnums");
  r.note(Effect::note, "no pmean: each device trains on its own; memory is the same", "train_util_jax.py");
}

void read_unknown_flags(Reader& r) {
  std::vector<std::string> known{"batch_size", "use_fp16",   "freeze_dit_steps", "encoder_mode",     "encoder_tokenize_mode",
                                 "ema_rate",   "class_cond", "learn_sigma",      "num_eval_batches", "batch_size_eval"};
  known.insert(known.end(), std::begin(kOtherFlags), std::end(kOtherFlags));
  for (const ModelFlag& f : model_flags()) known.emplace_back(f.name);
  for (const auto& item : r.document.value["flags"].items())
    if (std::find(known.begin(), known.end(), item.key()) == known.end())
      r.finding(Effect::refused, "/flags/" + item.key(), "main_jax.py does not know the flag and stops", "argparse");
}

// A main_jax.py may be anybody's: its model's name, or two flags that nobody else has.
Evidence evidence_of_fsdm(const Document& d) {
  if (!runs(d, {"main_jax.py", "main.py"})) return {};
  if (flag_text(d, "model") == "vfsddpm_jax") return {program_of(d), "--model vfsddpm_jax"};
  Evidence own = keys_there(d, {"mode_conditioning", "encoder_tokenize_mode", "encoder_mode", "context_channels", "context_pool_size",
                                "cross_attn_layers", "encoder_dim_head", "freeze_dit_steps"});
  if (has_flag(d, "model") || own.size() < 2 || !runs(d, {"main_jax.py"})) return {};
  own.insert(own.begin(), "main_jax.py");
  return own;
}

void read_fsdm(Reader& r) {
  read_surroundings(r);
  r.job.trainer = kTrainer;
  r.set("model", "fsdm", "/flags/model");
  r.set("framework", "jax", "program");
  for (const ModelFlag& f : model_flags()) {
    const std::string path = std::string("/flags/") + f.name;
    Json value = r.has(path) ? *r.find(path) : f.otherwise;
    if (f.otherwise.is_string() && !value.is_string()) value = r.text(path);  // --cross_attn_layers 3
    r.config(f.name, value, r.has(path) ? r.origin(path) : std::string("default of main_jax.py"));
  }
  read_batch(r);
  r.set("precision", "fp32", "program");
  r.set("optimizer", "AdamW", "program");
  set_or_default(r, "ema", true, "/flags/ema_rate", kTrainer);
  r.set("donate", false, "program");
  r.set("device_kind", "tpu", "program");
  if (r.flag("/flags/learn_sigma", false) || r.flag("/flags/class_cond", false))
    r.note(Effect::unknown, "learn_sigma and class_cond are not simulated");
  read_effects(r);
  read_unknown_flags(r);
  for (const std::string_view flag : kOtherFlags) r.find("/flags/" + std::string(flag));
  r.finish();
}

// The flag counts the sets of all devices.
Encoded encode_batch(const EncodeRequest& w) { return {{{"batch_size", w.job.batch * w.job.program.jax.replicas}}, ""}; }

Encoded encode_config(const EncodeRequest& w) {
  Encoded encoded;
  for (const auto& item : w.job.config.values().items())
    if (w.before.config.values().value(item.key(), Json()) != item.value()) encoded.keys.push_back({item.key(), item.value()});
  return encoded;
}

Encoded no_precision(const EncodeRequest&) {
  return {{}, "use_fp16 reaches nothing in main_jax.py: the model would have to be built with dtype=jnp.bfloat16"};
}

Encoded no_donation(const EncodeRequest&) { return {{}, "write donate_argnums=(0,) into the jax.pmap of train_util_jax.py"}; }

const SettingsEncoder& writes_fsdm() {
  static const SettingsEncoder kWrites{{{"batch", "batch_size", encode_batch},
                                        {"config", "sample_size", encode_config},
                                        {"precision", "", no_precision},
                                        {"donate", "", no_donation}},
                                       FlagStyle::values};
  return kWrites;
}

}  // namespace

const Format& fsdm_format() {
  static const Format kFormat{"fsdm",     "main_jax.py of few-shot diffusion models", Rank::trainer, evidence_of_fsdm, read_fsdm, nullptr,
                              writes_fsdm};
  return kFormat;
}

}  // namespace plimsoll
