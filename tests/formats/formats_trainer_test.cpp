// Configurations and commands of trainers: which settings they become, and from where.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/command_line.h"
#include "formats/format.h"
#include "formats/input.h"
#include "formats/trainer.h"
#include "job/distribution.h"
#include "job/lint.h"
#include "job/settings.h"
#include "job/yaml_reader.h"
#include "model/resolve.h"
#include "optim/optimizer.h"
#include "program/program.h"
#include "support.h"

namespace plimsoll::formats_trainer_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Trainers : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("plimsoll_trainers_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    std::ofstream(path) << text;
    return path.string();
  }
  Job read(const std::string& name, const std::string& text) {
    Job job;
    read_input_file(job, write(name, text));
    return job;
  }
  // Names of files in it stand as @name.
  Job run(std::string command) {
    for (size_t at = command.find('@'); at != std::string::npos; at = command.find('@')) command.replace(at, 1, folder_.string() + "/");
    Job job;
    read_input(job, {command});
    return job;
  }

  fs::path folder_;
};

// The finding about a setting (the beginning of "key = value"), or whose text has the words.
const Finding* finding(const Job& job, Effect effect, const std::string& words) {
  for (const Finding& f : job.findings)
    if (f.effect == effect && (f.setting.starts_with(words) || f.what.find(words) != std::string::npos)) return &f;
  return nullptr;
}

std::string all_findings(const Job& job) {
  std::string out;
  for (const Finding& f : job.findings) out += std::string(to_string(f.effect)) + " | " + f.setting + " | " + f.what + "\n";
  return out;
}

// ---- transformers

TEST_F(Trainers, TrainingArgumentsAsJson) {
  const Job job = read("training_args.json", R"({
    "output_dir": "out", "per_device_train_batch_size": 4, "per_device_eval_batch_size": 16, "gradient_accumulation_steps": 2,
    "eval_strategy": "steps", "optim": "sgd", "optim_args": "momentum=0.9,nesterov=true", "bf16": true, "fp16": false,
    "max_grad_norm": 0.5, "gradient_checkpointing": true, "gradient_checkpointing_kwargs": {"use_reentrant": true},
    "dataloader_num_workers": 4, "dataloader_prefetch_factor": 3, "dataloader_pin_memory": false, "torch_compile": false,
    "fsdp": [], "fsdp_config": {"min_num_params": 0, "xla": false}, "deepspeed": null, "logging_steps": 10, "learning_rate": 5e-05})");
  EXPECT_EQ(job.trainer, "transformers");
  EXPECT_EQ(job.batch, 4);
  EXPECT_EQ(job.origin.at("batch"), "training_args.json: per_device_train_batch_size");
  EXPECT_EQ(job.accumulation, 2);
  EXPECT_EQ(job.eval_batch, 16);
  EXPECT_EQ(job.optimizer.name, "SGD");
  EXPECT_EQ(job.optimizer.args.values(), (Json{{"momentum", 0.9}, {"nesterov", true}}));
  EXPECT_EQ(job.precision, Precision::amp);
  EXPECT_EQ(job.origin.at("precision"), "training_args.json: bf16: the checkpoint's type");
  EXPECT_EQ(job.clip, 0.5);
  EXPECT_TRUE(job.checkpointing.on);
  EXPECT_TRUE(job.checkpointing.reentrant);
  EXPECT_EQ(job.host.workers, 4);
  EXPECT_EQ(job.host.prefetch_factor, 3);
  EXPECT_FALSE(job.host.pin_memory);
  EXPECT_TRUE(job.drop_output);
  EXPECT_EQ(job.origin.at("drop_output"), "default of transformers");
  EXPECT_FALSE(is_distributed(job));
  EXPECT_FALSE(finding(job, Effect::unknown, "")) << all_findings(job);
}

TEST_F(Trainers, WhatTrainingArgumentsLeaveOut) {
  const Job job = read("args.json", R"({"output_dir": "out", "num_train_epochs": 3})");
  EXPECT_EQ(job.batch, 8);
  EXPECT_EQ(job.origin.at("batch"), "default of transformers");
  EXPECT_EQ(job.optimizer.name, "AdamW");
  EXPECT_EQ(job.optimizer.args.values(), (Json{{"fused", true}}));
  EXPECT_EQ(job.clip, 1.0);
  EXPECT_EQ(job.origin.at("clip"), "default of transformers");
  EXPECT_EQ(job.precision, Precision::fp32);
  EXPECT_TRUE(job.host.pin_memory);
  EXPECT_FALSE(job.checkpointing.on);
  EXPECT_EQ(job.eval_batch, 0);  // no evaluation unless it is asked for
}

TEST_F(Trainers, EveryOptimizerOfTransformers) {
  const std::vector<std::string> all{"adamw_torch",
                                     "adamw_torch_fused",
                                     "adamw_torch_xla",
                                     "adamw_torch_npu_fused",
                                     "adafactor",
                                     "adamw_anyprecision",
                                     "adamw_torch_4bit",
                                     "adamw_torch_8bit",
                                     "ademamix",
                                     "sgd",
                                     "adagrad",
                                     "adamw_bnb_8bit",
                                     "adamw_8bit",
                                     "ademamix_8bit",
                                     "lion_8bit",
                                     "lion_32bit",
                                     "paged_adamw_32bit",
                                     "paged_adamw_8bit",
                                     "paged_ademamix_32bit",
                                     "paged_ademamix_8bit",
                                     "paged_lion_32bit",
                                     "paged_lion_8bit",
                                     "rmsprop",
                                     "rmsprop_bnb",
                                     "rmsprop_bnb_8bit",
                                     "rmsprop_bnb_32bit",
                                     "galore_adamw",
                                     "galore_adamw_8bit",
                                     "galore_adafactor",
                                     "galore_adamw_layerwise",
                                     "galore_adamw_8bit_layerwise",
                                     "galore_adafactor_layerwise",
                                     "lomo",
                                     "adalomo",
                                     "grokadamw",
                                     "schedule_free_radam",
                                     "schedule_free_adamw",
                                     "schedule_free_sgd",
                                     "apollo_adamw",
                                     "apollo_adamw_layerwise",
                                     "stable_adamw"};
  ASSERT_EQ(all.size(), 41u);
  std::vector<std::string> assumed;
  for (const std::string& name : all) {
    const Job job = read("a.yaml", "num_train_epochs: 1\noptim: " + name + "\n");
    EXPECT_EQ(job.origin.at("optimizer"), "a.yaml: optim") << name;
    EXPECT_NO_THROW(make_optimizer(job.optimizer.name, job.optimizer.args)) << name;
    if (finding(job, Effect::unknown, "optim = " + name)) assumed.push_back(name);
  }
  EXPECT_EQ(assumed, (std::vector<std::string>{"adamw_torch_xla", "adamw_torch_npu_fused"}));
  EXPECT_TRUE(finding(read("a.yaml", "num_train_epochs: 1\noptim: galore_adafactor_layerwise\n"), Effect::refused, "relative_step"));
  EXPECT_EQ(read("a.yaml", "num_train_epochs: 1\noptim: galore_adamw_8bit\n").optimizer.name, "GaLoreAdamW8bit");
  EXPECT_EQ(read("a.yaml", "num_train_epochs: 1\noptim: paged_adamw_8bit\n").optimizer.name, "PagedAdamW8bit");
  EXPECT_EQ(read("a.yaml", "num_train_epochs: 1\noptim: adafactor\n").optimizer.name, "TransformersAdafactor");
  EXPECT_EQ(read("a.yaml", "num_train_epochs: 1\noptim: adamw_torch_4bit\n").optimizer.name, "torchao.AdamW4bit");
  EXPECT_THROW(read("a.yaml", "num_train_epochs: 1\noptim: adamw_tourch\n"), Error);
}

TEST_F(Trainers, OptimizersOfLowRankNeedTheirModules) {
  const Job job = read("a.yaml", "num_train_epochs: 1\noptim: galore_adamw\noptim_target_modules: [attn, mlp]\noptim_args: rank=64\n");
  EXPECT_EQ(job.optimizer.name, "GaLoreAdamW");
  EXPECT_EQ(job.optimizer.args.values(), (Json{{"rank", 64}, {"target_modules", {"attn", "mlp"}}}));
  EXPECT_FALSE(finding(job, Effect::refused, "optim"));
  EXPECT_TRUE(finding(read("a.yaml", "num_train_epochs: 1\noptim: apollo_adamw\n"), Effect::refused, "optim"));
  const Job layerwise = read("a.yaml",
                             "optim: galore_adamw_layerwise\noptim_target_modules: all-linear\ngradient_accumulation_steps: 2\n"
                             "max_grad_norm: 1.0\nnum_train_epochs: 1\n");
  EXPECT_TRUE(layerwise.optimizer_in_backward);
  EXPECT_FALSE(layerwise.clip.has_value());
  EXPECT_TRUE(finding(layerwise, Effect::refused, "gradient_accumulation_steps"));
  EXPECT_TRUE(finding(layerwise, Effect::none, "max_grad_norm"));
}

