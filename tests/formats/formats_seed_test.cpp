// Configurations of five trainers whose memory documents claim more than their code does: settings, where they come from, findings.
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/mamba_vram.h"
#include "job/distribution.h"
#include "seed_formats.h"

namespace plimsoll::formats_seed_test {
namespace {

using Json = nlohmann::json;

int64_t config_of(const Job& job, const char* key) { return job.config.integer({key}, -1); }

// --- mamba-recursive-model

const char* kMamba = R"({
  "model": {"d_model": 512, "n_layers": 8, "d_state": 16, "expand_factor": 2, "dropout": 0.1, "max_seq_len": 1024, "vocab_size": 50257},
  "vram": {"batch_size": 2, "gradient_accumulation_steps": 8, "max_seq_len": 512, "use_fp16": true, "use_gradient_checkpointing": true,
           "use_cpu_offload": true, "effective_batch_size": 32},
  "training": {"learning_rate": 0.0003, "weight_decay": 0.1, "max_steps": 100000, "warmup_steps": 2000, "eval_interval": 1000,
               "save_interval": 5000, "logging_steps": 10, "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_epsilon": 1e-08,
               "max_grad_norm": 1.0, "label_smoothing": 0.1}
})";

TEST(MambaTrainer, ReadsItsJson) {
  const Job job = read_text(kMamba, "config.json");
  EXPECT_EQ(job.trainer, "mamba_trainer");
  EXPECT_EQ(job.model, "mamba-trainer");
  EXPECT_EQ(config_of(job, "d_model"), 512);
  EXPECT_EQ(config_of(job, "n_layers"), 8);
  EXPECT_EQ(config_of(job, "max_seq_len"), 1024);
  EXPECT_EQ(job.batch, 2);
  EXPECT_EQ(job.accumulation, 8);
  EXPECT_EQ(job.seq, 1024);  // the model's, not vram's 512
  EXPECT_EQ(job.precision, Precision::amp_fp16);
  EXPECT_EQ(job.clip, 1.0);
  EXPECT_TRUE(job.drop_output);
  EXPECT_FALSE(job.checkpointing.on);
  EXPECT_EQ(job.alloc_conf, "expandable_segments:True");
  EXPECT_EQ(job.origin.at("seq"), "config.json: model.max_seq_len");
  EXPECT_EQ(job.origin.at("batch"), "config.json: vram.batch_size");
  EXPECT_EQ(job.origin.at("config.d_model"), "config.json: model.d_model");
}

TEST(MambaTrainer, NamesWhatHasNoEffect) {
  const Job job = read_text(kMamba, "config.json");
  EXPECT_TRUE(finds(job, Effect::none, "vram.max_seq_len = 512; every sample is padded to model.max_seq_len, 1024"));
  EXPECT_TRUE(finds(job, Effect::none, "vram.use_gradient_checkpointing = true"));
  EXPECT_TRUE(finds(job, Effect::none, "vram.use_cpu_offload = true"));
  EXPECT_TRUE(finds(job, Effect::none, "training.label_smoothing = 0.1"));
  EXPECT_TRUE(finds(job, Effect::conflict, "the effective batch is 16"));
  EXPECT_TRUE(finds(job, Effect::partial, "vram.use_fp16 = true"));
  EXPECT_TRUE(finds(job, Effect::note, "PYTORCH_ALLOC_CONF"));
  EXPECT_TRUE(finds(job, Effect::note, "its own estimator"));
  EXPECT_FALSE(finds(job, Effect::refused, ""));
  EXPECT_FALSE(finds(job, Effect::unknown, "")) << findings_text(job);
}

TEST(MambaTrainer, RefusesWithWhatPythonSays) {
  Json config = Json::parse(kMamba);
  for (const char* key : {"adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"}) config["training"].erase(key);
  const Job missing = read_text(config.dump(), "config.json");
  EXPECT_TRUE(finds(missing, Effect::refused,
                    "KeyError: training.adam_beta1, training.adam_beta2, training.adam_epsilon and training.max_grad_norm"))
      << findings_text(missing);
  EXPECT_FALSE(missing.clip.has_value());
  const Job comments = read_text("{\n  // smaller\n" + std::string(kMamba).substr(1), "config.json");
  EXPECT_TRUE(finds(comments, Effect::refused, "JSONDecodeError"));
  EXPECT_EQ(comments.batch, 2);
  config["model"]["vocab_size"] = 32000;
  EXPECT_TRUE(finds(read_text(config.dump(), "config.json"), Effect::other, "model.vocab_size = 32000"));
  EXPECT_EQ(config_of(read_text(config.dump(), "config.json"), "vocab_size"), 50257);
}

