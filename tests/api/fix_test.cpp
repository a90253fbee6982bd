// `fix`: for each format that is written, a run that does not fit becomes one that does, by a difference of the user's own file.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "api/verbs.h"
#include "formats/command_line.h"
#include "report/renderers.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll::fix_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class Fix : public ::testing::Test {
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

  static std::string content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  static Json answer_to(const char* verb, const Json& request, ExitCode* code = nullptr) {
    Json out;
    const ExitCode c = ask(verb, request.dump(), out);
    if (code) *code = c;
    return out;
  }

  static Json estimate(const Json& run, const std::string& gpu, const Json& settings = Json::object()) {
    return answer_to("estimate", {{"run", run}, {"gpu", gpu}, {"settings", settings}})["fits"][0];
  }

  // The text that a person sees.
  static std::string text_of(const Json& request) {
    std::string out;
    Show show = [&](const auto& document, const auto&) { out = doc::to_text(document(), Style{}); };
    find_verb("fix").answer(nlohmann::json::parse(request.dump()), show);
    return out;
  }

  // Does not fit, is fixed, written, read again, and fits: as an estimate of the new file says.
  Json expect_fixed(const std::string& file, const std::string& gpu, const Json& more = Json::object()) {
    const std::string where = fs::path(file).filename().string() + " on " + gpu, before = content(file);
    EXPECT_NE(estimate(file, gpu)["verdict"], "fits") << where;
    Json request{{"run", file}, {"gpu", gpu}, {"write", true}};
    request.update(more);
    ExitCode code{};
    const Json answer = answer_to("fix", request, &code);
    EXPECT_EQ(code, ExitCode::ok) << where << answer.dump(1);
    EXPECT_FALSE(answer["diff"].get<std::string>().empty()) << where << answer.dump(1);
    EXPECT_FALSE(answer["changes"].empty()) << where;
    for (const Json& c : answer["changes"]) EXPECT_NE(c["key"], "") << where << c.dump();
    EXPECT_EQ(answer["written"], file) << where;
    EXPECT_EQ(content(answer["backup"].get<std::string>()), before) << where;
    EXPECT_EQ(content(file), answer["text"].get<std::string>()) << where;
    const Json after = estimate(file, gpu);
    EXPECT_EQ(after["verdict"], "fits") << where << answer["diff"];
    EXPECT_EQ(after["device_peak"], answer["after"]["device_peak"]) << where;
    EXPECT_GT(answer["before"]["device_peak"]["bytes"], answer["after"]["device_peak"]["bytes"]) << where;
    return answer;
  }

  static std::string copy_of_example(const fs::path& to, const std::string& name) {
    const fs::path path = to / fs::path(name).filename();
    fs::copy_file(fs::path(PLIMSOLL_SOURCE_DIR) / "examples" / name, path);
    return path.string();
  }

  const fs::path folder_ = fs::temp_directory_path() /
                           fmt::format("plimsoll_fix_{}_{}", getpid(), ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(Fix, Axolotl) {
  const std::string file = write("a.yml",
                                 "base_model: $MODEL  # small\ndatasets:\n  - path: data.jsonl\n    type: alpaca\nsequence_len: 1024\n"
                                 "micro_batch_size: 16     # fits?\ngradient_accumulation_steps: 2\noptimizer: adamw_torch\nbf16: true\n"
                                 "gradient_checkpointing: false\n");
  const Json answer = expect_fixed(file, "3GiB");
  EXPECT_EQ(answer["class"], "same result");
  EXPECT_NE(content(file).find("# fits?"), std::string::npos) << "comments stay";
}

TEST_F(Fix, Trl) {
  expect_fixed(write("sft.yaml",
                     "model_name_or_path: $MODEL\ndataset_name: x/y\nper_device_train_batch_size: 16\nmax_length: 1024 # tokens\n"
                     "gradient_accumulation_steps: 2\ngradient_checkpointing: false\nbf16: true\n"),
               "3GiB");
}

TEST_F(Fix, TrainingArguments) {
  expect_fixed(write("args.json",
                     "{\n  \"model_name_or_path\": \"$MODEL\",\n  \"per_device_train_batch_size\": 16,\n  \"max_length\": 1024,\n"
                     "  \"optim\": \"adamw_torch\",\n  \"bf16\": true\n}\n"),
               "3GiB");
}

TEST_F(Fix, LlamaFactory) {
  expect_fixed(write("lf.yaml",
                     "model_name_or_path: $MODEL\n### method\nstage: sft\nfinetuning_type: full\ncutoff_len: 1024\n"
                     "per_device_train_batch_size: 16\ngradient_accumulation_steps: 2\nbf16: true\n"
                     "disable_gradient_checkpointing: true\n"),
               "3GiB");
}

TEST_F(Fix, Torchtune) {
  expect_fixed(write("tune.yaml",
                     "model:\n  _component_: torchtune.models.llama3_2.llama3_2_1b\ntokenizer:\n"
                     "  _component_: torchtune.models.llama3.llama3_tokenizer\n  max_seq_len: 256\noptimizer:\n"
                     "  _component_: torch.optim.AdamW\n  fused: False\n  lr: 2e-5\nbatch_size: 4\n"
                     "gradient_accumulation_steps: 1\nenable_activation_checkpointing: False  # True reduces memory\n"
                     "dtype: bf16\n"),
               "11GiB");
}

TEST_F(Fix, Torchtitan) {
  expect_fixed(write("titan.toml",
                     "[job]\ndump_folder = \"./outputs\"  # here\n\n[model]\nname = \"llama3\"\nflavor = \"8B\"\n\n[training]\n"
                     "local_batch_size = 8\nseq_len = 2048\n\n[activation_checkpoint]\nmode = \"none\"  # none, selective, full\n"),
               "170GiB");
}

TEST_F(Fix, Kohya) {
  const Json answer =
      expect_fixed(write("k.toml",
                         "[model]\npretrained_model_name_or_path = \"sd15.safetensors\"\n\n[network]\nnetwork_module = 'networks.lora'\n"
                         "network_dim = 32\n\n[train]\ntrain_batch_size = 4 # each\nresolution = \"256,256\"\n"
                         "mixed_precision = \"bf16\"\noptimizer_type = 'AdamW'\n"),
                   "4GiB");
  EXPECT_EQ(answer["plan"]["global_batch"], 4);
}

TEST_F(Fix, OwnJobFiles) {
  expect_fixed(write("job.yaml",
                     "model: gpt2 # ours\nbatch: 8\nseq: 256\noptimizer: {name: AdamW, args: {foreach: false}}\nema: true\n"
                     "config: {n_layer: 3}\n"),
               "3GiB");
  expect_fixed(write("job.json", "{\"model\": \"gpt2\", \"batch\": 8, \"seq\": 256, \"config\": {\"n_layer\": 3}}\n"), "3GiB");
}

TEST_F(Fix, GatedSparseAttention) { expect_fixed(copy_of_example(folder_, "seeds/gsa-low-memory.yaml"), "15GiB"); }

TEST_F(Fix, Launchers) {
  const std::string file = write("ds.json",
                                 "{\n  \"train_micro_batch_size_per_gpu\": 16,\n  \"gradient_accumulation_steps\": 1,\n"
                                 "  \"zero_optimization\": {\"stage\": 0}\n}\n");
  const Json settings{{"model", (folder_ / "model").string()}, {"seq", 512}};
  ExitCode code{};
  const Json answer = answer_to("fix", {{"run", file}, {"settings", settings}, {"gpu", "2GiB"}, {"keep", "precision"}}, &code);
  EXPECT_EQ(code, ExitCode::ok) << answer.dump(1);
  EXPECT_NE(answer["diff"].get<std::string>().find("+  \"train_micro_batch_size_per_gpu\""), std::string::npos) << answer["diff"];
}

TEST_F(Fix, Scripts) {
  const std::string file =
      write("run.sh",
            "#!/bin/bash\nBS=16      # per device\ntorchrun --nproc_per_node=2 train.py --model_name_or_path $MODEL \\\n"
            "    --max_length 1024 --per_device_train_batch_size $BS --bf16 true \\\n    --gradient_accumulation_steps=${GA:-2}   # end\n");
  ASSERT_EQ(::chmod(file.c_str(), 0750), 0);
  expect_fixed(file, "3.5GiB");
  struct stat facts {};
  ASSERT_EQ(::stat(file.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0750u) << "the mode is kept";
}

TEST_F(Fix, CommandsArePrintedWithTheChanges) {
  const std::vector<std::string> run{"trl",
                                     "sft",
                                     "--model_name_or_path",
                                     (folder_ / "model").string(),
                                     "--max_length",
                                     "1024",
                                     "--per_device_train_batch_size",
                                     "16",
                                     "--bf16",
                                     "true",
                                     "--dataset_name",
                                     "x/y"};
  const Json answer = answer_to("fix", {{"run", run}, {"gpu", "2GiB"}});
  const std::string command = answer["text"].get<std::string>();
  EXPECT_EQ(estimate(shell_words(command), "2GiB")["verdict"], "fits") << command;
  EXPECT_TRUE(command.starts_with("trl sft --model_name_or_path")) << command;
  EXPECT_EQ(answer["diff"], "");
  Json ignored;
  EXPECT_THROW(ask("fix", Json{{"run", run}, {"gpu", "2GiB"}, {"write", true}}.dump(), ignored), Error);
}

TEST_F(Fix, OfAModelIsFlagsToAdd) {
  const Json settings{{"batch", 8}, {"seq", 256}, {"config", {{"n_layer", 3}}}, {"precision", "fp32"}};
  const Json answer = answer_to("fix", {{"run", "gpt2"}, {"settings", settings}, {"gpu", "3GiB"}});
  ASSERT_FALSE(answer["changes"].empty()) << answer.dump(1);
  Json fixed = settings;
  for (const Json& c : answer["changes"]) {
    fixed[c["setting"].get<std::string>()] = c["to"];
    EXPECT_TRUE(c["key"].get<std::string>().starts_with("--")) << c;
  }
  EXPECT_EQ(estimate("gpt2", "3GiB", fixed)["verdict"], "fits") << answer["flags"];
  EXPECT_NE(answer["flags"], "");
}

// One change where one is enough, although two would be faster; the global batch stays.
TEST_F(Fix, IsTheSmallestChange) {
  const std::string file = write("job.yaml", "model: gpt2\nbatch: 8\nseq: 256\nprecision: fp32\nconfig: {n_layer: 3}\n");
  const Json answer = answer_to("fix", {{"run", file}, {"gpu", "3GiB"}});
  EXPECT_EQ(answer["class"], "same result");
  EXPECT_EQ(answer["plan"]["global_batch"], 8);
  std::set<std::string> changes;
  for (const Json& c : answer["changes"]) changes.insert(c["change"].get<std::string>());
  EXPECT_EQ(changes.size(), 1u) << answer["changes"].dump(1);
  EXPECT_TRUE(answer["every_smaller_one"]);
}

TEST_F(Fix, SaysSoWhenItFitsAlready) {
  const std::string file = write("job.yaml", "model: gpt2\nbatch: 1\nseq: 64\nconfig: {n_layer: 2}\n");
  ExitCode code{};
  const Json answer = answer_to("fix", {{"run", file}, {"gpu", "rtx-4090"}, {"write", true}}, &code);
  EXPECT_EQ(code, ExitCode::ok);
  EXPECT_EQ(answer["diff"], "");
  EXPECT_EQ(answer["written"], "");
  EXPECT_FALSE(fs::exists(file + ".orig"));
  EXPECT_TRUE(text_of({{"run", file}, {"gpu", "rtx-4090"}}).starts_with("fits GeForce RTX 4090 as it is: needs "))
      << text_of({{"run", file}, {"gpu", "rtx-4090"}});
}

TEST_F(Fix, SaysWhatWouldWhereTheTrainerHasNoWord) {
  const std::string file = copy_of_example(folder_, "seeds/gsa-low-memory.yaml");
  ExitCode code{};
  const Json answer = answer_to("fix", {{"run", file}, {"gpu", "6GiB"}}, &code);
  EXPECT_EQ(code, ExitCode::no);
  EXPECT_TRUE(answer["after"].is_null());
  EXPECT_EQ(answer["diff"], "");
  EXPECT_FALSE(answer["would_fit"].empty()) << answer.dump(1);
  const std::string text = text_of({{"run", file}, {"gpu", "6GiB"}});
  EXPECT_TRUE(text.starts_with("does not fit 6GiB: no change that ")) << text;
}

TEST_F(Fix, FirstLineIsTheAnswer) {
  const std::string file = write("job.yaml", "model: gpt2\nbatch: 8\nseq: 256\nprecision: fp32\nconfig: {n_layer: 3}\n");
  const std::string text = text_of({{"run", file}, {"gpu", "3GiB"}});
  EXPECT_TRUE(text.starts_with("fits 3GiB after 1 change: needs 2.")) << text;
  EXPECT_NE(text.find(" of 3.00 GiB (was 3.44)"), std::string::npos) << text;
  EXPECT_LT(text.find("+batch") == std::string::npos ? text.find("\n+") : text.find("+batch"), text.find("same result")) << text;
}

// A copy that is there is a user's: it stays.
TEST_F(Fix, KeepsEveryCopy) {
  const std::string text = "model: gpt2\nbatch: 8\nseq: 256\nprecision: fp32\nconfig: {n_layer: 3}\n";
  const std::string file = write("job.yaml", text);
  write("job.yaml.orig", "mine");
  const Json answer = answer_to("fix", {{"run", file}, {"gpu", "3GiB"}, {"write", true}});
  EXPECT_EQ(answer["backup"], file + ".orig.1");
  EXPECT_EQ(content(file + ".orig"), "mine");
  EXPECT_EQ(content(file + ".orig.1"), text);
}

// The verdict is about all of it, or it is none.
TEST_F(Fix, KnowsNothingWhereAPartIsMissing) {
  const std::string file = write("model_index.json",
                                 R"({"_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.30",
      "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"]})");
  const Json before = estimate(file, "rtx-4090");
  EXPECT_EQ(before["verdict"], "unknown") << before.dump();
  EXPECT_TRUE(text_of({{"run", file}, {"gpu", "rtx-4090"}}).starts_with("unknown whether it fits "))
      << text_of({{"run", file}, {"gpu", "rtx-4090"}});
}