TEST_F(Trainers, AKeyThatIsThereTwice) {
  const Job job = read("a.json", R"({"num_train_epochs": 1, "per_device_train_batch_size": 1, "per_device_train_batch_size": 4})");
  EXPECT_EQ(job.batch, 4);
  EXPECT_TRUE(finding(job, Effect::conflict, "'per_device_train_batch_size' is there twice"));
}

TEST_F(Trainers, LowRankOfLlamaFactory) {
  const Job job = read("a.yaml",
                       "model_name_or_path: gpt2\nfinetuning_type: full\nuse_galore: true\ngalore_rank: 128\ngalore_target: mlp,self_attn\n"
                       "galore_layerwise: true\n");
  EXPECT_EQ(job.optimizer.name, "GaLoreAdamW");
  EXPECT_EQ(job.optimizer.args.values(), (Json{{"rank", 128}, {"target_modules", {"mlp", "self_attn"}}}));
  EXPECT_TRUE(job.optimizer_in_backward);
  EXPECT_EQ(read("a.yaml", "model_name_or_path: gpt2\nfinetuning_type: full\nuse_apollo: true\n").optimizer.name, "APOLLOAdamW");
}

TEST_F(Trainers, LomoHasNothingToClip) {
  const Job job = read("a.yaml", "num_train_epochs: 1\noptim: lomo\n");
  EXPECT_EQ(job.optimizer.name, "Lomo");
  EXPECT_FALSE(job.clip.has_value());
}

TEST_F(Trainers, TypesOfStatesAreHandedOn) {
  const Job plain = read("a.yaml", "num_train_epochs: 1\noptim: adamw_anyprecision\n");
  EXPECT_EQ(plain.optimizer.args.values(), (Json{{"variance_dtype", "float32"}}));  // transformers' own default
  const Job said =
      read("a.yaml", "num_train_epochs: 1\noptim: adamw_anyprecision\noptim_args: variance_dtype=bfloat16,use_kahan_summation=true\n");
  EXPECT_EQ(said.optimizer.args.values(), (Json{{"use_kahan_summation", true}, {"variance_dtype", "bfloat16"}}));
}

TEST_F(Trainers, AnotherOptimizerDoesNotInheritArguments) {
  Job job = read("a.yaml", "num_train_epochs: 1\n");
  EXPECT_EQ(job.optimizer.args.values(), (Json{{"fused", true}}));
  apply_setting(job, "optimizer", "AdamW8bit", "--optimizer");
  EXPECT_EQ(job.optimizer.args.values(), Json::object());
}

TEST_F(Trainers, DeclaredButNotEffectiveInTransformers) {
  const Job job =
      read("args.yaml",
           "per_device_train_batch_size: 2\nfp16: true\nbf16: true\ngradient_checkpointing: true\nuse_cache: true\n"
           "dataloader_num_workers: 0\ndataloader_prefetch_factor: 2\ndataloader_persistent_workers: true\n"
           "per_gpu_train_batch_size: 16\ntorch_compile: false\ntorch_compile_mode: reduce-overhead\nauto_find_batch_size: true\n"
           "label_smoothing_factor: 0.1\nno_such_key: 3\n");
  EXPECT_TRUE(finding(job, Effect::refused, "fp16"));
  EXPECT_TRUE(finding(job, Effect::none, "use_cache"));
  EXPECT_TRUE(finding(job, Effect::note, "dataloader_num_workers"));
  EXPECT_TRUE(finding(job, Effect::refused, "dataloader_prefetch_factor"));
  EXPECT_TRUE(finding(job, Effect::refused, "dataloader_persistent_workers"));
  EXPECT_TRUE(finding(job, Effect::refused, "per_gpu_train_batch_size"));
  EXPECT_TRUE(finding(job, Effect::other, "torch_compile = false"));
  EXPECT_TRUE(finding(job, Effect::other, "auto_find_batch_size"));
  EXPECT_TRUE(finding(job, Effect::unknown, "label_smoothing_factor"));
  EXPECT_TRUE(finding(job, Effect::unknown, "no_such_key")) << all_findings(job);
  EXPECT_EQ(job.batch, 2);
  EXPECT_TRUE(job.compile);
  EXPECT_FALSE(job.host.prefetch_factor);
  EXPECT_FALSE(job.host.persistent_workers);
  Problems left;
  check(job.host, left);  // something that DataLoader takes
  EXPECT_TRUE(left.empty());
}

TEST_F(Trainers, TrlRecipe) {
  const Job job = read("config_qlora.yaml",
                       "model_name_or_path: org/model-7b\ntorch_dtype: bfloat16\nattn_implementation: flash_attention_2\n"
                       "use_peft: true\nload_in_4bit: true\nlora_r: 32\nlora_alpha: 64\nlora_target_modules: [q_proj, v_proj]\n"
                       "per_device_train_batch_size: 2\nmax_length: 2048\npacking: true\ndataset_text_field: text\n"
                       "use_liger_kernel: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n");
  EXPECT_EQ(job.trainer, "TRL");
  EXPECT_EQ(job.model, "org/model-7b");
  EXPECT_EQ(job.origin.at("model"), "config_qlora.yaml: model_name_or_path");
  EXPECT_EQ(job.precision, Precision::bf16);
  EXPECT_TRUE(job.autocast);  // TRL turns bf16 on
  EXPECT_EQ(job.attention, AttentionKernel::flash_attention_2);
  ASSERT_TRUE(job.tuning.adapter);
  EXPECT_EQ(job.tuning.adapter->r, 32);
  EXPECT_EQ(job.origin.at("lora"), "config_qlora.yaml: use_peft");
  ASSERT_TRUE(job.tuning.quantization);
  EXPECT_EQ(job.tuning.quantization->compute_dtype, "bf16");
  EXPECT_EQ(job.seq, 2048);
  EXPECT_EQ(job.collation.collate, Collate::pack);
  EXPECT_EQ(job.collation.lengths, (std::vector<int64_t>{2048, 2048}));
  EXPECT_EQ(job.loss_settings.kernel, LossKernel::liger);
  EXPECT_TRUE(job.loss_settings.liger.rope);
  EXPECT_TRUE(job.checkpointing.on);
  EXPECT_FALSE(job.checkpointing.reentrant);
  EXPECT_EQ(job.origin.at("checkpointing"), "default of TRL");
}

TEST_F(Trainers, AdapterKeysWithoutAnAdapter) {
  const Job job = read("sft.yaml", "per_device_train_batch_size: 1\nuse_peft: false\nlora_r: 16\npacking: false\n");
  EXPECT_FALSE(job.tuning.adapter);
  EXPECT_TRUE(finding(job, Effect::none, "lora_r"));
}

TEST_F(Trainers, CommandsWithAnyLauncher) {
  Job job =
      run("torchrun --nproc_per_node=4 --nnodes 2 train.py --model_name_or_path gpt2 --per_device_train_batch_size 3 --bf16 "
          "--gradient_checkpointing_kwargs '{\"use_reentrant\": true}' --gradient_checkpointing True --ddp_bucket_cap_mb 50");
  EXPECT_EQ(job.model, "gpt2");
  EXPECT_EQ(job.origin.at("model"), "command line: --model_name_or_path");
  EXPECT_EQ(job.batch, 3);
  EXPECT_EQ(job.precision, Precision::amp);
  EXPECT_TRUE(job.checkpointing.reentrant);
  ASSERT_TRUE(job.parallel.ddp);
  EXPECT_EQ(job.parallel.ddp->world, 8);
  EXPECT_EQ(job.parallel.ddp->bucket_mb, 50);
  EXPECT_FALSE(job.parallel.ddp->find_unused_parameters);  // not with checkpoints
  EXPECT_EQ(job.host.ranks_per_host, 4);
  EXPECT_EQ(job.origin.at("ddp"), "command line: --nproc_per_node");

  job = run("accelerate launch --num_processes 8 --num_machines 2 --mixed_precision bf16 train.py --per_device_train_batch_size 1");
  ASSERT_TRUE(job.parallel.ddp);
  EXPECT_EQ(job.parallel.ddp->world, 8);  // accelerate counts those of all machines
  EXPECT_EQ(job.host.ranks_per_host, 4);
  EXPECT_TRUE(job.parallel.ddp->find_unused_parameters);
  EXPECT_EQ(job.precision, Precision::amp);
  EXPECT_EQ(job.origin.at("precision"), "command line: --mixed_precision: the checkpoint's type");

  job = run("CUDA_VISIBLE_DEVICES=0,1 python train.py --per_device_train_batch_size 1");
  EXPECT_FALSE(job.parallel.ddp);
  EXPECT_TRUE(finding(job, Effect::other, "DataParallel"));

  job = run("srun -N 2 --ntasks-per-node 4 python -u train.py --per_device_train_batch_size 1");
  ASSERT_TRUE(job.parallel.ddp);
  EXPECT_EQ(job.parallel.ddp->world, 8);
}