TEST(MambaTrainer, BadValuesAreErrors) {
  Json config = Json::parse(kMamba);
  config["vram"]["batch_size"] = "many";
  EXPECT_THROW(read_text(config.dump(), "config.json"), Error);
  config["vram"]["batch_size"] = -1;
  EXPECT_THROW(read_text(config.dump(), "config.json"), Error);
  config = Json::parse(kMamba);
  config["vram"] = 3;
  EXPECT_THROW(read_text(config.dump(), "config.json"), Error);
}

TEST(MambaTrainer, ItsVramFlagIsANumber) {
  const Job job = read_command("python train.py --model_size medium --vram 16gb --training_preset fast --data_dir x");
  EXPECT_EQ(job.model, "mamba-trainer");
  EXPECT_EQ(config_of(job, "d_model"), 768);
  EXPECT_EQ(job.batch, 2);
  EXPECT_EQ(job.accumulation, 8);
  EXPECT_EQ(job.seq, 2048);
  EXPECT_EQ(job.precision, Precision::amp_fp16);
  EXPECT_TRUE(finds(job, Effect::other, "VRAMOptimizer, which takes 2 x 8 at 14 GiB")) << findings_text(job);
  EXPECT_TRUE(finds(job, Effect::none, "the 512 tokens that VRAMOptimizer chooses: every sample is padded to the model's 2048"));
  EXPECT_EQ(job.origin.at("batch"), "command line: --vram");
  EXPECT_FALSE(finds(job, Effect::unknown, ""));
}

TEST(MambaTrainer, OnePresetIsReached) {
  const Job job = read_command("python train.py --model_size medium --vram 16gb_medium");
  EXPECT_EQ(job.batch, 1);
  EXPECT_EQ(job.accumulation, 16);
  EXPECT_EQ(job.seq, 256);
  EXPECT_EQ(config_of(job, "max_seq_len"), 256);
}

TEST(MambaTrainer, RefusedFlags) {
  EXPECT_TRUE(finds(read_command("python train.py --model_size small --vram lots"), Effect::refused, "--vram = lots"));
  EXPECT_TRUE(finds(read_command("python train.py --vram 8gb --model_size huge"), Effect::refused, "--model_size = huge"));
  EXPECT_TRUE(finds(read_command("python train.py --vram 8gb --model_size hybrid-small-mini"), Effect::refused, "does not offer"));
  EXPECT_TRUE(finds(read_command("python train.py --vram 8gb --training_preset muon"), Effect::refused, "known: default"));
  EXPECT_TRUE(finds(read_command("python train.py --model_size small --vram_auto"), Effect::unknown, "give --vram"));
}

TEST(MambaTrainer, AFileStandsAlone) {
  const std::string path = ::testing::TempDir() + "/mamba.json";
  std::ofstream(path) << kMamba;
  const Job job = read_command("python train.py --config " + path + " --data_dir data --training_preset fast");
  EXPECT_TRUE(finds(job, Effect::none, "--training_preset = fast"));
  EXPECT_EQ(job.batch, 2);
}

TEST(MambaVram, OptimizerByUsableMemory) {
  const MambaShape medium = mamba_preset("medium")->shape;
  struct Row {
    double gb, margin;
    int64_t batch, seq, accumulation;
  };
  for (const Row& row : {Row{8, 400, 1, 256, 16}, Row{12, 400, 2, 512, 8}, Row{16, 2048, 2, 512, 8}, Row{24, 1024, 4, 1024, 4},
                         Row{32, 1024, 8, 1024, 2}, Row{48, 1024, 12, 2048, 2}}) {
    const MambaVram v = mamba_optimize(medium, row.gb, row.margin);
    EXPECT_EQ(v.batch, row.batch) << row.gb;
    EXPECT_EQ(v.seq, row.seq) << row.gb;
    EXPECT_EQ(v.accumulation, row.accumulation) << row.gb;
    EXPECT_EQ(v.checkpointing, row.gb - row.margin / 1024 < 24) << row.gb;
  }
  // nothing is left: it halves what it can
  const MambaVram none = mamba_optimize(mamba_preset("xxlarge")->shape, 2, 0);
  EXPECT_EQ(none.batch, 1);
  EXPECT_EQ(none.seq, 128);
  EXPECT_NEAR(mamba_batch_mb(medium, 2, 512), 75, 1);  // its estimate for what needs 5 GB
}