// ---- plans in the words of a trainer

TEST_F(Fix, PlansFlagsAndFilesAreOneAnswer) {
  const std::string file = write("sft.yaml",
                                 "model_name_or_path: $MODEL\ndataset_name: x/y\nper_device_train_batch_size: 16\nmax_length: 1024\n"
                                 "gradient_accumulation_steps: 2\ngradient_checkpointing: false\nbf16: true\n");
  const Json plan = answer_to("plan", {{"run", file}, {"gpu", "2GiB"}});
  const Json diff = answer_to("plan", {{"run", file}, {"gpu", "2GiB"}, {"diff", true}});
  EXPECT_EQ(plan["plan"]["changes"], diff["plan"]["changes"]);
  EXPECT_EQ(plan["plan"]["device_peak"], diff["as_written"]["device_peak"]);
  EXPECT_EQ(plan["plan"]["kind"], diff["class"]);
  EXPECT_EQ(plan["trainer"], "TRL");
  for (const Json& fix : plan["fixes"]) EXPECT_EQ(fix["name"].get<std::string>().find("chunks"), std::string::npos) << fix;
  const Json flags = answer_to("plan", {{"run", file}, {"gpu", "2GiB"}, {"flags", true}});
  std::vector<std::string> command{"trl", "sft", "--config", file};
  for (const std::string& word : shell_words(flags["flags"].get<std::string>())) command.push_back(word);
  EXPECT_EQ(estimate(command, "2GiB")["device_peak"], plan["plan"]["device_peak"]) << flags["flags"];
}