TEST_F(Trainers, FilesNamedByACommand) {
  write("ds.json", R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"})");
  write("acc.yaml",
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 4\nnum_machines: 1\nmixed_precision: fp16\n");
  write("recipe.yaml",
        "model_name_or_path: gpt2\nper_device_train_batch_size: 2\nmax_seq_length: 512\ndataset_text_field: text\nbf16: true\n");
  Job job =
      run("accelerate launch --config_file @acc.yaml scripts/run_sft.py @recipe.yaml --per_device_train_batch_size 6 --deepspeed @ds.json");
  EXPECT_EQ(job.batch, 6);
  EXPECT_EQ(job.origin.at("batch"), "command line: --per_device_train_batch_size");
  EXPECT_EQ(job.seq, 512);
  EXPECT_EQ(job.origin.at("seq"), "recipe.yaml: max_seq_length");
  EXPECT_EQ(job.precision, Precision::bf16);  // DeepSpeed's bf16 is no autocast
  EXPECT_TRUE(finding(job, Effect::conflict, "bf16 autocast is used"));
  ASSERT_TRUE(job.parallel.deepspeed) << all_findings(job);
  EXPECT_EQ(job.parallel.deepspeed->stage, 2);
  EXPECT_EQ(job.parallel.deepspeed->world, 4);
  EXPECT_FALSE(job.parallel.ddp);

  job = run("trl sft --config @recipe.yaml");
  EXPECT_EQ(job.batch, 2);
  job = run("python train.py --per_device_train_batch_size 2 --deepspeed not_here.json");
  EXPECT_TRUE(finding(job, Effect::missing, "the file not_here.json"));
}

TEST_F(Trainers, FilesThatNameEachOther) {
  EXPECT_THROW(read("self.yaml", "per_device_train_batch_size: 1\ndeepspeed: self.yaml\n"), Error);
  write("a.yaml", "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: b.yaml}\n");
  EXPECT_THROW(read("b.yaml", "per_device_train_batch_size: 1\ndeepspeed: a.yaml\n"), Error);
  EXPECT_THROW(run("accelerate launch --config_file @a.yaml train.py --per_device_train_batch_size 1"), Error);
}

TEST_F(Trainers, ProgramsThatAreNotKnown) {
  EXPECT_THROW(run("python my_loop.py --epochs 3"), Error);
  EXPECT_THROW(run("make train"), Error);
  EXPECT_THROW(run("python train.py --config 'open"), Error);
}

TEST_F(Trainers, AllocatorUnderTwoNames) {
  const Job job =
      run("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 PYTORCH_ALLOC_CONF=expandable_segments:True "
          "python train.py --per_device_train_batch_size 1");
  EXPECT_EQ(job.alloc_conf, "max_split_size_mb:128");
  EXPECT_TRUE(finding(job, Effect::conflict, "environment.PYTORCH_ALLOC_CONF")) << all_findings(job);
}

TEST_F(Trainers, ShellScripts) {
  write("ds.json", R"({"zero_optimization": {"stage": 0}})");
  const Job job = read("run.sh",
                       "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\nexport PYTORCH_ALLOC_CONF=expandable_segments:True\n"
                       "BATCH=5\nGPUS=${GPUS:-4}\npip install -q x && echo 'it; runs'\n"
                       "srun torchrun --nproc_per_node $GPUS --nnodes $SLURM_NNODES train.py \\\n"
                       "  --per_device_train_batch_size ${BATCH} \\\n  --optim adamw_8bit  # small\n");
  EXPECT_EQ(job.batch, 5);
  EXPECT_EQ(job.origin.at("batch"), "run.sh: --per_device_train_batch_size");
  EXPECT_EQ(job.optimizer.name, "AdamW8bit");
  EXPECT_EQ(job.alloc_conf, "expandable_segments:True");
  ASSERT_TRUE(job.parallel.ddp);
  EXPECT_EQ(job.parallel.ddp->world, 8);
  EXPECT_THROW(read("none.sh", "#!/bin/sh\nls\n"), Error);
  std::string bomb = "#!/bin/sh\nA=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n";
  for (int i = 0; i < 60; ++i) bomb += "A=$A$A\n";
  EXPECT_THROW(read("bomb.sh", bomb), Error);
}

// ---- DeepSpeed and accelerate

TEST_F(Trainers, DeepSpeedAlone) {
  const Job job = read("ds_config.json", R"({
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "train_batch_size": 8, "gradient_clipping": 1.0,
    "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "zero_optimization": {"stage": 0, "reduce_bucket_size": 5e8, "allgather_bucket_size": "5e8"}, "steps_per_print": 10})");
  EXPECT_EQ(job.batch, 4);
  EXPECT_EQ(job.origin.at("batch"), "ds_config.json: train_micro_batch_size_per_gpu");
  EXPECT_EQ(job.accumulation, 2);
  EXPECT_EQ(job.clip, 1.0);
  EXPECT_EQ(job.precision, Precision::bf16);
  EXPECT_TRUE(job.master_weights);
  EXPECT_EQ(job.optimizer.name, "AdamW");
  EXPECT_EQ(job.optimizer.args.values(), (Json{{"fused", true}}));
  EXPECT_EQ(job.findings.size(), 1u) << all_findings(job);
  EXPECT_EQ(job.findings[0].what, "read as deepspeed: zero_optimization, train_micro_batch_size_per_gpu");
}

TEST_F(Trainers, DeepSpeedStages) {
  write("one.json", R"({"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}})");
  Job job = run("deepspeed --num_gpus 4 train.py --per_device_train_batch_size 2 --deepspeed @one.json");
  ASSERT_TRUE(job.parallel.deepspeed);
  EXPECT_EQ(job.parallel.deepspeed->world, 4);
  EXPECT_EQ(job.parallel.deepspeed->stage, 1);
  EXPECT_EQ(job.origin.at("zero"), "one.json: zero_optimization.stage");
  EXPECT_FALSE(job.parallel.ddp);
  Problems none;
  check(job.parallel, none);
  EXPECT_TRUE(none.empty());
  EXPECT_FALSE(job.master_weights);  // ZeRO has fp32 weights of its own
  EXPECT_FALSE(finding(job, Effect::unknown, "bf16.enabled")) << all_findings(job);
  write("two.json",
        R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 2e8, "overlap_comm": true, "offload_optimizer": {"device": "cpu"}}})");
  job = run("deepspeed --num_gpus 4 train.py --per_device_train_batch_size 2 --deepspeed @two.json");
  ASSERT_TRUE(job.parallel.deepspeed);
  EXPECT_EQ(job.parallel.deepspeed->reduce_bucket, 200'000'000);
  EXPECT_TRUE(job.parallel.deepspeed->overlap_comm);
  EXPECT_TRUE(job.parallel.deepspeed->offload_optimizer);
}

TEST_F(Trainers, DeepSpeedStage3) {
  write("three.json", R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "nvme"},
    "stage3_prefetch_bucket_size": 1e7, "stage3_max_live_parameters": 2e9, "stage3_param_persistence_threshold": "auto", "sub_group_size": 1e9}})");
  const Job job = run("deepspeed --num_gpus 4 train.py --per_device_train_batch_size 2 --deepspeed @three.json");
  ASSERT_TRUE(job.parallel.deepspeed);
  const DeepSpeedSettings& zero = *job.parallel.deepspeed;
  EXPECT_EQ(zero.stage, 3);
  EXPECT_EQ(zero.world, 4);
  EXPECT_TRUE(zero.offload_param);
  EXPECT_TRUE(zero.offload_optimizer);
  EXPECT_TRUE(zero.overlap_comm);  // the default of stage 3
  EXPECT_EQ(zero.prefetch_bucket, 10'000'000);
  EXPECT_EQ(zero.max_live_parameters, 2'000'000'000);
  EXPECT_TRUE(finding(job, Effect::partial, "zero_optimization.offload_optimizer.device"));
  const Job one = read("one.json", R"({"zero_optimization": {"stage": 1, "offload_param": {"device": "cpu"}}})");
  EXPECT_TRUE(finding(one, Effect::none, "zero_optimization.offload_param"));
}

TEST_F(Trainers, DeepSpeedBatches) {
  write("ds.json", R"({"train_batch_size": 100, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0}})");
  Job job = run("deepspeed --num_gpus 8 train.py --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --deepspeed @ds.json");
  EXPECT_EQ(job.batch, 2);
  EXPECT_TRUE(finding(job, Effect::refused, "train_micro_batch_size_per_gpu"));
  const Finding* conflict = finding(job, Effect::conflict, "train_batch_size = 100");
  ASSERT_TRUE(conflict) << all_findings(job);
  EXPECT_NE(conflict->what.find("2 a device x 3 steps x 8 processes = 48"), std::string::npos) << conflict->what;
  EXPECT_EQ(read("d.json", R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4})").accumulation, 8);
  EXPECT_EQ(read("d.json", R"({"train_batch_size": 32, "fp16": {"enabled": false}})").batch, 32);
}