TEST(MambaVram, WhatCountsAsANumber) {
  EXPECT_EQ(mamba_vram_number("16gb"), 16.0);
  EXPECT_EQ(mamba_vram_number("20.5"), 20.5);
  EXPECT_FALSE(mamba_vram_number("16gb_medium").has_value());
  EXPECT_FALSE(mamba_vram_number("gb").has_value());
  EXPECT_FALSE(mamba_vram_number("1.2.3").has_value());
}

// --- Gated-Sparse-Attention

const char* kGsa = R"(
model:
  d_model: 512
  n_layers: 8
  n_heads: 8
  n_kv_heads: 2
  d_ffn: 1536
  vocab_size: 151936
  max_position_embeddings: 8192
  gsa:
    d_indexer: 64
    n_indexer_heads: 4
    k_base: 512
    k_min: 64
    k_max: 1024
    use_value_gate: true
    use_output_gate: true
    use_adaptive_k: true
training:
  optimizer: adamw
  learning_rate: 3.0e-4
  micro_batch_size: 2
  gradient_accumulation_steps: 32
  global_batch_size: 256
  max_seq_len: 1024
  precision: bf16
  gradient_checkpointing: true
  grad_clip: 1.0
  indexer_warmup_steps: 1000
  indexer_lr_multiplier: 10.0
data:
  num_workers: 4
logging:
  project: gsa-pretrain
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Gsa, ReadsItsYaml) {
  const Job job = read_text(kGsa, "low.yaml");
  EXPECT_EQ(job.trainer, "gsa");
  EXPECT_EQ(job.model, "gsa");
  EXPECT_EQ(config_of(job, "d_ffn"), 1536);
  EXPECT_EQ(job.config.values().at("k_max"), 1024);
  EXPECT_EQ(job.batch, 2);
  EXPECT_EQ(job.accumulation, 32);
  EXPECT_EQ(job.seq, 1024);
  EXPECT_EQ(job.precision, Precision::amp);
  EXPECT_TRUE(job.checkpointing.on);
  EXPECT_EQ(job.clip, 1.0);
  EXPECT_EQ(job.host.workers, 4);
  EXPECT_TRUE(job.host.pin_memory);
  EXPECT_FALSE(job.parallel.ddp.has_value());
  EXPECT_EQ(job.origin.at("seq"), "low.yaml: training.max_seq_len");
  EXPECT_FALSE(finds(job, Effect::unknown, "")) << findings_text(job);
  EXPECT_FALSE(finds(job, Effect::refused, ""));
}

TEST(Gsa, NamesWhatHasNoEffect) {
  const Job job = read_text(kGsa, "low.yaml");
  EXPECT_TRUE(finds(job, Effect::none, "model.gsa.k_base = 512"));
  EXPECT_TRUE(finds(job, Effect::none, "training.indexer_warmup_steps"));
  EXPECT_TRUE(finds(job, Effect::none, "a label, for 4 processes"));
  EXPECT_FALSE(finds(read_text(replaced(kGsa, "use_adaptive_k: true", "use_adaptive_k: false"), "x.yaml"), Effect::none, "k_base"));
  EXPECT_TRUE(
      finds(read_text(replaced(kGsa, "global_batch_size: 256", "global_batch_size: 250"), "x.yaml"), Effect::conflict, "no number"));
  EXPECT_THROW(read_text("model: {gsa: {k_max: 8}}\ntraining: 3", "x.yaml"), Error);
  EXPECT_TRUE(finds(read_text(replaced(kGsa, "optimizer: adamw", "optimizer: lion"), "x.yaml"), Effect::other, "AdamW is used"));
  EXPECT_TRUE(finds(read_text(replaced(kGsa, "    k_max: 1024\n", ""), "x.yaml"), Effect::refused, "model.gsa.k_max is not there"));
  const Job half = read_text(replaced(kGsa, "precision: bf16", "precision: fp16"), "x.yaml");
  EXPECT_EQ(half.precision, Precision::amp_fp16);
  EXPECT_TRUE(finds(half, Effect::note, "as many bytes as bf16"));
  EXPECT_EQ(read_text(replaced(kGsa, "precision: bf16", "precision: fp32"), "x.yaml").precision, Precision::fp32);
}