// What is generated is executed as it is read, with the command that it is for.
TEST_F(Fix, GeneratedFilesCarryThePlanOut) {
  for (const char* kind : {"accelerate", "deepspeed", "torchrun", "training_arguments"})
    for (const int gpus : {1, 4}) {
      const Json settings{{"batch", gpus == 1 ? 8 : 16}, {"seq", 512}, {"precision", "amp"}, {"config", {{"n_layer", 3}}}};
      Json request{{"run", "gpt2"}, {"settings", settings}, {"gpu", gpus == 1 ? "3GiB" : "6GiB"}, {"generate", kind}};
      if (gpus > 1) request["num_gpus"] = gpus;
      const std::string where = fmt::format("{} for {}", kind, gpus);
      Json answer;
      ASSERT_NO_THROW(answer = answer_to("plan", request)) << where;
      EXPECT_EQ(answer["as_written"]["verdict"], "fits") << where;
      EXPECT_EQ(answer["plan"]["verdict"], "fits") << where;
      const std::string both = answer["text"].get<std::string>() + answer["start"].get<std::string>();
      if (gpus > 1) {
        EXPECT_EQ(answer["plan"]["devices"], 4) << where << both;
        EXPECT_NE(both.find('4'), std::string::npos) << where << both;
      }
      EXPECT_FALSE(std::string(kind) == "deepspeed" && both.find("--fsdp") != std::string::npos) << both;  // transformers refuses the two
    }
}