TEST_F(Trainers, DeepSpeedFilesThatItRefuses) {
  Job job = read("c.json", "{\n // the batch\n \"train_micro_batch_size_per_gpu\": 1, \"train_micro_batch_size_per_gpu\": 2}");
  EXPECT_TRUE(finding(job, Effect::refused, "comments"));
  EXPECT_TRUE(finding(job, Effect::refused, "twice"));
  EXPECT_EQ(job.batch, 2);
  EXPECT_THROW(read("c.json", R"({"train_micro_batch_size_per_gpu": -1})"), Error);
  EXPECT_THROW(read("c.json", R"({"train_micro_batch_size_per_gpu": "many"})"), Error);
  EXPECT_THROW(read("c.json", R"({"train_micro_batch_size_per_gpu": 1e30})"), Error);
  EXPECT_THROW(read("c.json", R"({"train_micro_batch_size_per_gpu": NaN})"), Error);
  EXPECT_THROW(read("c.json", R"({"zero_optimization": {"stage": 4}})"), Error);
  EXPECT_THROW(read("c.json", R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": -5}})"), Error);
  EXPECT_THROW(read("c.json", R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": [1]}})"), Error);
}

TEST_F(Trainers, Accelerate) {
  Job job = read("default_config.yaml",
                 "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\ndowncast_bf16: 'no'\nmixed_precision: bf16\n"
                 "num_machines: 2\nnum_processes: 16\nmachine_rank: 0\nuse_cpu: false\ndynamo_config: {dynamo_backend: INDUCTOR}\n");
  EXPECT_EQ(world_size(job), 16);
  EXPECT_EQ(job.host.ranks_per_host, 8);
  EXPECT_EQ(job.origin.at("ddp"), "default_config.yaml: num_processes");
  EXPECT_EQ(job.precision, Precision::amp);
  EXPECT_TRUE(job.compile);
  EXPECT_EQ(job.findings.size(), 1u) << all_findings(job);
  EXPECT_EQ(job.findings[0].what, "read as accelerate: compute_environment, distributed_type");
  job =
      read("a.yaml", "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: no\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\n");
  ASSERT_TRUE(job.parallel.fsdp1);
  EXPECT_EQ(job.parallel.fsdp1->world, 8);
  EXPECT_TRUE(job.parallel.fsdp1->original_parameters);  // accelerate's default
  EXPECT_EQ(job.parallel.fsdp1->param_dtype, WireType::own);
  job = read("a.yaml",
             "distributed_type: FSDP\nnum_processes: 4\nmixed_precision: bf16\n"
             "fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: false}\n");
  ASSERT_TRUE(job.parallel.fsdp);
  EXPECT_FALSE(job.parallel.fsdp->reshard);
  EXPECT_EQ(job.parallel.fsdp->param_dtype, WireType::bf16);
  EXPECT_THROW(read("a.yaml", "distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_version: 3}\n"), Error);
  job = read("a.yaml", "distributed_type: 'NO'\nnum_processes: 8\n");
  EXPECT_FALSE(is_distributed(job));
  EXPECT_TRUE(finding(job, Effect::none, "num_processes"));
  job =
      read("a.yaml", "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {zero_stage: 1, gradient_accumulation_steps: 4}\n");
  EXPECT_EQ(job.accumulation, 4);
  ASSERT_TRUE(job.parallel.deepspeed);
  EXPECT_EQ(job.parallel.deepspeed->world, 2);
  job = read("a.yaml", "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 2\ndeepspeed_config: {zero_stage: 3}\n");
  ASSERT_TRUE(job.parallel.deepspeed);
  EXPECT_EQ(job.parallel.deepspeed->stage, 3);
  EXPECT_EQ(job.precision, Precision::bf16) << "DeepSpeed's own, with weights in it";
  EXPECT_FALSE(job.autocast);
  EXPECT_THROW(read("a.yaml", "distributed_type: MULTI_GPU\nnum_processes: 3\nnum_machines: 2\n"), Error);
  EXPECT_THROW(read("a.yaml", "distributed_type: MULTI_GPU\nnum_processes: 99999999999\n"), Error);
  EXPECT_THROW(read("a.yaml", "distributed_type: MULTI_GPU\nmixed_precision: int3\n"), Error);
}

// ---- axolotl

constexpr const char* kAxolotl = R"(
base_model: org/base-8b
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
sequence_len: 4096
sample_packing: true
group_by_length: true
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: paged_adamw_32bit
bf16: auto
tf32: false
gradient_checkpointing: true
flash_attention: true
val_set_size: 0.05
datasets:
  - path: some/set
    type: alpaca
)";

TEST_F(Trainers, Axolotl) {
  const Job job = read("qlora.yml", kAxolotl);
  EXPECT_EQ(job.trainer, "axolotl");
  EXPECT_EQ(job.model, "org/base-8b");
  EXPECT_EQ(job.batch, 2);
  EXPECT_EQ(job.origin.at("batch"), "qlora.yml: micro_batch_size");
  EXPECT_EQ(job.accumulation, 4);
  EXPECT_EQ(job.precision, Precision::bf16);
  EXPECT_TRUE(job.autocast);
  EXPECT_EQ(job.optimizer.name, "PagedAdamW32bit");
  ASSERT_TRUE(job.tuning.adapter);
  EXPECT_TRUE(job.tuning.adapter->target_modules.all_linear);
  ASSERT_TRUE(job.tuning.quantization);
  EXPECT_TRUE(job.tuning.quantization->double_quant);
  EXPECT_FALSE(job.tuning.quantization->prepare);
  EXPECT_EQ(job.origin.at("quantization"), "qlora.yml: load_in_4bit");
  EXPECT_TRUE(job.checkpointing.reentrant);  // axolotl's own default
  EXPECT_EQ(job.attention, AttentionKernel::flash_attention_2);
  EXPECT_EQ(job.collation.collate, Collate::pack);
  EXPECT_EQ(job.seq, 4096);
  EXPECT_EQ(job.eval_batch, 2);
  EXPECT_EQ(job.origin.at("eval_batch"), "default of axolotl");
  EXPECT_EQ(job.clip, 1.0);
  EXPECT_TRUE(finding(job, Effect::none, "group_by_length"));
  EXPECT_FALSE(finding(job, Effect::unknown, "")) << all_findings(job);
}

TEST_F(Trainers, AxolotlBatchesThatDoNotFit) {
  const Job job = read("a.yml", "base_model: gpt2\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\nbatch_size: 10\n");
  EXPECT_TRUE(finding(job, Effect::refused, "batch_size"));
  EXPECT_TRUE(finding(job, Effect::conflict, "batch_size"));
  EXPECT_THROW(
      read("a.yml", "base_model: gpt2\nmicro_batch_size: 2000000000\ngradient_accumulation_steps: 9000000000000000\nbatch_size: 10\n"),
      Error);
}

TEST_F(Trainers, AxolotlDeclaredAndNotEffective) {
  Job job =
      read("a.yml", "base_model: gpt2\nsequence_len: 512\nlora_r: 8\nliger_rope: true\ncut_cross_entropy: true\nbf16: true\nfp16: true\n");
  EXPECT_FALSE(job.tuning.adapter);
  EXPECT_TRUE(finding(job, Effect::none, "lora_r"));
  EXPECT_TRUE(finding(job, Effect::none, "liger_rope"));
  EXPECT_TRUE(finding(job, Effect::none, "cut_cross_entropy"));
  EXPECT_TRUE(finding(job, Effect::none, "fp16"));
  EXPECT_FALSE(job.loss_settings.liger.rope);
  job =
      read("a.yml",
           "base_model: gpt2\nadapter: qlora\nmicro_batch_size: 4\nbatch_size: 10\nplugins: [axolotl.integrations.liger.LigerPlugin]\n"
           "liger_rms_norm: true\nliger_fused_linear_cross_entropy: true\noptimizer: ao_adamw_8bit\nfsdp_config: {offload_params: true}\n");
  EXPECT_TRUE(finding(job, Effect::refused, "adapter = qlora"));
  EXPECT_TRUE(finding(job, Effect::other, "batch_size"));
  EXPECT_EQ(job.accumulation, 2);
  EXPECT_EQ(job.loss_settings.kernel, LossKernel::liger);
  EXPECT_TRUE(job.loss_settings.liger.rms_norm);
  EXPECT_EQ(job.optimizer.name, "torchao.AdamW8bit");
  EXPECT_TRUE(finding(job, Effect::partial, "fsdp_config"));
}