TEST(Gsa, UnderTorchrun) {
  const std::string path = ::testing::TempDir() + "/gsa_low.yaml";
  std::ofstream(path) << kGsa;
  const Job job = read_command("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True torchrun --nproc_per_node=2 training/train.py --config " +
                               path + " --output_dir out --resume_from out/step_5000");
  EXPECT_EQ(job.model, "gsa");
  ASSERT_TRUE(job.parallel.ddp.has_value());
  EXPECT_EQ(job.parallel.ddp->world, 2);
  EXPECT_TRUE(job.parallel.ddp->find_unused_parameters);
  EXPECT_FALSE(job.parallel.ddp->no_sync);
  EXPECT_EQ(job.alloc_conf, "expandable_segments:True");
  EXPECT_TRUE(finds(job, Effect::conflict, "2 processes take 128 samples a step")) << findings_text(job);
  EXPECT_TRUE(finds(job, Effect::note, "--resume_from"));
  const Job nodes = read_command("torchrun --nnodes 2 --nproc_per_node=2 scripts/train.py --config " + path);
  EXPECT_EQ(nodes.parallel.ddp->world, 4);
  EXPECT_FALSE(finds(nodes, Effect::conflict, ""));
  EXPECT_TRUE(finds(nodes, Effect::refused, "--output_dir"));
}

// --- STDiff

const char* kStdiff = R"(
Env: {output_dir: out, logger: tensorboard}
Dataset:
  name: KITTI_RANGE
  batch_size: 2
  num_workers: 3
  num_channels: 1
  image_size: [64, 512]
  num_observed_frames: 3
  num_predict_frames: 5
  rand_Tp: 3
  rand_predict: True
STDiff:
  Diffusion:
    prediction_type: epsilon
    unet_config:
      sample_size: [64, 512]
      in_channels: 2
      out_channels: 1
      m_channels: 256
      layers_per_block: 2
      block_out_channels: [128, 256, 256, 512, 512]
      attention_head_dim: [null, 128, 128, 128, 128]
  DiffNet:
    autoregressive: True
    MotionEncoder: {model_channels: 64, n_downs: 2}
    DiffUnet: {n_layers: 2}
    Int: {sde: True, sde_options: {dt: 0.1}}
Training:
  use_ema: True
  learning_rate: 1e-4
  max_grad_norm: 5.0
  gradient_accumulation_steps: 2
  mixed_precision: fp16
  gradient_checkpointing: True
  use_xformers: True
)";

TEST(Stdiff, ReadsItsYaml) {
  const Job job = read_text(kStdiff, "kitti.yaml");
  EXPECT_EQ(job.model, "stdiff");
  EXPECT_EQ(config_of(job, "height"), 64);
  EXPECT_EQ(config_of(job, "width"), 512);
  EXPECT_EQ(config_of(job, "observed"), 3);
  EXPECT_EQ(config_of(job, "predicted"), 3);
  EXPECT_EQ(job.config.values().at("block_out_channels"), Json({128, 256, 256, 512, 512}));
  EXPECT_TRUE(job.config.values().at("attention_head_dim")[0].is_null());
  EXPECT_TRUE(job.config.flag({"use_xformers"}, false));
  EXPECT_EQ(job.batch, 2);
  EXPECT_EQ(job.accumulation, 2);
  EXPECT_EQ(job.precision, Precision::amp_fp16);
  EXPECT_TRUE(job.ema);
  EXPECT_EQ(job.averaging.update, EmaUpdate::diffusers);
  EXPECT_TRUE(job.checkpointing.on);
  EXPECT_EQ(job.clip, 5.0);
  EXPECT_EQ(job.host.workers, 3);
  EXPECT_EQ(job.alloc_conf, "max_split_size_mb:512");
  EXPECT_EQ(job.origin.at("config.width"), "kitti.yaml: Dataset.image_size");
  EXPECT_TRUE(finds(job, Effect::partial, "Training.gradient_checkpointing"));
  EXPECT_TRUE(finds(job, Effect::note, "Training.use_xformers"));
  EXPECT_TRUE(finds(job, Effect::note, "does not double"));
  EXPECT_TRUE(finds(job, Effect::other, "Dataset.num_predict_frames = 5"));
  EXPECT_FALSE(finds(job, Effect::unknown, "")) << findings_text(job);
}

