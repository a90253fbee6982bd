// The trainer of STDiff (XiYe20/STDiffProject and its forks): YAML with Env, Dataset, STDiff and Training, run by accelerate.
#include <fmt/format.h>

#include "formats/format.h"
#include "formats/launch.h"
#include "job/settings.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr const char* kTrainer = "stdiff";

void read_image_size(Reader& r) {
  const Json* size = r.find("Dataset.image_size");
  if (!size) return;
  const std::string origin = r.origin("Dataset.image_size");
  if (size->is_array() && size->size() == 2) {
    r.config("height", (*size)[0], origin);
    r.config("width", (*size)[1], origin);
  } else if (size->is_number_integer()) {
    r.config("height", *size, origin);
    r.config("width", *size, origin);
  } else {
    throw Error(fmt::format("[{}] is {}, expected a side or [height, width]", origin, dump(*size).substr(0, 80)), "e.g. [64, 512]");
  }
}

void read_model(Reader& r) {
  r.set("model", "stdiff", "STDiff");
  read_image_size(r);
  r.config("observed", "Dataset.num_observed_frames");
  // the loader takes so many of the frames that follow, at random
  const bool random = r.flag("Dataset.rand_predict", false) && r.has("Dataset.rand_Tp");
  r.config("predicted", random ? "Dataset.rand_Tp" : "Dataset.num_predict_frames");
  if (random && r.integer("Dataset.rand_Tp", 0) != r.integer("Dataset.num_predict_frames", 0))
    r.finding(Effect::other, "Dataset.num_predict_frames",
              fmt::format("{} of them are trained on at a time", r.integer("Dataset.rand_Tp", 0)),
              "Dataset.rand_predict: the collate function draws rand_Tp frames");
  r.config("image_channels", "Dataset.num_channels");
  const std::string unet = "STDiff.Diffusion.unet_config.", net = "STDiff.DiffNet.";
  for (const char* key : {"in_channels", "out_channels", "m_channels", "layers_per_block", "block_out_channels", "down_block_types",
                          "up_block_types", "attention_head_dim"})
    r.config(key, unet + key);
  r.config("autoregressive", net + "autoregressive");
  r.config("model_channels", net + "MotionEncoder.model_channels");
  r.config("n_downs", net + "MotionEncoder.n_downs");
  r.config("n_layers", net + "DiffUnet.n_layers");
  r.config("dt", net + "Int.sde_options.dt");
  if (!r.flag(net + "Int.sde", true)) r.finding(Effect::unknown, net + "Int.sde", "the ODE is not simulated; the SDE is taken for it");
  r.ignore({"STDiff.Diffusion", "STDiff.DiffNet"});
}

void read_training(Reader& r) {
  r.set("batch", "Dataset.batch_size");
  r.set("workers", "Dataset.num_workers");
  r.set("accumulation", "Training.gradient_accumulation_steps");
  if (r.integer("Training.gradient_accumulation_steps", 1) > 1)
    r.finding(Effect::note, "Training.gradient_accumulation_steps", "micro-steps add to the same gradients: it does not double them",
              "train_stdiff.py, accelerator.accumulate");
  const std::string precision = r.text("Training.mixed_precision", "no");
  if (precision != "no" && precision != "fp16" && precision != "bf16")
    r.finding(Effect::refused, "Training.mixed_precision", "accelerate knows no, fp16 and bf16");
  set_or_default(r, "precision",
                 precision == "bf16"   ? "amp"
                 : precision == "fp16" ? "amp-fp16"
                                       : "fp32",
                 "Training.mixed_precision", kTrainer);
  if (precision == "fp16" || precision == "bf16")
    r.finding(Effect::partial, "Training.mixed_precision",
              "autocast: weights, gradients, AdamW's states and EMA stay in fp32, and so do the inputs of every GroupNorm",
              "accelerate's autocast; diffusers' ResnetBlock2D");
  if (r.flag("Training.use_ema", false)) r.set("ema_update", "diffusers", "Training.use_ema");
  if (r.flag("Training.gradient_checkpointing", false)) {
    r.set("checkpointing", true, "Training.gradient_checkpointing");
    r.finding(Effect::partial, "Training.gradient_checkpointing",
              "only the first block down and the last block up have the switch; blocks with attention and the middle keep everything",
              "train_stdiff.py sets gradient_checkpointing where a module has it: DownBlock2D and UpBlock2D");
  }
  r.config("use_xformers", r.flag("Training.use_xformers", false), r.origin("Training.use_xformers"));
  if (r.flag("Training.use_xformers", false))
    r.finding(Effect::note, "Training.use_xformers",
              "if xformers cannot be loaded there is only a warning, and attention keeps scores of tokens x tokens",
              "train_stdiff.py: the exception is caught");
  set_or_default(r, "clip", r.number("Training.max_grad_norm", 1.0), "Training.max_grad_norm", kTrainer);
  r.finding(Effect::note, "Training.save_images_epochs",
            "frames are sampled between epochs, without gradients, from a batch of training; this moment is not simulated",
            "train_stdiff.py: STDiffPipeline with the averaged weights, the trained ones meanwhile on the host");
  r.set_default("optimizer", "AdamW", kTrainer);
  r.ignore({"Training", "Env", "Dataset"});
}