TEST_F(Trainers, AxolotlCommands) {
  write("c.yml", kAxolotl);
  Job job = run("axolotl train @c.yml --micro-batch-size 1");
  EXPECT_EQ(job.batch, 1);
  EXPECT_EQ(job.origin.at("batch"), "command line: --micro_batch_size");
  EXPECT_EQ(job.origin.at("seq"), "c.yml: sequence_len");
  job = run("accelerate launch --num_processes 2 -m axolotl.cli.train @c.yml");
  EXPECT_EQ(world_size(job), 2);
  job = run("CUDA_VISIBLE_DEVICES=0,1,2 axolotl train @c.yml");
  EXPECT_EQ(world_size(job), 3);
}

TEST_F(Trainers, YamlMerges) {
  const Job job = read("m.yml",
                       "defaults: &defaults {micro_batch_size: 2, sequence_len: 256}\nlora: &lora\n  adapter: lora\n  sequence_len: 128\n"
                       "<<: [*defaults, *lora]\nbase_model: gpt2\nmicro_batch_size: 8\n");
  EXPECT_EQ(job.batch, 8);  // its own key wins
  EXPECT_EQ(job.seq, 256);  // and the first of the merged
  EXPECT_TRUE(job.tuning.adapter);
}

// ---- LLaMA-Factory

TEST_F(Trainers, LlamaFactory) {
  const Job job =
      read("lora_sft.yaml",
           "model_name_or_path: org/m\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: 16\nlora_target: all\n"
           "dataset: identity\ntemplate: llama3\ncutoff_len: 1024\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\n"
           "learning_rate: 1.0e-4\nbf16: true\nquantization_bit: 4\nflash_attn: fa2\nenable_liger_kernel: true\nddp_timeout: 180000000\n"
           "gradient_checkpointing: false\nval_size: 0.1\nper_device_eval_batch_size: 4\neval_strategy: steps\n");
  EXPECT_EQ(job.trainer, "LLaMA-Factory");
  EXPECT_EQ(job.batch, 1);
  EXPECT_EQ(job.seq, 1024);
  EXPECT_EQ(job.origin.at("seq"), "lora_sft.yaml: cutoff_len");
  EXPECT_EQ(job.precision, Precision::bf16);
  EXPECT_TRUE(job.autocast);
  ASSERT_TRUE(job.tuning.adapter);
  EXPECT_EQ(job.tuning.adapter->r, 16);
  EXPECT_EQ(job.tuning.adapter->alpha, 32);
  EXPECT_TRUE(job.tuning.adapter->target_modules.all_linear);
  EXPECT_TRUE(job.tuning.quantization->double_quant);
  EXPECT_TRUE(job.checkpointing.on && job.checkpointing.reentrant);
  EXPECT_EQ(job.origin.at("checkpointing"), "default of LLaMA-Factory");
  EXPECT_TRUE(finding(job, Effect::none, "gradient_checkpointing"));
  EXPECT_EQ(job.eval_batch, 4);
  EXPECT_EQ(job.loss_settings.kernel, LossKernel::liger);
  EXPECT_FALSE(finding(job, Effect::unknown, "")) << all_findings(job);
}

TEST_F(Trainers, LlamaFactoryKeepsTrainedWeightsInFp32) {
  Job job = read("full.yaml", "model_name_or_path: gpt2\nfinetuning_type: full\nbf16: true\nlora_rank: 8\n");
  EXPECT_EQ(job.precision, Precision::amp);
  EXPECT_TRUE(finding(job, Effect::none, "lora_rank"));
  job = read("full.yaml", "model_name_or_path: gpt2\nfinetuning_type: full\npure_bf16: true\n");
  EXPECT_EQ(job.precision, Precision::bf16);
  EXPECT_FALSE(job.autocast);
  job = read("full.yaml", "model_name_or_path: gpt2\nfinetuning_type: full\nquantization_bit: 8\n");
  EXPECT_TRUE(finding(job, Effect::refused, "quantization_bit"));
  EXPECT_FALSE(job.tuning.quantization);
}

TEST_F(Trainers, LlamaFactoryCommands) {
  write("lf.yaml", "model_name_or_path: gpt2\nstage: sft\nfinetuning_type: lora\nper_device_train_batch_size: 2\nbf16: true\n");
  Job job = run("FORCE_TORCHRUN=1 NPROC_PER_NODE=4 NNODES=2 llamafactory-cli train @lf.yaml per_device_train_batch_size=3");
  EXPECT_EQ(job.batch, 3);
  EXPECT_EQ(job.origin.at("batch"), "command line: per_device_train_batch_size");
  EXPECT_EQ(world_size(job), 8);
  EXPECT_FALSE(job.parallel.ddp->find_unused_parameters);
  job = run("llamafactory-cli train --stage sft --finetuning_type full --model_name_or_path gpt2 --bf16 true");
  EXPECT_EQ(job.precision, Precision::amp);
  EXPECT_EQ(job.batch, 8);
}

// ---- litgpt

constexpr const char* kLitgpt = R"(
checkpoint_dir: checkpoints/meta-llama/Llama-3.2-1B
out_dir: out/finetune/lora-llama-3.2-1B
precision: bf16-true
quantize:
devices: 1
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_query: true
lora_key: false
lora_value: true
data:
  class_path: litgpt.data.Alpaca2k
train:
  global_batch_size: 8
  micro_batch_size: 2
  max_seq_length: 512
eval:
  interval: 100
optimizer:
  class_path: torch.optim.AdamW
  init_args: {lr: 0.0002, betas: [0.9, 0.95]}
)";

TEST_F(Trainers, Litgpt) {
  Job job = read("lora.yaml", kLitgpt);
  EXPECT_EQ(job.model, "litgpt-llama-3.2-1b");
  EXPECT_EQ(job.trainer, "litgpt");
  EXPECT_EQ(job.precision, Precision::bf16);
  EXPECT_FALSE(job.autocast);
  EXPECT_EQ(job.batch, 2);
  EXPECT_EQ(job.eval_batch, 2);
  EXPECT_EQ(job.accumulation, 4);
  EXPECT_EQ(job.seq, 512);
  EXPECT_EQ(job.config.integer({"block_size"}, 0), 512);
  ASSERT_TRUE(job.tuning.adapter);
  EXPECT_EQ(job.tuning.adapter->r, 32);
  EXPECT_FALSE(job.tuning.adapter->fp32);
  EXPECT_EQ(job.tuning.adapter->target_modules.pattern, "(?:.*[.])?(?:attn[.]query|attn[.]value)");
  EXPECT_EQ(job.optimizer.name, "AdamW");
  resolve_model(job);
  EXPECT_TRUE(problems(job).empty());
}

TEST_F(Trainers, LitgptCommandsAndRefusals) {
  write("l.yaml", kLitgpt);
  Job job = run("litgpt finetune_lora google/gemma-2b --config @l.yaml --train.micro_batch_size 4 --quantize bnb.nf4-dq");
  EXPECT_EQ(job.model, "litgpt-gemma-2b");
  EXPECT_EQ(job.batch, 4);
  EXPECT_EQ(job.accumulation, 2);
  ASSERT_TRUE(job.tuning.quantization);
  EXPECT_TRUE(job.tuning.quantization->double_quant);
  EXPECT_FALSE(job.tuning.quantization->prepare);
  EXPECT_EQ(job.optimizer.name, "PagedAdamW");
  job = run("litgpt finetune_full checkpoints/microsoft/phi-2 --devices 4 --precision bf16-true");
  EXPECT_FALSE(job.tuning.adapter);
  EXPECT_EQ(job.accumulation, 4);  // 16 samples in a step by default, over 4 devices
  ASSERT_TRUE(job.parallel.fsdp1) << all_findings(job);
  EXPECT_TRUE(job.checkpointing.on);
  job = run("litgpt finetune_lora microsoft/phi-2 --quantize bnb.nf4");
  EXPECT_TRUE(finding(job, Effect::refused, "mixed precision"));  // bf16-mixed is the default
  EXPECT_THROW(run("litgpt pretrain pythia-14m"), Error);
  EXPECT_THROW(run("litgpt finetune_lora microsoft/phi-2 --quantize bnb.nf3"), Error);
  EXPECT_THROW(run("litgpt finetune_lora microsoft/phi-2 --precision fp9"), Error);
  EXPECT_THROW(run("litgpt finetune_lora microsoft/phi-2 --devices 32"), Error);  // less than one sample for each
}

TEST_F(Trainers, LitgptReadsTheCheckpointsOwnConfiguration) {
  fs::create_directories(folder_ / "mine");
  write("mine/model_config.yaml", "name: mine\nn_layer: 2\nn_embd: 64\nn_head: 4\npadded_vocab_size: 128\nsliding_window_size:\n");
  const Job job = read("l.yaml", "checkpoint_dir: mine\ntrain: {micro_batch_size: 1, global_batch_size: 2, max_seq_length: 32}\n");
  EXPECT_EQ(job.model, "litgpt");
  EXPECT_EQ(job.config.integer({"n_layer"}, 0), 2);
  EXPECT_EQ(job.origin.at("config.n_layer"), "model_config.yaml: n_layer");
}