TEST(Stdiff, SquareImagesAndPlainRuns) {
  std::string text = replaced(kStdiff, "image_size: [64, 512]", "image_size: 64");
  text = replaced(text, "mixed_precision: fp16", "mixed_precision: \"no\"");
  text = replaced(text, "  use_xformers: True\n", "");
  const Job job = read_text(text, "smmnist.yaml");
  EXPECT_EQ(config_of(job, "width"), 64);
  EXPECT_EQ(job.precision, Precision::fp32);
  EXPECT_FALSE(job.config.flag({"use_xformers"}, true));
  EXPECT_THROW(read_text(replaced(kStdiff, "image_size: [64, 512]", "image_size: [64]"), "x.yaml"), Error);
}

TEST(Stdiff, UnderAccelerate) {
  const std::string path = ::testing::TempDir() + "/stdiff.yaml";
  std::ofstream(path) << kStdiff;
  const Job job = read_command("accelerate launch --num_processes 2 train_stdiff.py --train_config " + path);
  EXPECT_EQ(job.model, "stdiff");
  EXPECT_EQ(world_size(job), 2);
  EXPECT_TRUE(finds(read_command("accelerate launch train_stdiff.py --seed 1"), Effect::refused, "--train_config"));
}

// --- few-shot diffusion models

const char* kLagMode =
    "#!/bin/bash\n\n# Lag mode\n\npython main_jax.py \\\n  --model vfsddpm_jax \\\n  --encoder_mode vit_set --dataset cifar100 --data_dir "
    "/d \\\n"
    "  --sample_size 6 --image_size 32 --patch_size 2 --batch_size 32 --lr 1e-4 --diffusion_steps 250 --hidden_size 468 --depth 6 \\\n"
    "  --num_heads 9 --mlp_ratio 3.0 --encoder_depth 6 --encoder_heads 12 --encoder_dim_head 64 --encoder_mlp_ratio 1.0 \\\n"
    "  --encoder_tokenize_mode stack --hdim 256 --context_channels 256 --mode_conditioning lag\n";

TEST(Fsdm, ReadsItsScript) {
  const Job job = read_command(kLagMode);
  EXPECT_EQ(job.model, "fsdm");
  EXPECT_EQ(job.program.framework, Framework::jax);
  EXPECT_EQ(job.batch, 4);  // 32 sets on 8 devices
  EXPECT_EQ(job.program.jax.replicas, 8);
  EXPECT_FALSE(job.program.jax.donate);
  EXPECT_EQ(job.precision, Precision::fp32);
  EXPECT_TRUE(job.ema);
  EXPECT_EQ(config_of(job, "sample_size"), 6);
  EXPECT_EQ(config_of(job, "hidden_size"), 468);
  EXPECT_EQ(config_of(job, "encoder_heads"), 12);
  EXPECT_EQ(job.config.text({"mode_conditioning"}, ""), "lag");
  EXPECT_EQ(job.origin.at("batch"), "command line: --batch_size");
  EXPECT_EQ(job.origin.at("config.dropout"), "default of main_jax.py");
  EXPECT_TRUE(finds(job, Effect::note, "not donated"));
  EXPECT_FALSE(finds(job, Effect::refused, "")) << findings_text(job);
  EXPECT_FALSE(finds(job, Effect::unknown, "")) << findings_text(job);
}

TEST(Fsdm, DefaultsAreTheScripts) {
  const Job job = read_command("python main.py --model vfsddpm_jax --batch_size 16");
  EXPECT_EQ(config_of(job, "hdim"), 448);
  EXPECT_EQ(config_of(job, "diffusion_steps"), 1000);
  EXPECT_EQ(job.config.text({"mode_conditioning"}, ""), "film");
}

TEST(Fsdm, BatchesThatEightDevicesRefuse) {
  const Job job = read_command("python main_jax.py --model vfsddpm_jax --batch_size 4 --sample_size 3");
  EXPECT_TRUE(finds(job, Effect::refused, "4 is not a multiple of 8; what follows is for 4"));
  EXPECT_EQ(job.program.jax.replicas, 4);
  EXPECT_EQ(job.batch, 1);
  EXPECT_EQ(read_command("python main_jax.py --model vfsddpm_jax --batch_size 6").program.jax.replicas, 6);
  EXPECT_THROW(read_command("python main_jax.py --model vfsddpm_jax --batch_size 0"), Error);
}