TEST_F(Fix, GeneratedFilesStayShardedOverAllDevices) {
  const Json answer = answer_to("plan", {{"run", "llama-3.2-1b"},
                                         {"settings", {{"precision", "bf16"}, {"batch", 8}, {"seq", 512}}},
                                         {"gpu", "6GiB"},
                                         {"num_gpus", 8},
                                         {"generate", "accelerate"}});
  const std::string text = answer["text"].get<std::string>();
  EXPECT_NE(text.find("num_processes: 8"), std::string::npos) << text;
  EXPECT_EQ(text.find("distributed_type: 'NO'"), std::string::npos) << text;
  EXPECT_EQ(answer["as_written"]["verdict"], "fits") << text;
}

TEST_F(Fix, GeneratedArgumentsOfTrlHaveItsAutocast) {
  const std::vector<std::string> run{"trl",
                                     "sft",
                                     "--model_name_or_path",
                                     (folder_ / "model").string(),
                                     "--dataset_name",
                                     "x/y",
                                     "--dtype",
                                     "bfloat16",
                                     "--max_length",
                                     "1024",
                                     "--per_device_train_batch_size",
                                     "16"};
  const Json answer = answer_to("plan", {{"run", run}, {"gpu", "2GiB"}, {"generate", "training_arguments"}});
  const nlohmann::json file = nlohmann::json::parse(answer["text"].get<std::string>());
  EXPECT_EQ(file.value("bf16", true), true) << file.dump(1);  // TRL's default
  EXPECT_EQ(file.value("dtype", ""), "bfloat16") << file.dump(1);
  EXPECT_EQ(answer["as_written"]["verdict"], "fits") << file.dump(1);
}

}  // namespace
}  // namespace plimsoll::fix_test
