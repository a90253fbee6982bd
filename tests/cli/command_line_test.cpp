// The command line as people type it: without a command, with the words of other tools, misspelt; help that fits a screen; output that
// cannot be written.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "util/text.h"

namespace plimsoll::command_line_test {
namespace {

namespace fs = std::filesystem;

struct Result {
  int code = -1;
  std::string out, err;
};

class CommandLine : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              ("plimsoll_words_" + std::to_string(getpid()) + "_" + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // `to`: where stdout goes, as a shell writes it.
  Result run(const std::string& args, const std::string& to = "") {
    const std::string err_file = (folder_ / "stderr").string();
    FILE* pipe = popen((std::string(PLIMSOLL_BINARY) + " " + args + " 2>'" + err_file + "' </dev/null " + to).c_str(), "r");
    Result r;
    char chunk[4096];
    while (const size_t n = fread(chunk, 1, sizeof chunk, pipe)) r.out.append(chunk, n);
    const int status = pclose(pipe);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    std::ifstream in(err_file);
    r.err.assign(std::istreambuf_iterator<char>(in), {});
    return r;
  }

  int64_t peak(const std::string& args) {
    const Result r = run(args + " --json");
    EXPECT_TRUE(r.code == 0 || r.code == 3 || r.code == 4) << args << "\n" << r.err;
    return r.out.empty() ? 0 : nlohmann::json::parse(r.out)["peak_bytes"].get<int64_t>();
  }

  // What is refused is said on one line, the way on under it.
  void expect_refused(const std::string& args, int code, const std::string& message, const std::string& hint = "") {
    const Result r = run(args);
    EXPECT_EQ(r.code, code) << args << "\n" << r.out << r.err;
    EXPECT_EQ(r.out, "") << args;
    EXPECT_TRUE(r.err.starts_with("plimsoll: ")) << args << "\n" << r.err;
    const std::vector<std::string> lines = split_at(r.err, '\n');
    EXPECT_NE(lines[0].find(message), std::string::npos) << args << ": no '" << message << "' in: " << r.err;
    ASSERT_GT(lines.size(), 1u) << args << ": " << r.err;
    EXPECT_TRUE(lines[1].starts_with("  hint: ")) << args << ": " << r.err;
    EXPECT_NE(lines[1].find(hint), std::string::npos) << args << ": no '" << hint << "' in: " << r.err;
  }

  fs::path folder_;
};

constexpr const char* kSmall = "gpt2 --config n_layer=2 --seq 64 --batch 2";

TEST_F(CommandLine, TakesLoraWithAndWithoutAValue) {
  const std::string run_of = "estimate gpt2 --seq 64 ";
  EXPECT_EQ(peak(run_of + "--lora r=4"), peak(run_of + "--lora=r=4"));
  EXPECT_EQ(peak(run_of + "--lora-r 4 --lora-alpha 8"), peak(run_of + "--lora r=4"));
  EXPECT_EQ(peak("estimate --lora gpt2 --seq 64"), peak(run_of + "--lora r=16,target_modules=all-linear"));
  EXPECT_EQ(peak(run_of + "--lora {}"), peak(run_of + "--lora r=8"));
  EXPECT_EQ(peak(run_of + "--qlora"), peak(run_of + "--lora --quantization nf4"));
  EXPECT_EQ(peak(run_of + "--qlora --lora r=4"), peak(run_of + "--lora r=4 --quantization nf4"));
  EXPECT_EQ(peak(run_of + "--lora --like trl"), peak(run_of + "--like trl --lora r=16,lora_dropout=0.05"));
}

TEST_F(CommandLine, AModelOrAFileAloneIsEstimated) {
  EXPECT_EQ(run(std::string(kSmall)).out, run(std::string("estimate ") + kSmall).out);
  std::ofstream(folder_ / "job.yaml") << "model: gpt2\nseq: 64\nconfig: {n_layer: 2}\n";
  EXPECT_EQ(run((folder_ / "job.yaml").string()).code, 0);
  EXPECT_EQ(run("--seq 64 --model gpt2 --config n_layer=2").code, 0);
}

TEST_F(CommandLine, AMisspeltCommandIsNoModel) {
  expect_refused("estmate gpt2", 2, "unknown command estmate; did you mean estimate?");
  expect_refused("palns gpt2", 2, "unknown command palns; did you mean plan?");
  expect_refused("frobnicate", 2, "frobnicate is no command, no model and no file");
  expect_refused("help estmate", 2, "did you mean estimate?");
  expect_refused("gpt3-xl", 5, "gpt3-xl");
  expect_refused("--json estimate gpt2", 2, "--json stands before the command", "plimsoll estimate");
}

TEST_F(CommandLine, HelpAndVersionAreWordsToo) {
  EXPECT_EQ(run("help").out, run("--help").out);
  EXPECT_EQ(run("help estimate").out, run("estimate --help").out);
  EXPECT_EQ(run("estimate gpt2 --nonsense --help").out, run("estimate --help").out);
  EXPECT_EQ(run("-V").out, run("version").out);
}

TEST_F(CommandLine, TheShortHelpIsOneScreen) {
  for (const char* command :
       {"", "estimate", "plan", "explain", "compare", "report", "watch", "run", "list", "doctor", "replay", "score"}) {
    const Result r = run(std::string(command) + " -h");
    EXPECT_EQ(r.code, 0) << command;
    const std::vector<std::string> lines = split_at(r.out, '\n');
    EXPECT_LE(lines.size(), 42u) << command << "\n" << r.out;
    EXPECT_GT(lines.size(), 8u) << command;
  }
  const std::string text = run("estimate -h").out;
  for (const char* flag : {"--batch", "--seq", "--precision", "--lora", "--checkpointing", "--optimizer", "--gpu", "--json"})
    EXPECT_NE(text.find(flag), std::string::npos) << flag;
  EXPECT_EQ(text.find("--ema-dtype"), std::string::npos);
  EXPECT_LT(text.find("plimsoll estimate gpt2"), text.find("--batch N"));  // examples first
}

TEST_F(CommandLine, HelpIsWrappedAndSpeaksNoParsersWords) {
  std::vector<std::string> commands{"", "estimate", "plan", "explain", "compare", "report", "watch", "run", "list", "doctor"};
  for (const char* name : {"replay", "score", "schema", "man", "completion", "ai-toolkit", "measure", "version"})
    commands.emplace_back(name);
  for (const std::string& command : commands)
    for (const char* length : {" -h", " --help"}) {
      const Result r = run(command + length);
      EXPECT_EQ(r.code, 0) << command << "\n" << r.err;
      for (const std::string& line : split_at(r.out, '\n')) EXPECT_LE(line.size(), 80u) << command << length << ": " << line;
      for (const char* word : {"INT in", "{auto", "POSITIVE", "NONNEGATIVE", ":{", "REQUIRED", "[OPTIONS]", "{KEY"})
        EXPECT_EQ(r.out.find(word), std::string::npos) << command << length << ": " << word;
    }
  const std::string all = run("estimate --help").out;
  for (const char* group : {"Common:", "Devices:", "Precision:", "Memory savers:", "Optimizer:", "Several GPUs:", "JAX:", "Output:"})
    EXPECT_NE(all.find(std::string("\n") + group), std::string::npos) << group;
  for (const char* question : {"Will it fit?", "What to change?", "What happened?", "Keep it alive", "Reference"})
    EXPECT_NE(run("--help").out.find(question), std::string::npos) << question;
}

TEST_F(CommandLine, FlagsOfOtherToolsAreUnderstood) {
  const int64_t wanted = peak("estimate gpt2 --config n_layer=2 --batch 2 --seq 64");
  for (const char* batch : {"--batch_size 2", "--batch-size 2", "--batchsize=2", "-b 2", "-b2", "--per_device_train_batch_size 2"})
    EXPECT_EQ(peak(std::string("estimate gpt2 --config n_layer=2 --seq 64 ") + batch), wanted) << batch;
  for (const char* seq : {"--seq-len 64", "--seq_len=64", "--seqlen 64", "--max_length 64", "--max-seq-length 64", "-s 64"})
    EXPECT_EQ(peak(std::string("estimate gpt2 --config n_layer=2 --batch 2 ") + seq), wanted) << seq;
  const std::string small = std::string("estimate ") + kSmall;
  const int64_t saved = peak(small + " --checkpointing");
  for (const char* flag : {"--gradient-checkpointing", "--grad-checkpointing", "--gradient_checkpointing True"})
    EXPECT_EQ(peak(small + " " + flag), saved) << flag;
  EXPECT_EQ(peak(small + " --gradient_checkpointing False"), wanted);
  EXPECT_EQ(peak(small + " --gradient-accumulation-steps 4"), peak(small + " --accumulation 4"));
  EXPECT_EQ(peak(small + " --optimizer_args fused=true"), peak(small + " --optimizer-args fused=true"));
  EXPECT_EQ(peak(small + " --lora-r 4 --lora_alpha 8"), peak(small + " --lora r=4,lora_alpha=8"));
  EXPECT_EQ(run(small + " --device 4090").out, run(small + " --gpu 4090").out);
}

TEST_F(CommandLine, PrecisionsOfOtherToolsAreUnderstoodAndSaid) {
  const std::string small = std::string("estimate ") + kSmall;
  for (const auto& [typed, precision] : std::vector<std::pair<const char*, const char*>>{{"--bf16", "amp"},
                                                                                         {"--bf16 True", "amp"},
                                                                                         {"--fp16", "amp-fp16"},
                                                                                         {"--fp32", "fp32"},
                                                                                         {"--mixed_precision no", "fp32"},
                                                                                         {"--precision bfloat16", "bf16"},
                                                                                         {"--precision float16", "fp16"},
                                                                                         {"--precision float32", "fp32"},
                                                                                         {"--precision mixed", "amp"},
                                                                                         {"--torch_dtype bfloat16", "bf16"}})
    EXPECT_EQ(peak(small + " " + typed), peak(small + " --precision " + precision)) << typed;
  EXPECT_NE(run(small + " --bf16").err.find("note: --bf16 is read as transformers means it"), std::string::npos);
  EXPECT_EQ(run(small + " --fp32").err, "");
  expect_refused(small + " --precision fp8", 5, "fp8 is not supported", "known: fp32, amp, amp-fp16, bf16, fp16");
  expect_refused(small + " --framework mlx", 5, "mlx is not simulated", "PyTorch");
}

TEST_F(CommandLine, UnknownFlagsHaveASuggestion) {
  expect_refused("estimate gpt2 --btach 4", 2, "unknown flag --btach; did you mean --batch?");
  expect_refused("estimate gpt2 --gradient-checkpoint", 2, "unknown flag --gradient-checkpoint; did you mean --checkpointing?");
  expect_refused("estimate gpt2 --zzzzzz", 2, "unknown flag --zzzzzz", "plimsoll estimate -h");
  expect_refused("estimate gpt2 --matrix batch=1", 2, "unknown flag --matrix; plimsoll plan has one");
  expect_refused("estimate gpt2 -batch 4", 2, "unknown flag -batch; did you mean --batch?");
  expect_refused("estimate gpt2 --lr 1e-4", 2, "--lr is no flag of estimate", "leave it out");
  expect_refused("estimate gpt2 --num-gpus 8", 2, "--num-gpus is no flag of estimate", "--fsdp world=8");
  expect_refused("estimate python train.py --lr_x 1", 2, "unknown flag --lr_x", "behind --: plimsoll estimate -- python train.py");
  EXPECT_EQ(run("explain -- python train.py --zzzzzz 1").err.find("unknown flag"), std::string::npos);  // a command's own
}

TEST_F(CommandLine, ValuesThatAreMissingOrMisplacedAreNamed) {
  expect_refused("estimate gpt2 --checkpointing false", 2, "'false' behind it would be a run", "write --checkpointing=false");
  expect_refused("estimate gpt2 --checkpointing every=2", 2, "every=2", "write --checkpointing=every=2");
  expect_refused("estimate gpt2 --fsdp --gpu rtx-4090", 2, "--fsdp needs a value: --fsdp KEY=VALUE,...");
  expect_refused("estimate gpt2 --batch", 2, "--batch needs a value: --batch N");
  expect_refused("estimate gpt2 --batch 1 --batch 2", 2, "--batch is given more than once");
  expect_refused("estimate gpt2 --color blue", 2, "--color 'blue' is not known", "always");
  expect_refused("estimate gpt2 --depth 50", 2, "--depth 50 is not between 0 and 20");
  expect_refused("estimate gpt2 --top many", 2, "--top 'many' is not between 0 and 1000");
  expect_refused("estimate gpt2 --gpus 2", 2, "--gpus '2' is not known", "--num-gpus");
  expect_refused("list", 2, "list needs WHAT", "presets");
  expect_refused("version now then", 2, "'now then' is too much for version");
}

TEST_F(CommandLine, EverydayWordsOfTypesAreUnderstood) {
  const std::string small = std::string("estimate ") + kSmall + " --lora r=4 --quantization ";
  EXPECT_EQ(peak(small + "4bit"), peak(small + "nf4"));
  EXPECT_EQ(peak(small + "4"), peak(small + "nf4"));
  EXPECT_EQ(peak(small + "8bit"), peak(small + "int8"));
  expect_refused(small + "3bit", 5, "'3bit' is not known");
  expect_refused("estimate gpt2 --precision nf4", 5, "is the type of a quantised base", "--quantization nf4");
}

TEST_F(CommandLine, AProgramWithTheNameOfAModelIsAProgram) {
  const Result r = run("estimate --seq 64 -- litgpt finetune_lora meta-llama/Llama-3.2-1B --precision bf16-true");
  EXPECT_TRUE(r.code == 0) << r.err;
}

TEST_F(CommandLine, ColumnsIsReadWhereThereIsNoTerminal) {
  const auto widest = [&](const char* columns) {
    setenv("COLUMNS", columns, 1);
    const Result r = run("list models");
    unsetenv("COLUMNS");
    size_t out = 0;
    for (const std::string& line : split_at(r.out, '\n')) out = std::max(out, line.size());
    return out;
  };
  EXPECT_LE(widest("80"), 80u);
  EXPECT_GT(widest("120"), 80u);
  EXPECT_EQ(widest("many"), widest("120"));
}

TEST_F(CommandLine, WordsBehindARunAreNamed) {
  expect_refused("estimate gpt2-xl --batch 4 --gpu rtx-4090 will it fit?", 2, "'will it fit?' after gpt2-xl", "leave the extra words out");
  expect_refused("estimate gpt2 bert-base", 2, "'bert-base' after gpt2", "plimsoll compare gpt2 bert-base");
}

TEST_F(CommandLine, KeysInOneFlagAreSeparatedByCommas) {
  EXPECT_EQ(peak("estimate gpt2 --seq 64 --config n_layer=2,n_embd=96"),
            peak("estimate gpt2 --seq 64 --config n_layer=2 --config n_embd=96"));
  const std::string small = std::string("estimate ") + kSmall;
  EXPECT_EQ(peak(small + " --lora rank=4"), peak(small + " --lora r=4"));
  expect_refused(small + " --lora zzzzzzzz=16", 5, "'zzzzzzzz' is not known", ", r,");
}

TEST_F(CommandLine, DevicesAreCountedAndSized) {
  const std::string small = std::string("estimate ") + kSmall;
  const auto device = [&](const std::string& words) {
    const Result r = run(small + " --json --gpu " + words);
    EXPECT_TRUE(r.code == 0 || r.code == 3 || r.code == 4) << words << "\n" << r.err;
    return r.out.empty() ? nlohmann::json() : nlohmann::json::parse(r.out)["fits"][0];
  };
  EXPECT_EQ(device("2x4090"), device("4090"));
  EXPECT_NE(run(small + " --gpu 8xh100-sxm").err.find("note: 8 devices"), std::string::npos);
  EXPECT_EQ(run(small + " --gpu 8xh100-sxm --fsdp world=8").err, "");
  EXPECT_EQ(device("24"), device("24GB"));
  const double exact = device("24GiB")["capacity"]["bytes"], card = device("24GB")["capacity"]["bytes"];
  EXPECT_EQ(exact, 24.0 * (1 << 30));
  EXPECT_NEAR(card / (1 << 30), 23.5, 0.1);
  EXPECT_EQ(device("colab"), device("t4"));
  EXPECT_NE(run(small + " --gpu colab").err.find("T4"), std::string::npos);
  EXPECT_NEAR(device("m3-max-64gb")["capacity"]["bytes"].get<double>() / (1 << 30), 48, 0.01);
  expect_refused(small + " --gpu h100", 5, "'h100' could be 3 devices", "h100-80gb (80 GB: h100-pcie, h100-sxm), h100-nvl (94 GB)");
  expect_refused(small + " --gpu a100", 5, "'a100' could be", "a100-80gb");
  expect_refused(small + " --gpu m3-max", 5, "'m3-max' could be 5 devices", "m3-max-64gb (64 GB)");
  EXPECT_EQ(device("3060-12gb"), device("rtx-3060-12gb"));
  EXPECT_LT(run(small + " --gpu rtx").err.size(), 500u);
  expect_refused(small + " --gpu rtx", 5, "'rtx' is not in the catalogue", "more (plimsoll list gpus)");
  expect_refused(small + " --gpu cuda:0", 5, "cuda:0", "--gpu this");
  expect_refused(small + " --gpu 2x4090,3090", 2, "'2x4090' counts devices");
  expect_refused("plan gpt2 --seq 64 --gpu 2x4090 --num-gpus 4", 2, "2 devices, and --num-gpus 4");
}

TEST_F(CommandLine, AnswersThatCannotBeWrittenAreFailures) {
  for (const char* command : {"--help", "estimate -h", "list models", "list gpus --json", "version"}) {
    const Result full = run(command, ">/dev/full");
    EXPECT_EQ(full.code, 1) << command;
    EXPECT_NE(full.err.find("plimsoll: the answer could not be written"), std::string::npos) << command << full.err;
    EXPECT_EQ(run(command, ">&-").code, 1) << command;
  }
  const Result closed = run("list gpus", "| head -1");
  EXPECT_EQ(closed.code, 0);
  EXPECT_EQ(closed.err, "");
}

TEST_F(CommandLine, HelpOfMeasureNeedsNoLibtorch) {
  const Result r = run("measure --help");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("plimsoll measure"), std::string::npos);
}

TEST_F(CommandLine, PresetsAreListedInLinesThatFit) {
  for (const std::string& line : split_at(run("list presets").out, '\n')) EXPECT_LE(line.size(), 125u) << line;
}

TEST_F(CommandLine, DoctorConcludesBeforeItShowsWhatItSaw) {
  fs::create_directories(folder_ / "proc");
  std::ofstream(folder_ / "proc/meminfo") << "MemTotal: 1024 kB\n";
  const Result r = run("doctor --root " + folder_.string() + " --rocm-smi /nonexistent.so --nvml /nonexistent.so");
  EXPECT_TRUE(r.out.starts_with("Concluded\n  GPU             none was found\n")) << r.out;
  EXPECT_LT(r.out.find("In the way"), r.out.find("Seen"));
}

TEST_F(CommandLine, CompletionsAndManualPagesKnowTheFlags) {
  const std::string bash = run("completion bash").out;
  for (const char* word : {"--batch", "-b", "--color", "'auto always never'"}) EXPECT_NE(bash.find(word), std::string::npos) << word;
  const std::string page = run("man estimate").out;
  EXPECT_NE(page.find("auto|always|never"), std::string::npos);
  EXPECT_EQ(page.find("INT in"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::command_line_test