TEST(Fsdm, FlagsWithoutEffectAndWithoutPlace) {
  const Job job = read_command(
      "python main_jax.py --model vfsddpm_jax --batch_size 8 --use_fp16 True --freeze_dit_steps 100 --use_checkpoint True "
      "--cross_attn_layers \"2,3,4,5\" --use_remat True");
  EXPECT_TRUE(finds(job, Effect::none, "--use_fp16"));
  EXPECT_TRUE(finds(job, Effect::none, "--freeze_dit_steps"));
  EXPECT_TRUE(finds(job, Effect::refused, "--use_checkpoint"));
  EXPECT_TRUE(job.config.flag({"use_remat"}, false));
  EXPECT_EQ(job.config.text({"cross_attn_layers"}, ""), "2,3,4,5");
}

// --- AI Toolkit

const char* kToolkit = R"(
job: extension
config:
  name: my_lora
  process:
    - type: sd_trainer
      training_folder: output
      device: cuda:0
      network: {type: lora, linear: 16, linear_alpha: 16}
      save: {dtype: float16, save_every: 250}
      datasets:
        - folder_path: /images
          caption_ext: txt
          cache_latents_to_disk: true
          resolution: [512, 768, 1024]
      train:
        batch_size: 4
        steps: 2000
        gradient_accumulation_steps: 2
        gradient_checkpointing: true
        noise_scheduler: flowmatch
        optimizer: adamw8bit
        lr: 1e-4
        dtype: bf16
        ema_config: {use_ema: true, ema_decay: 0.99}
        auto_scale_batch_size: true
        max_batch_size: 8
        batch_size_warmup_steps: 100
      model:
        name_or_path: black-forest-labs/FLUX.1-dev
        is_flux: true
        quantize: true
      sample: {sampler: flowmatch}
meta: {name: x}
)";

TEST(AiToolkitFormat, ReadsItsYaml) {
  const Job job = read_text(kToolkit, "flux.yaml");
  EXPECT_EQ(job.trainer, "ai_toolkit");
  EXPECT_EQ(job.model, "ai-toolkit-flux");
  EXPECT_EQ(job.batch, 4);
  EXPECT_EQ(job.accumulation, 2);
  EXPECT_EQ(job.seq, 1024);
  EXPECT_EQ(job.precision, Precision::bf16);
  EXPECT_EQ(job.optimizer.name, "AdamW8bit");
  EXPECT_TRUE(job.checkpointing.on);
  EXPECT_EQ(job.clip, 1.0);
  EXPECT_TRUE(job.ema);
  EXPECT_EQ(job.host.workers, 2);  // its own default
  ASSERT_TRUE(job.tuning.adapter.has_value());
  EXPECT_EQ(job.tuning.adapter->r, 16);
  ASSERT_TRUE(job.tuning.quantization.has_value());
  EXPECT_EQ(job.tuning.quantization->type, "qfloat8");
  EXPECT_TRUE(job.config.flag({"cache_latents"}, false));
  EXPECT_EQ(job.origin.at("seq"), "flux.yaml: datasets[0].resolution");
  EXPECT_EQ(job.origin.at("batch"), "flux.yaml: train.batch_size");
  EXPECT_FALSE(finds(job, Effect::unknown, "")) << findings_text(job);
}

TEST(AiToolkitFormat, TheTunerChangesALabel) {
  const Job job = read_text(kToolkit, "flux.yaml");
  EXPECT_TRUE(finds(job, Effect::none, "train.auto_scale_batch_size = true; only the number in the progress bar changes"));
  EXPECT_TRUE(finds(job, Effect::none, "train.max_batch_size"));
  EXPECT_TRUE(finds(job, Effect::note, "train.ema_config.use_ema"));
  EXPECT_TRUE(finds(job, Effect::note, "of 3 resolutions the largest decides"));
}