// ---- torchtune and torchtitan

constexpr const char* kTune = R"(
output_dir: /tmp/run
steps_at_once: 2
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: [q_proj, output_proj]
  apply_lora_to_mlp: True
  lora_rank: 16
  lora_alpha: 32
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 2048
batch_size: ${steps_at_once}
gradient_accumulation_steps: 8
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  lr: 3e-4
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
dtype: bf16
enable_activation_checkpointing: True
enable_activation_offloading: True
compile: False
clip_grad_norm: null
)";

TEST_F(Trainers, Torchtune) {
  const Job job = read("8B_lora.yaml", kTune);
  EXPECT_EQ(job.model, "llama-3.1-8b");
  EXPECT_EQ(job.origin.at("model"), "8B_lora.yaml: model._component_");
  EXPECT_EQ(job.batch, 2);  // ${...}
  EXPECT_EQ(job.accumulation, 8);
  EXPECT_EQ(job.seq, 2048);
  EXPECT_EQ(job.precision, Precision::bf16);
  EXPECT_FALSE(job.autocast);
  ASSERT_TRUE(job.tuning.adapter);
  EXPECT_EQ(job.tuning.adapter->r, 16);
  EXPECT_FALSE(job.tuning.adapter->fp32);
  EXPECT_EQ(job.tuning.adapter->target_modules.names.size(), 5u);
  EXPECT_EQ(job.optimizer.args.values(), (Json{{"fused", true}}));
  EXPECT_EQ(job.loss_settings.kernel, LossKernel::chunked);
  EXPECT_TRUE(job.checkpointing.on);
  EXPECT_EQ(job.offload_activations, Offload::pinned);
  EXPECT_FALSE(job.clip);
  EXPECT_TRUE(finding(job, Effect::unknown, "steps_at_once"));
}

TEST_F(Trainers, WhatCannotBeSimulatedShardedIsHeldWholeAndSaidSo) {
  write("acc.yaml",
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 4\nnum_machines: 1\nfsdp_config:\n  fsdp_version: 1\n");
  write("recipe.yaml",
        "model_name_or_path: gpt2\nper_device_train_batch_size: 2\nmax_seq_length: 512\ndataset_text_field: text\nbf16: true\n");
  const std::string command = "accelerate launch --config_file @acc.yaml scripts/run_sft.py @recipe.yaml";
  EXPECT_TRUE(run(command).parallel.fsdp1) << all_findings(run(command));
  const Job scaled = run(command + " --bf16 false --fp16 true");
  EXPECT_EQ(scaled.precision, Precision::amp_fp16);
  EXPECT_TRUE(scaled.parallel.fsdp1) << all_findings(scaled);
  const Job job = run(command + " --use_peft true --lora_modules_to_save lm_head");
  EXPECT_FALSE(job.parallel.fsdp1);
  EXPECT_TRUE(finding(job, Effect::unknown, "trained in full beside an adapter")) << all_findings(job);
}

TEST_F(Trainers, TorchtuneCommandsAndRefusals) {
  write("t.yaml", kTune);
  Job job =
      run("tune run --nproc_per_node 2 lora_finetune_distributed --config @t.yaml batch_size=4 "
          "optimizer._component_=bitsandbytes.optim.PagedAdamW8bit");
  EXPECT_EQ(job.batch, 4);
  EXPECT_EQ(job.origin.at("batch"), "command line: batch_size");
  EXPECT_EQ(job.optimizer.name, "PagedAdamW8bit");
  EXPECT_FALSE(job.parallel.ddp);
  ASSERT_TRUE(job.parallel.fsdp) << all_findings(job);
  EXPECT_EQ(job.parallel.fsdp->world, 2);
  job = run("tune run full_finetune_single_device --config @t.yaml optimizer_in_bwd=True enable_activation_checkpointing=False");
  EXPECT_TRUE(finding(job, Effect::refused, "optimizer_in_bwd"));
  EXPECT_FALSE(job.optimizer_in_backward);
  EXPECT_TRUE(finding(job, Effect::refused, "enable_activation_offloading"));
  EXPECT_THROW(run("tune run full_finetune_single_device --config llama3/8B_full"), Error);
  EXPECT_THROW(run("tune run x --config @t.yaml dtype=int7"), Error);
}

constexpr const char* kTitan = R"(
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "8B"
[optimizer]
name = "AdamW"
lr = 3e-4
[training]
local_batch_size = 2
global_batch_size = 16
seq_len = 4096
max_norm = 1.0
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"
[compile]
enable = true
)";

TEST_F(Trainers, Torchtitan) {
  Job job = read("llama3_8b.toml", kTitan);
  EXPECT_EQ(job.model, "llama-3.1-8b");
  EXPECT_EQ(job.batch, 2);
  EXPECT_EQ(job.origin.at("batch"), "llama3_8b.toml: training.local_batch_size");
  EXPECT_EQ(job.accumulation, 8);
  EXPECT_EQ(job.precision, Precision::amp);
  EXPECT_EQ(job.origin.at("precision"), "default of torchtitan");
  EXPECT_EQ(job.checkpointing.every, 2);
  EXPECT_EQ(job.optimizer.args.values(), (Json{{"fused", true}}));
  EXPECT_TRUE(job.compile);
  EXPECT_FALSE(finding(job, Effect::unknown, "")) << all_findings(job);

  write("t.toml", kTitan);
  job = run("torchrun --nproc_per_node 4 -m torchtitan.train --job.config_file @t.toml --training.local_batch_size 1");
  EXPECT_EQ(job.batch, 1);
  EXPECT_EQ(job.origin.at("batch"), "command line: --training.local_batch_size");
  EXPECT_EQ(job.accumulation, 4);
  ASSERT_TRUE(job.program.torchtitan) << all_findings(job);
  EXPECT_EQ(job.program.torchtitan->world, 4);
  EXPECT_EQ(job.precision, Precision::fp32);
  EXPECT_FALSE(job.parallel.ddp);
  const std::string eight = "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file @t.toml ";
  job = run(eight + "--parallelism.data_parallel_replicate_degree 2 --parallelism.fsdp_reshard_after_forward never");
  ASSERT_TRUE(job.program.torchtitan);
  EXPECT_EQ(job.program.torchtitan->replicas, 2);
  EXPECT_EQ(job.program.torchtitan->reshard, ReshardPolicy::never);
  job = run(eight + "--training.mixed_precision_param float32");
  ASSERT_TRUE(job.parallel.fsdp) << "its trainer gathers in bf16";
  EXPECT_EQ(job.parallel.fsdp->world, 8);
  job = run("torchrun --nproc_per_node 4 -m torchtitan.train --job.config_file @t.toml --parallelism.tensor_parallel_degree 4");
  ASSERT_TRUE(job.parallel.tensor) << all_findings(job);
  EXPECT_TRUE(job.parallel.tensor->sequence);
  EXPECT_EQ(job.accumulation, 8);
  job =
      run("CONFIG_FILE=@t.toml NGPU=2 ./run_train.sh --parallelism.data_parallel_replicate_degree 2 "
          "--parallelism.data_parallel_shard_degree 1");
  EXPECT_EQ(world_size(job), 2);
  EXPECT_EQ(job.alloc_conf, "expandable_segments:True") << "that script sets it";
  job = run("torchrun --nproc_per_node 3 -m torchtitan.train --job.config_file @t.toml");
  EXPECT_TRUE(finding(job, Effect::refused, "training.global_batch_size"));
}

TEST_F(Trainers, TorchtitanLayouts) {
  write("t.toml", kTitan);
  const std::string many = "torchrun --nnodes 4 --nproc_per_node 8 -m torchtitan.train --job.config_file @t.toml ";
  Job job = run(many +
                "--parallelism.tensor_parallel_degree 4 --parallelism.pipeline_parallel_degree 2 --parallelism.context_parallel_degree 2 "
                "--parallelism.enable_async_tensor_parallel true --parallelism.context_parallel_rotate_method alltoall");
  ASSERT_TRUE(job.program.torchtitan) << all_findings(job);
  const TorchtitanSettings& t = *job.program.torchtitan;
  EXPECT_EQ(t.tensor, 4);
  EXPECT_EQ(t.pipeline, 2);
  EXPECT_EQ(t.context, 2);
  EXPECT_EQ(t.data(), 2);
  EXPECT_EQ(t.micro_batches, 2) << "of one sample each";
  EXPECT_TRUE(t.async_tensor && !t.gathers_context);
  EXPECT_TRUE(finding(job, Effect::partial, "synchronous"));
  EXPECT_EQ(job.accumulation, 4);
  job = run(many +
            "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule Interleaved1F1B "
            "--activation_checkpoint.selective_ac_option op");
  EXPECT_EQ(job.program.torchtitan->virtual_stages, 2);
  EXPECT_EQ(job.checkpointing.save, parse_checkpointing({{"save", "torchtitan"}}).save);
  job = run(many + "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule ZBVZeroBubble");
  EXPECT_TRUE(finding(job, Effect::unknown, "stands in"));
  job = run(many + "--parallelism.expert_parallel_degree 2");
  EXPECT_TRUE(finding(job, Effect::none, "no experts"));
  const std::string experts = error_of([&] {
    run("torchrun --nproc_per_node 8 -m torchtitan.train --model.name deepseek_v3 --model.flavor 16B --parallelism.expert_parallel_degree "
        "8");
  });
  EXPECT_NE(experts.find("expert_parallel_degree] is 8: experts of torchtitan's models are not simulated"), std::string::npos) << experts;
  EXPECT_NE(experts.find("--megatron world=8,expert=8"), std::string::npos) << experts;
  job = run(many + "--training.tensor_parallel_degree 2");
  EXPECT_EQ(job.program.torchtitan->version, (Version{2025, 2})) << "names of that time";
  EXPECT_THROW(run(many + "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_microbatch_size 3"), Error);
}