void read_file(Reader& r) {
  require_mappings(r.document, {"Dataset", "STDiff", "Training"});
  r.job.trainer = kTrainer;
  read_model(r);
  read_training(r);
  r.set_default("alloc_conf", "max_split_size_mb:512", "train_stdiff.py");
  r.finish();
}

void read_command(Reader& r) {
  read_surroundings(r);
  r.job.trainer = kTrainer;
  r.include("/flags/train_config");
  if (!has_flag(r.document, "train_config")) r.note(Effect::refused, "train_stdiff.py asks for --train_config", "argparse, required");
  if (!r.text("launcher").empty()) set_world(r, processes_per_node(r), r.integer("nodes", 1), r.origin("launcher"));
  r.finish();
}

Evidence evidence_of_stdiff(const Document& d) {
  if (runs(d, {"train_stdiff.py"})) return {"train_stdiff.py"};
  const bool own = d.kind != Document::Kind::command && has_keys(d, {"STDiff.Diffusion.unet_config", "Dataset.batch_size", "Training"});
  return own ? Evidence{"STDiff.Diffusion.unet_config", "Dataset.batch_size", "Training"} : Evidence{};
}

void read_stdiff(Reader& r) {
  if (r.document.kind == Document::Kind::command)
    read_command(r);
  else
    read_file(r);
}

Encoded encode_precision(const EncodeRequest& w) { return encode_mixed_precision(w, "Training.mixed_precision", "no"); }
Encoded encode_checkpoints(const EncodeRequest& w) { return encode_plain_checkpointing(w, "Training.gradient_checkpointing"); }
Encoded encode_ema(const EncodeRequest& w) { return {{{"Training.use_ema", w.job.ema}}, ""}; }
Encoded no_optimizer(const EncodeRequest& w) {
  return {{}, fmt::format("train_stdiff.py makes torch.optim.AdamW itself: write {} there", w.job.optimizer.name)};
}
Encoded no_allocator(const EncodeRequest&) { return {{}, "train_stdiff.py sets PYTORCH_CUDA_ALLOC_CONF itself: write the value there"}; }

const SettingsEncoder& writes_stdiff() {
  static const SettingsEncoder kWrites{{{"batch", "Dataset.batch_size"},
                                        {"accumulation", "Training.gradient_accumulation_steps"},
                                        {"precision", "Training.mixed_precision", encode_precision},
                                        {"checkpointing", "Training.gradient_checkpointing", encode_checkpoints},
                                        {"clip", "Training.max_grad_norm"},
                                        {"ema", "Training.use_ema", encode_ema},
                                        {"optimizer", "", no_optimizer},
                                        {"optimizer_args", "", no_optimizer},
                                        {"alloc_conf", "", no_allocator},
                                        {"workers", "Dataset.num_workers"}}};
  return kWrites;
}

}  // namespace

const Format& stdiff_format() {
  static const Format kFormat{"stdiff",     "STDiff's YAML, or train_stdiff.py", Rank::trainer, evidence_of_stdiff, read_stdiff, nullptr,
                              writes_stdiff};
  return kFormat;
}

}  // namespace plimsoll