TEST(AiToolkitFormat, ArchitecturesByNameAndByFlag) {
  const auto arch = [](const std::string& model) {
    return read_text("config: {process: [{train: {batch_size: 1}, model: " + model + "}]}", "x.yaml").model;
  };
  EXPECT_EQ(arch("{arch: qwen_image}"), "ai-toolkit-qwen_image");
  EXPECT_EQ(arch("{arch: 'wan21:14b'}"), "ai-toolkit-wan21");
  EXPECT_EQ(arch("{is_xl: true}"), "ai-toolkit-sdxl");
  EXPECT_EQ(arch("{is_v3: true}"), "ai-toolkit-sd3");
  EXPECT_EQ(arch("{name_or_path: runwayml/stable-diffusion-v1-5}"), "ai-toolkit-sd1");
}

TEST(AiToolkitFormat, AdaptersOfConvolutionsAndOfBlocksAlone) {
  const auto read = [](const std::string& model, const std::string& network, const std::string& train = "batch_size: 1") {
    return read_text("config: {process: [{train: {" + train + "}, network: " + network + ", model: " + model + "}]}", "x.yaml");
  };
  const Job unet = read("{arch: sdxl}", "{type: lora, linear: 16, conv: 4, conv_alpha: 4}");
  ASSERT_TRUE(unet.tuning.adapter.has_value());
  EXPECT_EQ(unet.tuning.adapter->rank_pattern.at("conv1|conv2|conv|conv_in|conv_out"), 4);
  EXPECT_FALSE(finds(unet, Effect::unknown, "network.conv")) << findings_text(unet);
  const Job flux = read("{arch: flux}", "{type: lora, linear: 16, conv: 4}");
  EXPECT_TRUE(flux.tuning.adapter->rank_pattern.empty());
  EXPECT_TRUE(finds(flux, Effect::none, "network.conv"));
  const Job omnigen = read("{arch: omnigen2}", "{type: lora, linear: 16}");
  EXPECT_EQ(omnigen.model, "ai-toolkit-omnigen2");
  EXPECT_EQ(omnigen.tuning.adapter->target_modules.pattern, R"(.*(noise_refiner|context_refiner|layers)\..*)");
  EXPECT_TRUE(read("{arch: omnigen2}", "{type: lora, transformer_only: false}").tuning.adapter->target_modules.all_linear);
  EXPECT_TRUE(finds(read("{arch: hidream}", "{type: lora}", "gradient_checkpointing: false"), Effect::refused, "under a checkpoint alone"));
  EXPECT_FALSE(finds(read("{arch: hidream}", "{type: lora}"), Effect::refused, ""));
  EXPECT_TRUE(read("{arch: omnigen2, quantize_te: true}", "{type: lora}").config.flag({"quantize_te"}, false));
  EXPECT_FALSE(read("{arch: omnigen2, quantize: true, quantize_te: false}", "{type: lora}").config.flag({"quantize_te"}, false));
  EXPECT_THROW(read("{arch: sdxl}", "{type: lora, conv: many}"), Error);
}

TEST(AiToolkitFormat, TextEncodersAreTrainedWhereTheToolkitDoesIt) {
  const auto read = [](const std::string& arch, const std::string& network, const std::string& train = "") {
    return read_text(
        "config: {process: [{train: {batch_size: 1, train_text_encoder: true" + train + "}" + network + ", model: {arch: " + arch + "}}]}",
        "x.yaml");
  };
  const auto trains = [](const Job& job) { return job.config.flag({"train_text_encoder"}, false); };
  const std::string lora = ", network: {type: lora, linear: 4}";
  EXPECT_TRUE(trains(read("sdxl", lora)));
  EXPECT_TRUE(read("sdxl", lora).tuning.frozen.empty());
  EXPECT_TRUE(trains(read("flux", lora)));
  EXPECT_FALSE(trains(read("chroma", lora)));
  EXPECT_TRUE(finds(read("chroma", lora), Effect::none, "no layer of these text encoders gets an adapter"));
  EXPECT_TRUE(finds(read("sdxl", lora, ", unload_text_encoder: true"), Effect::refused, "cannot be trained"));
  EXPECT_TRUE(finds(read("sdxl", lora, ", diff_output_preservation: true"), Effect::refused, "diff_output_preservation"));
  const Job full = read("sdxl", "");
  EXPECT_TRUE(trains(full));
  EXPECT_EQ(full.tuning.frozen, std::vector<std::string>{"time_embedding"});
  EXPECT_TRUE(finds(full, Effect::partial, "q, k and v of OpenCLIP"));
  EXPECT_TRUE(finds(read("flux", ""), Effect::none, "given to the optimizer"));
  EXPECT_FALSE(read("sd1", "", ", optimizer: adafactor").clip);  // never for Adafactor
}