TEST_F(Trainers, BadToml) {
  EXPECT_THROW(read("a.toml", "[training]\nlocal_batch_size = -2\n[job]\n"), Error);
  EXPECT_THROW(read("a.toml", "[training]\nlocal_batch_size = 'two'\n[job]\n"), Error);
  EXPECT_THROW(read("a.toml", "[training]\nlocal_batch_size = nan\n[job]\n"), Error);
  EXPECT_THROW(read("a.toml", "[training]\nlocal_batch_size = 1\nlocal_batch_size = 2\n[job]\n"), Error);
  EXPECT_THROW(read("a.toml", "[training]\nseq_len = 99999999999\n[job]\n"), Error);
  EXPECT_THROW(read("a.toml", "[training]\n[job]\n[activation_checkpoint]\nmode = 'some'\n"), Error);
  EXPECT_THROW(read("a.toml", "a = " + std::string(5000, '[') + "\n"), Error);
}

// ---- sd-scripts

TEST_F(Trainers, KohyasBaseInFp8) {
  const std::string flux = "accelerate launch flux_train_network.py --pretrained_model_name_or_path flux1-dev.safetensors --fp8_base ";
  const Job job = run(flux + "--network_module networks.lora_flux --mixed_precision bf16");
  ASSERT_TRUE(job.tuning.quantization);
  EXPECT_EQ(job.tuning.quantization->type, "fp8");
  EXPECT_FALSE(finding(job, Effect::unknown, "fp8_base"));
  const Job unet = run("python sdxl_train_network.py --network_module networks.lora --fp8_base --mixed_precision bf16");
  EXPECT_FALSE(unet.tuning.quantization);
  EXPECT_TRUE(finding(unet, Effect::unknown, "fp8_base"));
}

TEST_F(Trainers, KohyaCommand) {
  write("data.toml",
        "[general]\nenable_bucket = true\n[[datasets]]\nresolution = 1024\nbatch_size = 4\n[[datasets.subsets]]\nimage_dir = 'x'\n");
  const Job job = run(
      "accelerate launch --mixed_precision bf16 --num_processes 1 sdxl_train_network.py --network_module networks.lora --network_dim 32 "
      "--network_alpha 16 --network_args \"conv_dim=8\" \"conv_alpha=4\" --pretrained_model_name_or_path sdxl.safetensors "
      "--mixed_precision bf16 --train_batch_size 2 --optimizer_type AdamW8bit --gradient_checkpointing --sdpa "
      "--cache_latents --cache_text_encoder_outputs --network_train_unet_only --dataset_config @data.toml --blocks_to_swap 0");
  EXPECT_EQ(job.trainer, "sd-scripts");
  EXPECT_EQ(job.model, "sd-scripts-sdxl");
  EXPECT_TRUE(finding(job, Effect::note, "pretrained_model_name_or_path"));
  EXPECT_EQ(job.batch, 4);
  EXPECT_EQ(job.origin.at("batch"), "data.toml: datasets");
  EXPECT_TRUE(finding(job, Effect::none, "train_batch_size"));
  EXPECT_EQ(job.seq, 1024);
  ASSERT_TRUE(job.tuning.adapter);
  EXPECT_EQ(job.tuning.adapter->r, 32);
  EXPECT_EQ(job.origin.at("lora"), "command line: --network_dim");
  EXPECT_FALSE(finding(job, Effect::unknown, "network_args"));
  EXPECT_EQ(job.tuning.adapter->rank_pattern.at("conv1|conv2|conv"), 8);
  EXPECT_THROW(run("python sdxl_train_network.py --network_args conv_dim=many --dataset_config @data.toml"), Error);
  EXPECT_EQ(job.optimizer.name, "AdamW8bit");
  EXPECT_EQ(job.precision, Precision::bf16);
  EXPECT_TRUE(job.autocast);
  EXPECT_TRUE(job.checkpointing.on);
  EXPECT_EQ(job.host.workers, 8);
  EXPECT_EQ(job.origin.at("workers"), "default of sd-scripts");
}

// library/deepspeed_utils.py of sd-scripts: its flags are those of accelerate's plugin.
TEST_F(Trainers, KohyaWithDeepSpeed) {
  const std::string train =
      "accelerate launch --num_processes 4 sdxl_train.py --pretrained_model_name_or_path x.safetensors "
      "--train_batch_size 1 --max_grad_norm 1.0 --deepspeed ";
  Job job = run(train + "--mixed_precision fp16 --zero_stage 1");
  ASSERT_TRUE(job.parallel.deepspeed) << all_findings(job);
  EXPECT_FALSE(job.parallel.ddp);
  EXPECT_EQ(job.parallel.deepspeed->world, 4);
  EXPECT_EQ(job.parallel.deepspeed->stage, 1);
  EXPECT_EQ(job.precision, Precision::fp16);
  EXPECT_TRUE(job.autocast);
  EXPECT_EQ(job.host.workers, 1);
  job = run(train + "--mixed_precision bf16 --offload_optimizer_device cpu");
  ASSERT_TRUE(job.parallel.deepspeed);
  EXPECT_EQ(job.parallel.deepspeed->stage, 2);
  EXPECT_TRUE(job.parallel.deepspeed->offload_optimizer);
  EXPECT_EQ(job.precision, Precision::bf16);
  EXPECT_TRUE(finding(job, Effect::missing, "the fp16 copy of the weights"));
  job = run(train + "--mixed_precision bf16 --zero_stage 3");
  EXPECT_FALSE(job.parallel.deepspeed);
  EXPECT_TRUE(finding(job, Effect::unknown, "zero_stage"));
  EXPECT_FALSE(run(train + "--zero_stage 0").parallel.deepspeed);
  EXPECT_THROW(run(train + "--zero_stage 4"), Error);
}

TEST_F(Trainers, KohyaToml) {
  const std::string text =
      "[model]\npretrained_model_name_or_path = 'm.safetensors'\n[net]\nnetwork_module = 'networks.lora'\nnetwork_dim = 8\n[train]\n"
      "train_batch_size = 3\nresolution = '768,512'\nmixed_precision = 'fp16'\noptimizer_type = 'Prodigy'\nxformers = true\n"
      "persistent_data_loader_workers = true\nmax_data_loader_n_workers = 0\n";
  Job job = read("config.toml", text);
  EXPECT_EQ(job.batch, 3);
  EXPECT_EQ(job.origin.at("batch"), "config.toml: train.train_batch_size");
  EXPECT_EQ(job.seq, 768);
  EXPECT_EQ(job.precision, Precision::fp16);
  EXPECT_EQ(job.optimizer.name, "Prodigy");
  EXPECT_EQ(job.attention, AttentionKernel::efficient);
  EXPECT_TRUE(finding(job, Effect::refused, "persistent_data_loader_workers"));
  write("config.toml", text);
  job = run("python train_network.py --config_file @config.toml --network_dim 64");
  EXPECT_EQ(job.tuning.adapter->r, 64);  // flags win over the file
  EXPECT_EQ(job.model, "sd-scripts-sd1");
  job =
      run("python sdxl_train.py --pretrained_model_name_or_path x --full_bf16 --mixed_precision fp16 --fused_backward_pass "
          "--optimizer_type AdamW");
  EXPECT_TRUE(finding(job, Effect::refused, "full_bf16"));
  EXPECT_TRUE(finding(job, Effect::refused, "fused_backward_pass"));
  EXPECT_THROW(run("python train_network.py --resolution huge"), Error);
  EXPECT_THROW(run("python train_network.py --train_batch_size -1"), Error);
  EXPECT_THROW(read("d.toml", "[[datasets]]\nbatch_size = 0\n[[datasets.subsets]]\nimage_dir = 'x'\n"), Error);
}

