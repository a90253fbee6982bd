// Round trips: what a plan writes in the words of a trainer is read as that plan again, to the byte.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "api/verbs.h"
#include "formats/command_line.h"
#include "formats/input.h"
#include "formats/writer.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll::round_trip_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// A small model of the hub, the user's files beside it, and what is written.
class RoundTrip : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "model");
    write("model/config.json", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512,
      "intermediate_size": 1376, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 8000,
      "max_position_embeddings": 2048, "tie_word_embeddings": false, "torch_dtype": "float32"})");
  }
  void TearDown() override { fs::remove_all(folder_); }

  // $MODEL is the model's folder, $FOLDER that of the file.
  std::string write(const std::string& name, std::string text) const {
    for (const auto& [word, path] : {std::pair<std::string, fs::path>{"$MODEL", folder_ / "model"}, {"$FOLDER", folder_}})
      for (size_t at = 0; (at = text.find(word, at)) != std::string::npos;) text.replace(at, word.size(), path.string());
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  static Json answer_to(const char* verb, const Json& request) {
    Json out;
    ask(verb, request.dump(), out);
    return out;
  }

  // What it needs as it is, by an estimate.
  static Json fit(const Json& run, const std::string& gpu, const Json& settings) {
    return answer_to("estimate", {{"run", run}, {"gpu", gpu}, {"settings", settings}})["fits"][0];
  }

  static void expect_as_planned(const Json& fit, const Json& plan, const std::string& where) {
    EXPECT_EQ(fit["device_peak"]["bytes"], plan["device_peak"]["bytes"]) << where << ": " << plan["flags"];
    EXPECT_EQ(fit["verdict"], "fits") << where;
  }

  // A plan for the file on a device that is too small for it: written, read again, executed. A flag for each change says the same.
  void expect_round_trip(const std::string& file, const std::string& gpu, const std::vector<std::string>& keep = {}, bool flags = false) {
    const std::string where = fs::path(file).filename().string() + " on " + gpu, path = fresh(file);
    Json request{{"run", file}, {"gpu", gpu}, {"keep", keep}, {"write", path}};
    const Json answer = answer_to("plan", request);
    EXPECT_EQ(answer["not_written"], Json::array()) << where;
    EXPECT_FALSE(answer["written"].empty()) << where;
    Json settings = Json::object();
    if (answer["environment"].contains("PYTORCH_CUDA_ALLOC_CONF"))
      settings["alloc_conf"] = answer["environment"]["PYTORCH_CUDA_ALLOC_CONF"];
    expect_as_planned(fit(path, gpu, settings), answer["plan"], where);
    EXPECT_EQ(answer["as_written"]["device_peak"], answer["plan"]["device_peak"]) << where;
    if (!flags) return;
    request.erase("write");
    request["flags"] = true;
    const std::vector<std::string> words = shell_words(answer_to("plan", request)["flags"].get<std::string>());
    ASSERT_FALSE(words.empty()) << where;
    commands_.emplace_back(file, words);
  }

  // The file with the flags that were made for it, as a command of its trainer.
  void expect_flags_to_fit(std::vector<std::string> command, const std::string& gpu) {
    ASSERT_FALSE(commands_.empty());
    command.insert(command.end(), commands_.back().second.begin(), commands_.back().second.end());
    const Json fits = fit(command, gpu, Json::object());
    EXPECT_EQ(fits["verdict"], "fits") << join(command, " ");
  }

  std::string fresh(const std::string& file) {
    const fs::path in = folder_ / fmt::format("new{}", ++count_);
    fs::create_directories(in);
    return (in / fs::path(file).filename()).string();
  }

  const fs::path folder_ = fs::temp_directory_path() / fmt::format("plimsoll_round_trip_{}_{}", getpid(),
                                                                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::vector<std::pair<std::string, std::vector<std::string>>> commands_;
  int count_ = 0;
};

TEST_F(RoundTrip, Axolotl) {
  const std::string file = write("a.yml",
                                 "base_model: $MODEL  # small\ndatasets:\n  - path: data.jsonl\n    type: alpaca\nsequence_len: 1024\n"
                                 "micro_batch_size: 16     # fits?\ngradient_accumulation_steps: 2\noptimizer: adamw_torch\nbf16: true\n"
                                 "gradient_checkpointing: false\n");
  expect_round_trip(file, "2.5GiB", {}, true);
  expect_flags_to_fit({"axolotl", "train", file}, "2.5GiB");
  expect_round_trip(file, "3.2GiB", {"batch"});
}

TEST_F(RoundTrip, Trl) {
  const std::string file =
      write("sft.yaml",
            "model_name_or_path: $MODEL\ndataset_name: x/y\nper_device_train_batch_size: 16\nmax_length: 1024 # tokens\n"
            "gradient_accumulation_steps: 2\ngradient_checkpointing: false\nbf16: true\n");
  expect_round_trip(file, "2GiB", {}, true);
  expect_flags_to_fit({"trl", "sft", "--config", file}, "2GiB");
  expect_round_trip(file, "3.2GiB", {"batch"});
}

TEST_F(RoundTrip, TrainingArguments) {
  const std::string file =
      write("args.json",
            "{\n  \"model_name_or_path\": \"$MODEL\",\n  \"per_device_train_batch_size\": 16,\n  \"max_length\": 1024,\n"
            "  \"optim\": \"adamw_torch\",\n  \"bf16\": true\n}\n");
  expect_round_trip(file, "2GiB");
}

TEST_F(RoundTrip, Script) {
  const std::string script =
      "#!/bin/bash\nBS=16      # per device\ntorchrun --nproc_per_node=2 train.py --model_name_or_path $MODEL \\\n"
      "    --max_length 1024 --per_device_train_batch_size $BS --bf16 true \\\n    --gradient_accumulation_steps=${GA:-2}   # the end\n";
  expect_round_trip(write("run.sh", script), "3.5GiB");
}

TEST_F(RoundTrip, LlamaFactory) {
  const std::string file = write("lf.yaml",
                                 "model_name_or_path: $MODEL\n### method\nstage: sft\nfinetuning_type: full\ncutoff_len: 1024\n"
                                 "per_device_train_batch_size: 16\ngradient_accumulation_steps: 2\nbf16: true\n"
                                 "disable_gradient_checkpointing: true\n");
  expect_round_trip(file, "2GiB", {}, true);
  expect_flags_to_fit({"llamafactory-cli", "train", file}, "2GiB");
}

TEST_F(RoundTrip, Torchtune) {
  const std::string file = write("tune.yaml",
                                 "model:\n  _component_: torchtune.models.llama3_2.llama3_2_1b\ntokenizer:\n"
                                 "  _component_: torchtune.models.llama3.llama3_tokenizer\n  max_seq_len: 256\noptimizer:\n"
                                 "  _component_: torch.optim.AdamW\n  fused: False\n  lr: 2e-5\nbatch_size: 4\n"
                                 "gradient_accumulation_steps: 1\nenable_activation_checkpointing: False  # True reduces memory\n"
                                 "dtype: bf16\n");
  expect_round_trip(file, "8GiB", {"adapter", "batch"}, true);  // the optimizer changes: what it had as an argument goes
  EXPECT_NE(std::find(commands_.back().second.begin(), commands_.back().second.end(), "~optimizer.fused"), commands_.back().second.end())
      << join(commands_.back().second, " ");
  expect_flags_to_fit({"tune", "run", "full_finetune_single_device", "--config", file}, "8GiB");
}

TEST_F(RoundTrip, Torchtitan) {
  const std::string file =
      write("titan.toml",
            "[job]\ndump_folder = \"./outputs\"  # here\n\n[model]\nname = \"llama3\"\nflavor = \"8B\"\n\n[training]\n"
            "local_batch_size = 8\nseq_len = 2048\n\n[activation_checkpoint]\nmode = \"none\"  # none, selective, full\n");
  expect_round_trip(file, "170GiB", {"adapter", "precision"});
}

TEST_F(RoundTrip, Kohya) {
  const std::string file =
      write("k.toml",
            "[model]\npretrained_model_name_or_path = \"sd15.safetensors\"\n\n[network]\nnetwork_module = 'networks.lora'\n"
            "network_dim = 32\n\n[train]\ntrain_batch_size = 4 # each\nresolution = \"256,256\"\n"
            "mixed_precision = \"bf16\"\noptimizer_type = 'AdamW'\n");
  expect_round_trip(file, "4GiB", {"offload", "swap", "optimizer"}, true);
  for (const std::string& word : commands_.back().second) EXPECT_EQ(word.find('{'), std::string::npos) << word;
}

TEST_F(RoundTrip, OwnJobFiles) {
  expect_round_trip(write("job.yaml",
                          "model: gpt2 # ours\nbatch: 8\nseq: 256\noptimizer: {name: AdamW, args: {foreach: false}}\nema: true\n"
                          "config: {n_layer: 3}\n"),
                    "1.6GiB");
  expect_round_trip(write("job.json", "{\"model\": \"gpt2\", \"batch\": 8, \"seq\": 256, \"config\": {\"n_layer\": 3}}\n"), "1.6GiB");
}

TEST_F(RoundTrip, SeedsFiles) {
  const std::string seeds = std::string(PLIMSOLL_SOURCE_DIR) + "/examples/seeds/";
  expect_round_trip(seeds + "gsa-low-memory.yaml", "14GiB", {"adapter", "precision", "optimizer", "update"});
}

// Those whose plans take long: a recipe as a plan has it, written, and the same as settings on top of the file.
TEST_F(RoundTrip, RecipesInFilesOfSlowModels) {
  const std::pair<const char*, Json> recipes[]{
      {"stdiff-kitti-64x2048.yaml", {{"batch", 1}, {"accumulation", 4}, {"ema", false}}},
      {"ai-toolkit-flux-lora.yaml", {{"batch", 2}, {"seq", 512}, {"optimizer", "AdamW"}, {"ema", false}}},
      {"mamba-balanced-16gb.json", {{"batch", 1}, {"accumulation", 2}, {"seq", 64}, {"config", {{"max_seq_len", 64}}}}},
      {"fsdm-lag.sh", {{"batch", 16}, {"config", {{"sample_size", 4}}}}}};
  for (const auto& [name, recipe] : recipes) {
    const std::string file = std::string(PLIMSOLL_SOURCE_DIR) + "/examples/seeds/" + name;
    const Document document = read_document(file);
    Job before;
    read_input_document(before, document);
    const Rewritten file_of = rewrite(document, before, Patch::from(nlohmann::json::parse(recipe.dump())));
    for (const NotWritten& n : file_of.not_written) ADD_FAILURE() << name << ": " << n.setting << ": " << n.instead;
    const std::string path = fresh(file);
    std::ofstream(path) << file_of.text;
    const Json asked = answer_to("estimate", {{"run", file}, {"settings", recipe}}), read = answer_to("estimate", {{"run", path}});
    for (const char* figure : {"peak_bytes", "device_peak_bytes", "parameters"})
      EXPECT_EQ(read[figure], asked[figure]) << name << " " << figure;
    EXPECT_NE(file_of.text, document.text) << name;
  }
}

// Launchers' files say a part of a run, and count through the command that names them.
TEST_F(RoundTrip, FilesOfLaunchers) {
  const std::string accelerate =
      write("acc.yaml", "distributed_type: MULTI_GPU\nmixed_precision: 'no'\nnum_machines: 1\nnum_processes: 2\n");
  const std::vector<std::string> command{"accelerate",
                                         "launch",
                                         "--config_file",
                                         accelerate,
                                         "train.py",
                                         "--model_name_or_path",
                                         (folder_ / "model").string(),
                                         "--max_length",
                                         "256",
                                         "--per_device_train_batch_size",
                                         "2"};
  const Json before = answer_to("estimate", {{"run", command}});
  const Json asked = answer_to("estimate", {{"run", command}, {"settings", {{"precision", "amp"}}}});
  Job job;
  const Document document = read_document(accelerate);
  read_input_document(job, document);
  write("acc.yaml", rewrite(document, job, {{"precision", "amp"}}).text);
  const Json read = answer_to("estimate", {{"run", command}});
  EXPECT_EQ(read["peak_bytes"], asked["peak_bytes"]);
  EXPECT_NE(read["peak_bytes"], before["peak_bytes"]);
}

// What no file says is said, with what it then needs: the seed's trainer has no word for adapters.
TEST_F(RoundTrip, WhatIsNotWrittenIsExecuted) {
  const Json answer = answer_to("plan", {{"run", std::string(PLIMSOLL_SOURCE_DIR) + "/examples/seeds/gsa-low-memory.yaml"},
                                         {"gpu", "8GiB"},
                                         {"diff", true},
                                         {"unrestricted", true}});
  EXPECT_FALSE(answer["not_written"].empty());
  EXPECT_GT(answer["as_written"]["device_peak"]["bytes"], answer["plan"]["device_peak"]["bytes"]);
  EXPECT_EQ(answer["as_written"]["verdict"], "does not fit");
  EXPECT_NE(answer["diff"].get<std::string>().find("+  micro_batch_size: 1"), std::string::npos) << answer["diff"];
}

// Each device's row has the user's own command with what to add: started so, it fits there.
TEST_F(RoundTrip, ATableOfDevicesHasTheTrainersCommands) {
  const std::vector<std::string> run{
      "trl",    "sft", "--model_name_or_path", (folder_ / "model").string(), "--per_device_train_batch_size", "16", "--max_length", "1024",
      "--bf16", "true"};
  for (const Json& row : answer_to("plan", {{"run", run}, {"gpu", "1.2GiB,2GiB,6GiB"}})["plans"]) {
    const std::string command = row["command"].get<std::string>();
    const std::vector<std::string> words = shell_words(command);
    ASSERT_GT(words.size(), run.size()) << command;
    EXPECT_TRUE(std::equal(run.begin(), run.end(), words.begin())) << command;
    EXPECT_EQ(fit(words, row["device"].get<std::string>(), Json::object())["verdict"], "fits") << command;
  }
}

}  // namespace
}  // namespace plimsoll::round_trip_test