TEST(AiToolkitFormat, TypesOfQuantisedBases) {
  const auto read = [](const std::string& model, const std::string& train = "batch_size: 1") {
    return read_text(
        "config: {process: [{train: {" + train + "}, network: {type: lora}, model: {arch: flux, quantize: true, " + model + "}}]}",
        "x.yaml");
  };
  const Job four = read("qtype: uint4");
  EXPECT_EQ(four.tuning.quantization->type, "uint4");
  EXPECT_FALSE(four.tuning.quantization->prepare);
  EXPECT_FALSE(finds(four, Effect::unknown, "model.qtype")) << findings_text(four);
  EXPECT_TRUE(finds(read("qtype: uint4", "gradient_checkpointing: false"), Effect::partial, "all of them are alive at once"));
  EXPECT_FALSE(read("qtype: uint8").tuning.quantization.has_value());
  EXPECT_TRUE(finds(read("qtype: uint8"), Effect::none, "no layer is quantised"));
  EXPECT_EQ(read("qtype: qint8").tuning.quantization->type, "qfloat8");
  EXPECT_FALSE(finds(read("qtype: qint8"), Effect::unknown, "model.qtype"));
  EXPECT_TRUE(finds(read("qtype: float8"), Effect::unknown, "model.qtype"));
  const Job recovered = read("qtype: 'uint3|ostris/accuracy_recovery_adapters/qwen_image_torchao_uint3.safetensors'");
  EXPECT_EQ(recovered.tuning.quantization->type, "uint3");
  EXPECT_TRUE(finds(recovered, Effect::partial, "accuracy recovery adapter"));
}

TEST(AiToolkitFormat, LayersAreOffloadedWhereTheLoaderDoesIt) {
  const auto read = [](const std::string& arch) {
    return read_text("config: {process: [{train: {batch_size: 1}, network: {type: lora}, model: {arch: " + arch +
                         ", layer_offloading: true, layer_offloading_transformer_percent: 0.5}}]}",
                     "x.yaml");
  };
  const Job qwen = read("qwen_image");
  EXPECT_EQ(*qwen.config.find({"layer_offloading"}), (nlohmann::json{{"transformer", 0.5}, {"text_encoder", 1.0}}));
  const Job flux = read("flux");
  EXPECT_EQ(flux.config.find({"layer_offloading"}), nullptr);
  EXPECT_TRUE(finds(flux, Effect::none, "nothing reads it for this architecture"));
}

TEST(AiToolkitFormat, DefaultsAndOddities) {
  const Job job = read_text(
      "config: {process: [{train: {gradient_accumulation: 4, gradient_accumulation_steps: 2, optimizer: automagic}, "
      "datasets: [{cache_latents: true, augments: [blur]}], model: {is_xl: true, low_vram: true}}]}",
      "x.yaml");
  EXPECT_TRUE(finds(job, Effect::refused, "ValueError"));
  EXPECT_TRUE(finds(job, Effect::none, "with augmentations nothing is cached"));
  EXPECT_FALSE(job.config.flag({"cache_latents"}, true));
  EXPECT_EQ(job.seq, 512);
  EXPECT_EQ(job.precision, Precision::fp32);
  EXPECT_TRUE(job.checkpointing.on);  // on unless it is said otherwise
  EXPECT_TRUE(finds(job, Effect::unknown, "train.optimizer = automagic"));
  EXPECT_TRUE(finds(job, Effect::partial, "model.low_vram"));
  EXPECT_FALSE(job.tuning.adapter.has_value());
  EXPECT_THROW(read_text("config: {process: [{train: 3}]}", "x.yaml"), Error);
  EXPECT_THROW(read_text("config: {process: [{train: {}, datasets: [{resolution: large}]}]}", "x.yaml"), Error);
}

TEST(AiToolkitFormat, RunPy) {
  const std::string path = ::testing::TempDir() + "/toolkit.yaml";
  std::ofstream(path) << kToolkit;
  EXPECT_EQ(read_command("python run.py " + path).model, "ai-toolkit-flux");
}

}  // namespace
}  // namespace plimsoll::formats_seed_test