// What a script trains is a preset, where the file it names is not here.
TEST_F(Trainers, KohyaScriptsNameModelsThatCanBeSimulated) {
  const std::vector<std::pair<const char*, const char*>> scripts{{"train_network.py", "sd-scripts-sd1"},
                                                                 {"train_network.py --v2", "sd-scripts-sd2"},
                                                                 {"train_db.py", "sd-scripts-sd1"},
                                                                 {"fine_tune.py --v2", "sd-scripts-sd2"},
                                                                 {"sdxl_train.py", "sd-scripts-sdxl"},
                                                                 {"sd3_train_network.py --t5xxl t.safetensors", "sd-scripts-sd3"},
                                                                 {"flux_train_network.py --t5xxl t.safetensors", "sd-scripts-flux"},
                                                                 {"lumina_train_network.py", "sd-scripts-lumina2"}};
  for (const auto& [script, preset] : scripts) {
    Job job = run(std::string("python ") + script + " --pretrained_model_name_or_path m.safetensors --train_batch_size 1");
    EXPECT_EQ(job.model, preset) << script;
    EXPECT_NO_THROW(resolve_model(job)) << script;
  }
}

// Parts beside the denoiser: cached, frozen or trained as the script does it.
TEST_F(Trainers, KohyaTrainsTextEncoders) {
  const auto flag = [](const Job& job, const char* key) { return job.config.flag({key}, false); };
  const std::string common = " --pretrained_model_name_or_path m.safetensors --train_batch_size 1 --mixed_precision bf16 ";
  Job job = run("python sdxl_train_network.py --network_dim 8 --cache_latents --gradient_checkpointing" + common);
  EXPECT_TRUE(flag(job, "train_text_encoder"));
  EXPECT_TRUE(flag(job, "cache_latents"));
  EXPECT_EQ(job.origin.at("config.train_text_encoder"), "default of sd-scripts");
  EXPECT_TRUE(finding(job, Effect::note, "collect gradients"));
  EXPECT_FALSE(finding(job, Effect::unknown, "")) << all_findings(job);
  job = run("python sdxl_train_network.py --network_train_unet_only --no_half_vae" + common);
  EXPECT_FALSE(flag(job, "train_text_encoder"));
  EXPECT_EQ(job.config.text({"vae_dtype"}, ""), "fp32");
  job = run("python sdxl_train_network.py --cache_text_encoder_outputs" + common);
  EXPECT_TRUE(finding(job, Effect::refused, "trained cannot be cached"));
  EXPECT_FALSE(flag(job, "train_text_encoder"));
  job = run("python sdxl_train.py --train_text_encoder" + common);
  EXPECT_TRUE(flag(job, "train_text_encoder"));
  EXPECT_EQ(job.config.text({"te_dtype"}, ""), "bf16");  // of those that are not trained
  EXPECT_FALSE(flag(run("python sdxl_train.py" + common), "train_text_encoder"));
  job = run("python sdxl_train.py --optimizer_type adafactor --fused_backward_pass" + common);
  EXPECT_TRUE(job.optimizer_in_backward);
  EXPECT_FALSE(job.clip);  // each gradient by its own norm
  EXPECT_TRUE(flag(run("python train_db.py" + common), "train_text_encoder"));
  EXPECT_FALSE(flag(run("python train_db.py --stop_text_encoder_training -1" + common), "train_text_encoder"));
}

// ---- what is wrong in any of them

TEST_F(Trainers, WrongValuesNameTheirPlace) {
  const auto error_of = [&](const std::string& text) -> std::string {
    try {
      read("bad.yaml", "num_train_epochs: 1\n" + text);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error_of("per_device_train_batch_size: -4\n").find("bad.yaml: per_device_train_batch_size"), std::string::npos);
  EXPECT_NE(error_of("per_device_train_batch_size: [1]\n").find("bad.yaml"), std::string::npos);
  EXPECT_NE(error_of("per_device_train_batch_size: 99999999999999999999\n").find("bad.yaml"), std::string::npos);
  EXPECT_NE(error_of("bf16: maybe\n").find("bad.yaml: bf16"), std::string::npos);
  EXPECT_NE(error_of("max_grad_norm: {a: 1}\n").find("max_grad_norm"), std::string::npos);
  EXPECT_NE(error_of("dataloader_num_workers: -1\n").find("workers"), std::string::npos);
  EXPECT_NE(error_of("optim_args: momentum\noptim: sgd\n").find("KEY=VALUE"), std::string::npos);
  EXPECT_NE(error_of("deepspeed: 5\n").find("deepspeed"), std::string::npos);
  EXPECT_NE(error_of("bf16: true\nbf16: false\n").find("repeats"), std::string::npos);
  EXPECT_NE(error_of("a: " + std::string(500, '[') + std::string(500, ']') + "\n").find("nests deeper"), std::string::npos);
}

TEST_F(Trainers, FormatsAreToldApart) {
  const auto name_of = [&](const std::string& name, const std::string& text) {
    const Format* format = format_of(parse_document(text, name));
    return std::string(format ? format->name : "none");
  };
  EXPECT_EQ(name_of("c.yml", kAxolotl), "axolotl");
  EXPECT_EQ(name_of("c.yml", kTune), "torchtune");
  EXPECT_EQ(name_of("c.toml", kTitan), "torchtitan");
  EXPECT_EQ(name_of("c.yml", "model: gpt2\nbatch: 4\n"), "job");
  EXPECT_EQ(name_of("c.json", R"({"model_type": "llama", "hidden_size": 64})"), "hf_config");
  EXPECT_EQ(name_of("c.yml", "hello: world\n"), "none");
  EXPECT_EQ(name_of("c.toml", "[tool.poetry]\nname = 'x'\n"), "none");
}

// ---- lint

TEST(Lint, SeesTheDeviceAndLargeEvaluations) {
  Job job;
  job.batch = 2;
  job.eval_batch = 8;
  job.precision = Precision::amp;
  job.attention = AttentionKernel::flash_attention_2;
  lint(job);
  EXPECT_EQ(job.findings.size(), 1u);
  EXPECT_TRUE(finding(job, Effect::note, "eval_batch"));
  Job old = job;
  lint(old, {"Tesla T4", "7.5"});
  EXPECT_TRUE(finding(old, Effect::refused, "precision = amp"));
  EXPECT_TRUE(finding(old, Effect::refused, "attention = flash-attention-2"));
  Job fine = job;
  lint(fine, {"A100", "8.0"});
  EXPECT_FALSE(finding(fine, Effect::refused, ""));
  lint(fine, {"MI300X", "gfx942"});
  EXPECT_FALSE(finding(fine, Effect::refused, ""));
}

// ---- the parts below

TEST(YamlMerge, FollowsTheSpecification) {
  const Json merged = parse_yaml_text("a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {<<: *a, x: 9}\nd: {<<: [*b, *a]}\n", "m");
  EXPECT_EQ(merged["c"], (Json{{"x", 9}, {"y", 2}}));
  EXPECT_EQ(merged["d"], (Json{{"x", 1}, {"y", 3}, {"z", 4}}));
  EXPECT_EQ(parse_yaml_text("a: &a {x: 1}\nb: &b {<<: *a, y: 2}\nc: {<<: *b}\n", "m")["c"], (Json{{"x", 1}, {"y", 2}}));
  EXPECT_EQ(parse_yaml_text("\"<<\": 3\n", "m"), (Json{{"<<", 3}}));  // quoted, it is a key like others
  EXPECT_THROW(parse_yaml_text("a: &a {x: 1}\nb: {<<: *a, <<: *a}\n", "m"), Error);
  EXPECT_THROW(parse_yaml_text("a: {<<: 5}\n", "m"), Error);
  EXPECT_THROW(parse_yaml_text("a: {<<: [1, 2]}\n", "m"), Error);
  EXPECT_THROW(parse_yaml_text("a: {<<: *nothing}\n", "m"), Error);
  EXPECT_THROW(parse_yaml_text("a: &a {<<: *a}\n", "m"), Error);
}

TEST(YamlMerge, AliasesAreBounded) {
  std::string deep = "a0: &a0 [1]\n", wide = "a: &a {" + std::string(200'000, 'k') + ": 1}\nb: [";
  for (int i = 1; i < 3000; ++i) deep += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  for (int i = 0; i < 2000; ++i) wide += "*a,";
  EXPECT_THROW(parse_yaml_text(deep, "deep"), Error);
  EXPECT_THROW(parse_yaml_text(wide + "*a]\n", "wide"), Error);
}

TEST(Overlay, KeepsWhereValuesCameFrom) {
  Document d = parse_document("a: {b: 1, c: 2}\n", "x.yaml");
  overlay(d, {{"a.b", 5}, {"new", true}}, "command line: --");
  EXPECT_EQ(d.value, (Json{{"a", {{"b", 5}, {"c", 2}}}, {"new", true}}));
  Job job;
  Reader r(job, d);
  EXPECT_EQ(r.origin("a.b"), "command line: --a.b");
  EXPECT_EQ(r.origin("a.c"), "x.yaml: a.c");
}

}  // namespace
}  // namespace plimsoll::formats_trainer_test
