// Whose a file is, by evidence; what is said of one that is nobody's; which parts of a run an answer lacks; keys that nobody knows.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "api/request.h"
#include "estimate/fit.h"
#include "report/estimate_report.h"
#include "seed_formats.h"
#include "shown.h"
#include "support.h"

namespace plimsoll::recognition_test {
namespace {

namespace fs = std::filesystem;

class Recognition : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("plimsoll_recognition_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  Job read(const std::string& name, const std::string& text) {
    Job job;
    read_input_file(job, write(name, text));
    return job;
  }
  std::string refusal(const std::string& name, const std::string& text) {
    return error_of([&] { read(name, text); });
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

bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

// --- whose it is

const char* kGenericYaml =
    "model: {d_model: 768, n_layers: 12, n_heads: 12, vocab_size: 50257}\n"
    "training: {micro_batch_size: 8, max_seq_len: 1024, precision: bf16, gradient_checkpointing: false}\n";
const char* kGenericJson =
    R"({"model": {"d_model": 1024, "n_layers": 24, "max_seq_len": 1024, "vocab_size": 32000}, "training": {"learning_rate": 1e-4, "max_steps": 10}})";

TEST_F(Recognition, AFileThatAnybodyCouldHaveWrittenIsNobodys) {
  const std::string yaml = refusal("train.yaml", kGenericYaml), json = refusal("train.json", kGenericJson);
  EXPECT_TRUE(says(yaml, "model.d_model, model.n_heads")) << yaml;
  EXPECT_TRUE(says(yaml, "no trainer that is known writes these keys")) << yaml;
  EXPECT_TRUE(says(yaml,
                   "plimsoll estimate gpt2 --config n_layer=12 --config n_embd=768 --config n_head=12 --config vocab_size=50257 "
                   "--batch 8 --seq 1024"))
      << yaml;
  EXPECT_TRUE(says(json, "no trainer that is known writes these keys")) << json;
  for (const char* text : {"training:\n  micro_batch_size: 4\n", "micro_batch_size: 4\ngradient_accumulation_steps: 8\n",
                           "model: {n_layers: 4, d_ffn: 64}\n", "model: {max_seq_len: 256}\n", "gradient_checkpointing: true\n",
                           "train: {gradient_checkpointing: true}\n", "datasets: [{num_workers: 0}]\n"})
    EXPECT_TRUE(says(refusal("part.yaml", text), "no trainer that is known")) << text;
  EXPECT_TRUE(says(refusal("x.json", R"({"train_batch_size": 8, "optimizer": "adam"})"), "no trainer that is known"));
  EXPECT_TRUE(says(refusal("x.toml", "[training]\nepochs = 3\n[job]\nname = 'x'\n"), "no trainer that is known"));
}

TEST_F(Recognition, ACommandThatAnybodyCouldHaveTypedIsNobodys) {
  for (const char* command :
       {"python train.py --model_size small", "python train.py --training_preset fast", "python train.py --config nowhere.json",
        "python main_jax.py --batch_size 8 --sample_size 3", "python run.py nowhere.yaml",
        "python train.py --gradient_accumulation_steps=8 --batch_size=12", "torchrun training/train.py --config nowhere.yaml"}) {
    const std::string text = error_of([&] { run(command); });
    EXPECT_TRUE(says(text, "is a Python script")) << command << ": " << text;
    EXPECT_FALSE(says(text, "peft_weights")) << text;  // no list of readers
  }
  write("mine.yaml", "model: gpt2\nbatch_size: 4\n");
  EXPECT_TRUE(says(error_of([&] { run("python train.py --config @mine.yaml"); }), "is a Python script"));
}

TEST_F(Recognition, AnOwnScriptIsToldWhatWasUnderstoodOfIt) {
  const std::string text = error_of([&] { run("python d/train.py --batch-size 32 --lr 1e-3 --config nowhere.yaml"); });
  EXPECT_TRUE(says(text, "d/train.py is a Python script with the flags --batch_size 32")) << text;
  EXPECT_TRUE(says(text, "nowhere.yaml is not here")) << text;
  EXPECT_TRUE(says(text, "plimsoll estimate gpt2 --config n_layer=12 --batch 32")) << text;
  EXPECT_TRUE(says(text, "plimsoll capture -o train.trace -- python d/train.py --batch-size 32 --lr 1e-3")) << text;
  EXPECT_TRUE(says(text, "plimsoll estimate train.trace")) << text;
  EXPECT_LT(text.size(), 700u);
  EXPECT_TRUE(says(error_of([&] { run("make -j 8"); }), "'make' is not a trainer"));
}

TEST_F(Recognition, WhatDecidedIsNoted) {
  const Job axolotl = read("a.yml", "base_model: gpt2\nmicro_batch_size: 2\nsequence_len: 512\n");
  EXPECT_TRUE(finds(axolotl, Effect::note, "read as axolotl: base_model, micro_batch_size, sequence_len")) << findings_text(axolotl);
  const Job gsa = read("g.yaml", "model: {n_layers: 2, gsa: {k_max: 64, d_indexer: 8}}\ntraining: {micro_batch_size: 2}\n");
  EXPECT_TRUE(finds(gsa, Effect::note, "read as gsa: model.gsa.d_indexer, model.gsa.k_max")) << findings_text(gsa);
  const Job mamba = run("python train.py --model_size small --vram 8gb");
  EXPECT_TRUE(finds(mamba, Effect::note, "read as mamba_trainer: --vram, --model_size")) << findings_text(mamba);
  const Job command = run("python train.py --per_device_train_batch_size 2 --model_name_or_path gpt2");
  EXPECT_TRUE(finds(command, Effect::note, "read as hf_training_arguments: --per_device_train_batch_size")) << findings_text(command);
}

TEST_F(Recognition, AReaderCanBeInsistedOn) {
  Job job;
  read_input(job, {write("part.yaml", "micro_batch_size: 3\ngradient_accumulation_steps: 21\n")}, "gsa");
  EXPECT_EQ(job.trainer, "gsa");
  EXPECT_EQ(job.batch, 3);
  EXPECT_TRUE(finds(job, Effect::note, "as it was asked for"));
  EXPECT_TRUE(says(error_of([&] { read_input(job, {write("part.yaml", "a: 1\n")}, "nobody"); }), "known: peft_weights"));
  EXPECT_TRUE(says(error_of([&] { read_input(job, {"gpt2"}, "gsa"); }), "neither a file nor a command"));
}

// --- what a file is

TEST_F(Recognition, AForeignFileIsCalledWhatItIs) {
  struct Row {
    const char* name;
    std::string text;
    const char* what;
    const char* way;
  };
  const Row rows[] = {
      {"train.py", "import torch\nmodel = torch.nn.Linear(1, 1)\n", "is a Python script", "plimsoll explain -- python"},
      {"weights.pt", "\x80\x02}q\x01.", "is a Python pickle", "plimsoll explain"},
      {"model.pt", "PK\3\4 and more", "is a zip archive, as torch.save writes it", "config.json"},
      {"noise", std::string("\x01\x02\0\x03\xff\xfe\x07\x1f", 8), "is binary", "config.json"},
      {"noise.yaml", std::string("\x01\x02\0\x03\xff\xfe\x07\x1f", 8), "is binary", "config.json"},
      {"paper.pdf", "%PDF-1.7\n", "is a PDF", "config.json"},
      {"x.ipynb", R"({"cells": [], "nbformat": 4})", "is a notebook", "config.json"},
      {"requirements.txt", "torch==2.9\nnumpy>=1.26\naccelerate\n", "is a list of Python packages", "config.json"},
      {"train.log", "step 1\ntorch.OutOfMemoryError: CUDA out of memory.\n", "is a log", "plimsoll explain"},
      {"notes.txt", "step 1\ntorch.OutOfMemoryError: CUDA out of memory.\n", "is a log", "plimsoll explain"},
      {"empty.yaml", "", "is empty", "config.json"},
      {"README.md", "# Title\n", "is a text", "config.json"},
      {"notes.md", "It ends with torch.OutOfMemoryError: CUDA out of memory.\n", "is a text", "config.json"},
      {"words.yaml", "just a sentence\n", "holds no keys", "config.json"},
  };
  for (const Row& row : rows) {
    const std::string text = refusal(row.name, row.text);
    EXPECT_TRUE(says(text, row.what)) << row.name << ": " << text;
    EXPECT_TRUE(says(text, row.way)) << row.name << ": " << text;
    EXPECT_FALSE(says(text, "fix the")) << text;
  }
}

TEST_F(Recognition, APipeIsNotWaitedFor) {
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  Job job;
  for (const std::string& path : {pipe, std::string("/dev/null"), std::string("/dev/zero")})
    EXPECT_TRUE(says(error_of([&] { read_input(job, {path}); }), "is a pipe or a device")) << path;
}

TEST_F(Recognition, AFileThatIsNotThereIsNoModel) {
  for (const char* name : {"missing.yaml", "missing.log", "./missing", "sub/missing.json"}) {
    const std::string text = error_of([&] { job_of(name, nlohmann::json::object()); });
    EXPECT_TRUE(says(text, std::string("no such file: ") + name)) << text;
    EXPECT_FALSE(says(text, "did you mean")) << text;
  }
}

TEST_F(Recognition, ADirectorySaysWhatWasTaken) {
  write("dir/a.yml", "base_model: gpt2\nmicro_batch_size: 2\n");
  write("dir/mine.yaml", kGenericYaml);
  write("dir/broken.json", "{");
  write("dir/tokenizer.json", "{}");
  Job job;
  read_input_directory(job, (folder_ / "dir").string());
  EXPECT_EQ(job.batch, 2);
  EXPECT_TRUE(finds(job, Effect::assumed, "files; a.yml (axolotl)")) << findings_text(job);
  EXPECT_TRUE(finds(job, Effect::unknown, "mine.yaml; left out: no trainer that is known writes it")) << findings_text(job);
  EXPECT_TRUE(finds(job, Effect::unknown, "broken.json; left out, as it cannot be read")) << findings_text(job);
  EXPECT_FALSE(finds(job, Effect::unknown, "tokenizer.json"));
  write("dir/b.yml", "base_model: gpt2\nmicro_batch_size: 4\n");
  Job two;
  read_input_directory(two, (folder_ / "dir").string());
  EXPECT_TRUE(finds(two, Effect::conflict, "a.yml (axolotl), b.yml (axolotl) are read in turn")) << findings_text(two);
}

TEST_F(Recognition, TwoModelsAreCalledTwoModels) {
  const auto error = [](std::vector<std::string> words) {
    return error_of([&] {
      JobRequest request;
      request.run = std::move(words);
      request.job();
    });
  };
  EXPECT_TRUE(says(error({"gpt2", "bert-base"}), "two models: gpt2 and bert-base")) << error({"gpt2", "bert-base"});
  EXPECT_TRUE(says(error({"gpt2", "bert-base"}), "plimsoll compare gpt2 bert-base"));
  EXPECT_TRUE(says(error({"gpt2", "false"}), "gpt2 is a model, and 'false' after it is not understood"));
}

TEST_F(Recognition, AnOwnersCopyOfAModelIsAnAssumption) {
  EXPECT_TRUE(finds(job_of("x/gpt2", nlohmann::json::object()), Effect::assumed, "model; x/gpt2 taken for gpt2"));
  for (const char* original : {"openai-community/gpt2", "https://huggingface.co/Qwen/Qwen3-8B"}) {
    const Job job = job_of(original, nlohmann::json::object());
    EXPECT_TRUE(finds(job, Effect::note, "taken for the preset")) << findings_text(job);
    EXPECT_FALSE(finds(job, Effect::assumed, "taken for"));
  }
}

// --- parts that are missing

const char* kSdxl =
    "[model]\npretrained_model_name_or_path = '%s'\n[train]\nnetwork_module = 'networks.lora'\nnetwork_dim = 16\ntrain_batch_size = 1\n"
    "resolution = 1024\nmixed_precision = 'bf16'\noptimizer_type = 'AdamW8bit'\ngradient_checkpointing = true\nsdpa = true\n";

std::string sdxl_of(const std::string& name) {
  std::string text = kSdxl;
  return text.replace(text.find("%s"), 2, name);
}

TEST_F(Recognition, ANameOnTheHubIsTheSameModelAsItsFile) {
  const Job hub = read("hub.toml", sdxl_of("stabilityai/stable-diffusion-xl-base-1.0"));
  const Job file = read("file.toml", sdxl_of("/m/sd_xl_base_1.0.safetensors"));
  EXPECT_EQ(hub.model, "sd-scripts-sdxl");
  EXPECT_EQ(hub.model, file.model);
  EXPECT_EQ(hub.config.values(), file.config.values());
  EXPECT_EQ(missing_parts(hub), "");
  EXPECT_EQ(read("sd15.toml", sdxl_of("runwayml/stable-diffusion-v1-5")).model, "sd-scripts-sd1");
  const Job other = read("other.toml", sdxl_of("stabilityai/stable-diffusion-3.5-large"));
  EXPECT_EQ(missing_parts(other), "the text encoders and the VAE");
  const Job cached = read("cached.toml", sdxl_of("stabilityai/stable-diffusion-3.5-large") +
                                             "cache_latents = true\ncache_text_encoder_outputs = true\nnetwork_train_unet_only = true\n");
  EXPECT_EQ(missing_parts(cached), "");
}

TEST_F(Recognition, PreferencesAndRolloutsAreMissingParts) {
  const std::string model = " --model_name_or_path gpt2 --per_device_train_batch_size 2";
  EXPECT_EQ(missing_parts(run("trl sft" + model)), "");
  EXPECT_EQ(missing_parts(run("trl dpo" + model)), "the preference loss and the reference model");
  EXPECT_EQ(missing_parts(run("trl dpo --use_peft" + model)), "the preference loss");
  EXPECT_EQ(missing_parts(run("trl kto" + model)), "the preference loss and the reference model");
  EXPECT_EQ(missing_parts(run("trl reward" + model)), "the preference loss");
  EXPECT_EQ(missing_parts(run("trl grpo" + model)), "the generation of answers");
  EXPECT_EQ(missing_parts(run("trl grpo --use_vllm --beta 0.04" + model)), "the reference model and the rollout engine");
  EXPECT_EQ(missing_parts(run("python ppo.py" + model)),
            "the reference model, the generation of answers, the value model and the reward model");
  EXPECT_EQ(missing_parts(read("dpo.yaml", "model_name_or_path: gpt2\nper_device_train_batch_size: 2\nmax_prompt_length: 128\n")),
            "the preference loss and the reference model");
  const std::string axolotl = "base_model: gpt2\nmicro_batch_size: 1\nrl: ";
  EXPECT_EQ(missing_parts(read("a.yml", axolotl + "dpo\n")), "the preference loss and the reference model");
  EXPECT_EQ(missing_parts(read("a.yml", axolotl + "dpo\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n")), "the preference loss");
  EXPECT_EQ(missing_parts(read("a.yml", axolotl + "grpo\ntrl: {use_vllm: true}\n")), "the rollout engine");
  const std::string factory = "model_name_or_path: gpt2\nfinetuning_type: full\nstage: ";
  EXPECT_EQ(missing_parts(read("f.yaml", factory + "dpo\n")), "the preference loss and the reference model");
  EXPECT_EQ(missing_parts(read("f.yaml", factory + "dpo\npref_loss: simpo\n")), "the preference loss");
  EXPECT_EQ(missing_parts(read("f.yaml", factory + "rm\n")), "the preference loss");
}

TEST_F(Recognition, AFileThatIsNamedAndNotHereIsMissing) {
  const Job job = run("python train.py --model_name_or_path gpt2 --per_device_train_batch_size 2 --deepspeed nowhere.json");
  EXPECT_EQ(missing_parts(job), "the file nowhere.json") << findings_text(job);
}

// --- keys that nobody knows

TEST_F(Recognition, ASlipInAKeyIsAWarning) {
  const Job job = read("a.yml", "base_model: gpt2\ndatasets: []\nmicro_batchsize: 4\nlora_magic: 3\nmy_note: x\n");
  EXPECT_EQ(job.batch, 1);
  EXPECT_TRUE(finds(job, Effect::unknown, "micro_batchsize = 4; not known: did you mean micro_batch_size?")) << findings_text(job);
  EXPECT_TRUE(finds(job, Effect::unknown, "lora_magic = 3; not known here, and it may matter for memory")) << findings_text(job);
  EXPECT_TRUE(finds(job, Effect::unknown, "taken to say nothing about memory: my_note")) << findings_text(job);
  const std::string warnings = shown(warning_blocks(job));
  EXPECT_TRUE(says(warnings, "did you mean micro_batch_size?")) << warnings;
  EXPECT_TRUE(says(warnings, "lora_magic")) << warnings;
  EXPECT_FALSE(says(warnings, "my_note")) << warnings;
}

Job with_config(const std::string& model, const nlohmann::json& config) {
  JobRequest request;
  request.run = {model};
  request.set("config", config, "--config");
  return request.job();
}

TEST_F(Recognition, ATypedKeyThatNothingReadsIsAnError) {
  const std::string slip = error_of([] { with_config("gpt2", {{"n_layers", 3}}); });
  EXPECT_TRUE(says(slip, "--config n_layers=3: nothing in gpt2 reads a key of that name | did you mean n_layer?")) << slip;
  const std::string other = error_of([] { with_config("gpt2", {{"encoder_ffn_dim", 64}}); });
  EXPECT_TRUE(says(other, "nothing in gpt2 reads a key of that name | its keys are, nearest first:")) << other;
  const Job harmless = with_config("gpt2", {{"n_layer", 2}, {"bos_token_id", 1}});
  EXPECT_TRUE(finds(harmless, Effect::unknown, "bos_token_id = 1; nothing in gpt2 reads it")) << findings_text(harmless);
  EXPECT_FALSE(finds(harmless, Effect::unknown, "n_layer"));
  EXPECT_EQ(error_of([] { with_config("resnet18", {{"image_size", 64}}); }).find("nothing in"), std::string::npos);
  // a file may hold what it likes
  const std::string path = write("config.json", R"({"model_type": "gpt2", "n_layer": 2, "n_layers": 3, "task_specific_params": {}})");
  JobRequest request;
  request.run = {path};
  EXPECT_NO_THROW(request.job());
}

TEST_F(Recognition, OtherNamesOfAKeyAreRead) {
  for (const auto& [model, key] : std::vector<std::pair<const char*, const char*>>{
           {"gpt2", "num_hidden_layers"}, {"llama", "num_hidden_layers"}, {"bert", "num_hidden_layers"}, {"t5", "num_layers"}})
    EXPECT_NO_THROW(with_config(model, {{key, 2}})) << model << " " << key;
}

}  // namespace
}  // namespace plimsoll::recognition_test
