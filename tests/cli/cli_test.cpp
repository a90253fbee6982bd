// The binary as a user meets it: answers on stdout, errors on stderr that name the value and a way out, documented exit codes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace {

namespace fs = std::filesystem;

struct Result {
  int code;
  std::string out, err;
};

class Cli : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              ("plimsoll_cli_" + std::to_string(getpid()) + "_" + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  Result run(const std::string& args, const std::string& input = "/dev/null") {
    const std::string err_file = (folder_ / "stderr").string();
    const std::string command = std::string(PLIMSOLL_BINARY) + " " + args + " 2>'" + err_file + "' <'" + input + "'";
    FILE* pipe = popen(command.c_str(), "r");
    Result r;
    std::array<char, 4096> buffer;
    while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) r.out.append(buffer.data(), n);
    const int status = pclose(pipe);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    std::ifstream in(err_file);
    r.err.assign(std::istreambuf_iterator<char>(in), {});
    return r;
  }

  // Fails with `code`, says every one of `words` on stderr, and nothing on stdout.
  void expect_error(const std::string& args, int code, std::initializer_list<const char*> words) {
    const Result r = run(args);
    EXPECT_EQ(r.code, code) << args << "\n" << r.out << r.err;
    EXPECT_EQ(r.out, "") << args;
    for (const char* word : words) EXPECT_NE(r.err.find(word), std::string::npos) << args << ": no '" << word << "' in: " << r.err;
  }

  fs::path folder_;
};

TEST_F(Cli, AloneDoesTheMainJobAndTellsWhatToTryNext) {
  const Result r = run("");
  EXPECT_EQ(r.code, 0);
  EXPECT_NE(r.out.find("max_memory_allocated"), std::string::npos);
  EXPECT_NE(r.out.find("Try next"), std::string::npos);
  EXPECT_EQ(r.err, "");
}

// A verb without a file of flags has those of its request's keys.
TEST_F(Cli, EveryVerbIsACommand) {
  EXPECT_EQ(run("version").out, run("--version").out);
  EXPECT_EQ(nlohmann::json::parse(run("version --json").out)["command"], "version");
  expect_error("version now", 2, {"now"});
}

TEST_F(Cli, EstimateSpeaksJson) {
  const Result r = run("estimate gpt2 --batch 2 --seq 128 --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const auto j = nlohmann::json::parse(r.out);
  EXPECT_EQ(j["schema"], 3);
  EXPECT_EQ(j["parameters"], 124439808);
  EXPECT_EQ(j["by_category"]["bytes"], j["peak_bytes"]);
  EXPECT_EQ(j["job"]["origin"]["batch"], "--batch");
}

// Every setting that `list settings` names is a flag, and what its help shows is understood.
TEST_F(Cli, FlagsOfEverySettingAreUnderstood) {
  EXPECT_EQ(run("estimate --model gpt2 --seq 64 --ia3 '{}'").code, 0);
  const Result named = run("estimate --model gpt2 --seq 64 --json"), plain = run("estimate gpt2 --seq 64 --json");
  ASSERT_EQ(named.code, 0) << named.err;
  EXPECT_EQ(nlohmann::json::parse(named.out)["peak_bytes"], nlohmann::json::parse(plain.out)["peak_bytes"]);
  expect_error("estimate gpt2 --alloc-conf max_split_size_mb:lots", 5, {"max_split_size_mb", "'lots' is not a whole number", "512"});
  expect_error("plan gpt2 --gpu rtx-4090 --allow precision", 2, {"'precision' needs no --allow", "seq and model"});
}

TEST_F(Cli, JobFileAndFlagsGiveTheSameAnswerAndFlagsWin) {
  const std::string job = file(
      "job.yaml", "model: gpt2\nbatch: 4\nseq: 128\nprecision: bf16\noptimizer: {name: AdamW, args: {fused: true}}\ncheckpointing: yes\n");
  const auto by_file = nlohmann::json::parse(run("estimate --json --job " + job).out);
  const auto by_flags = nlohmann::json::parse(
      run("estimate gpt2 --batch 4 --seq 128 --precision bf16 --optimizer-args fused=true --checkpointing --json").out);
  EXPECT_EQ(by_file["peak_bytes"], by_flags["peak_bytes"]);
  const auto larger = nlohmann::json::parse(run("estimate --json --batch 8 --job " + job).out);
  EXPECT_GT(larger["peak_bytes"], by_file["peak_bytes"]);
}

// A job file states what was assumed for a model that was named alone.
std::string without_assumptions(const std::string& text) {
  nlohmann::ordered_json answer = nlohmann::ordered_json::parse(text), kept = nlohmann::ordered_json::array();
  for (const auto& finding : answer["findings"])
    if (finding["effect"] != "assumed") kept.push_back(finding);
  answer["findings"] = kept;
  return answer.dump(2);
}

// The `job` of an answer is a job file whose answer is the same to the byte.
TEST_F(Cli, TheJobOfAnAnswerGivesThatAnswerAgain) {
  for (const char* words :
       {"gpt2 --batch 2 --seq 128", "gpt2 --batch 2 --seq 128 --config n_layer=2 --clip 1 --workers 4 --eval-batch 4 --gpu rtx-4090",
        "gpt2 --lengths 100+70 --config n_layer=2 --ema-place host",
        "resnet18 --batch 4 --optimizer SGD --optimizer-args momentum=0.9 --dataset-size 100 --cache ram --host",
        "llama --config num_hidden_layers=2 --seq 64 --lora r=8 --quantization nf4 --checkpointing=save=torchtitan",
        "llama --config num_hidden_layers=2 --seq 64 --zero world=4,stage=3 --precision bf16 --torch 2.4",
        "gpt2 --config n_layer=2 --seq 64 --framework jax --replicas 4 --global-batch 8 --donate true"}) {
    const std::string flags = words;
    const Result first = run("estimate " + flags + " --json");
    ASSERT_TRUE(first.code == 0 || first.code == 3 || first.code == 4) << words << "\n" << first.err;
    const std::string job = file("job.json", nlohmann::ordered_json::parse(first.out)["job"].dump(2));
    std::string questions;  // what is asked of the job is not part of it
    for (const char* asked : {" --gpu rtx-4090", " --host"})
      if (flags.find(asked) != std::string::npos) questions += asked;
    for (const std::string& input : {"--job " + job, job}) {
      const Result again = run("estimate " + input + questions + " --json");
      EXPECT_EQ(again.err, first.err) << words;
      EXPECT_EQ(without_assumptions(again.out), without_assumptions(first.out)) << words;
    }
  }
}

TEST_F(Cli, ReadsAHuggingFaceConfigAndItsDirectory) {
  const std::string config =
      file("config.json", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000})");
  const Result by_file = run("estimate " + config + " --seq 64 --json"),
               by_folder = run("estimate " + folder_.string() + " --seq 64 --json");
  ASSERT_EQ(by_file.code, 0) << by_file.err;
  ASSERT_EQ(by_folder.code, 0) << by_folder.err;
  EXPECT_EQ(nlohmann::json::parse(by_file.out)["peak_bytes"], nlohmann::json::parse(by_folder.out)["peak_bytes"]);
}

TEST_F(Cli, UnknownModelSuggestsANearOne) { expect_error("estimate llama-3.1-8bb", 5, {"llama-3.1-8bb", "did you mean 'llama-3.1-8b'"}); }

TEST_F(Cli, HeadsThatDoNotDivideAreNamed) {
  expect_error("estimate llama --config num_attention_heads=30", 5, {"num_attention_heads 30", "hidden_size 4096"});
  expect_error("estimate gpt2 --config n_head=7", 5, {"n_head 7", "n_embd 768"});
}

TEST_F(Cli, AbsurdSizesAreErrorsNotCrashes) {
  expect_error("estimate gpt2 --batch -1", 5, {"batch", "-1"});
  expect_error("estimate gpt2 --batch 0", 5, {"batch", "0"});
  expect_error("estimate gpt2 --batch 9223372036854775807", 5, {"batch", "9223372036854775807", "2147483648"});
  expect_error("estimate llama --batch 2147483647 --seq 2147483647", 5, {"63 bits"});
  expect_error("estimate llama --config hidden_size=4611686018427387904 --config num_attention_heads=1", 5, {"hidden_size", "at most"});
  expect_error("estimate gpt2 --config n_embd=12.5", 5, {"n_embd", "12.5", "whole number"});
  expect_error("estimate gpt2 --config vocab_size=many", 5, {"vocab_size", "many"});
  expect_error("estimate gpt2 --config n_layer=1000000000", 5, {"million modules"});
  EXPECT_EQ(run("estimate gpt2 --seq 64 --accumulation 1000000000").code, 0);
}

TEST_F(Cli, UnknownNamesOfSettingsAreNamed) {
  expect_error("estimate gpt2 --precision fp8", 5, {"fp8"});
  expect_error("estimate gpt2 --optimizer AdamX", 5, {"AdamX", "did you mean"});
  expect_error("estimate gpt2 --attention flsh", 5, {"flsh", "did you mean 'flash'"});
  expect_error("estimate gpt2 --clip 0", 5, {"clip"});
  expect_error("estimate gpt2 --inputs image", 5, {"gpt2 takes inputs of kind lm", "image"});
  expect_error("estimate resnet50 --inputs lm", 5, {"resnet50 takes inputs of kind image"});
  expect_error("estimate gpt2 --config n_embd", 2, {"KEY=VALUE"});
  expect_error("estimate gpt2 --btach 3", 2, {"--btach"});
  expect_error("frobnicate", 2, {"frobnicate"});
  expect_error("list modles", 2, {"modles", "did you mean 'models'"});
}

TEST_F(Cli, ConfigOfAnUnknownTypeIsNamed) {
  expect_error("estimate " + file("a.json", R"({"model_type": "flubber"})"), 5, {"flubber", "is not known"});
  expect_error("estimate " + file("b.json", R"({"hidden_size": 1})"), 5,
               {"b.json", "no trainer that is known writes these keys", "config.json"});
  expect_error("estimate " + file("c.json", R"([1, 2])"), 5, {"c.json", "is no configuration"});
}

TEST_F(Cli, MalformedFilesNameTheLine) {
  expect_error("estimate " + file("bad.json", "{\n  \"model_type\": \"gpt2\",\n  oops\n}"), 5, {"bad.json:3"});
  expect_error("estimate --job " + file("bad.yaml", "model: gpt2\nbatch: [1, 2\n"), 5, {"bad.yaml:"});
  expect_error("estimate --job " + file("twice.yaml", "model: gpt2\nbatch: 1\nbatch: 2\n"), 5, {"twice.yaml:3", "repeats 'batch'"});
  expect_error("estimate --job " + file("key.yaml", "model: gpt2\nbatchsize: 1\n"), 5, {"batchsize", "did you mean 'batch'"});
  expect_error("estimate --job " + file("type.yaml", "model: gpt2\nbatch: lots\n"), 5, {"type.yaml", "batch", "lots"});
  expect_error("estimate --job " + (folder_ / "absent.yaml").string(), 5, {"absent.yaml", "cannot open"});
  expect_error("estimate --job " + folder_.string(), 5, {"is a directory"});
  expect_error("score " + file("rows.jsonl", "{\"id\": 1}\n"), 5, {"rows.jsonl:1"});
  expect_error("estimate gpt2 --seq 16 --save-trace " + (folder_ / "no" / "x").string(), 5, {"cannot write"});
  file("a.json", "[[\"a\"");
  const Result walk =
      run("score --walk " + folder_.string() + " " +
          file("a.jsonl", R"({"id":"a","spec":{"model":{"class":"GPT2LMHeadModel","args":{"n_layer":1}},"seq":8},"peak":1})"));
  EXPECT_EQ(walk.code, 5) << walk.err;
  EXPECT_NE(walk.err.find("a.json does not hold recorded events"), std::string::npos) << walk.err;
}

TEST_F(Cli, HelpTeaches) {
  for (const char* args : {"--help", "estimate --help", "score --help", "replay --help", "list --help", "doctor --help"}) {
    const Result r = run(args);
    EXPECT_EQ(r.code, 0);
    EXPECT_GT(r.out.size(), 200u) << args;
  }
  EXPECT_NE(run("estimate --help").out.find("Examples:"), std::string::npos);
}

TEST_F(Cli, ReplaysATraceUnderOtherSettings) {
  const std::string trace =
      file("a.trace", "{\"plimsoll_trace\":1}\n{\"step\":true}\n{\"alloc\":0,\"bytes\":3145728}\n{\"alloc\":1,\"bytes\":52428800}\n");
  const auto plain = nlohmann::json::parse(run("replay --json " + trace).out);
  EXPECT_EQ(plain["reserved_peak_bytes"], 73400320);
  EXPECT_EQ(plain["allocated_peak_bytes"], 55574528);
  EXPECT_EQ(plain["out_of_memory"], nullptr);
  const auto expandable = nlohmann::json::parse(run("replay --json --alloc-conf expandable_segments:True " + trace).out);
  EXPECT_EQ(expandable["reserved_peak_bytes"], 62914560);
  const Result small = run("replay --device-memory 60MiB " + trace);
  EXPECT_EQ(small.code, 3);
  EXPECT_NE(small.out.find("CUDA out of memory. Tried to allocate 50.00 MiB."), std::string::npos) << small.out;
  expect_error("replay --device-memory 0 " + trace, 5, {"--device-memory", "'0'"});
  expect_error("replay --device-memory -1GiB " + trace, 5, {"-1GiB"});
  expect_error("replay --alloc-conf max_split_size_mb:1 " + trace, 5,
               {"CachingAllocator option max_split_size_mb too small, must be >= 20"});
  expect_error("replay --in-use 3GiB --device-memory 2GiB " + trace, 5, {"in use by others"});
  expect_error("replay --alloc-conf expandable_segments:True", 2, {"need a trace file"});
  expect_error("replay " + file("b.trace", "{}\n"), 5, {"b.trace:1"});
}

TEST_F(Cli, ReplaysAMemorySnapshotSideBySide) {
  const std::string data = PLIMSOLL_SOURCE_DIR "/tests/data/";
  const auto j = nlohmann::json::parse(run("replay --json --alloc-conf expandable_segments:True " + data + "protocol4.pickle").out);
  EXPECT_EQ(j["recording"]["from_the_beginning"], true);
  ASSERT_EQ(j["replays"].size(), 2u);
  EXPECT_EQ(j["replays"][0]["check"]["equal"], true);
  EXPECT_EQ(j["replays"][0]["reserved_peak_bytes"], 23068672);
  EXPECT_EQ(j["replays"][0]["at_reserved_peak"]["place"], "forward (model.py:57)");
  EXPECT_EQ(j["replays"][1]["alloc_conf"], "expandable_segments:True");
  const Result text = run("replay " + data + "two_devices.pickle --alloc-conf expandable_segments:True");
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"device 1", "starts mid-run", "recorded", "afresh", "asked", "reserved peak", "expandable_segments:True: "})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  EXPECT_NE(run("replay " + data + "segments_only.pickle").out.find("only the final state is known"), std::string::npos);
  const Result oom = run("replay " + data + "oom.pickle");
  EXPECT_EQ(oom.code, 3);
  EXPECT_NE(oom.out.find("out of memory as recorded (recorded): entry 3, forward (model.py:57), asked for 30.00 MiB"), std::string::npos)
      << oom.out;
  EXPECT_EQ(run("replay --device-memory 64MiB " + data + "oom.pickle").code, 0);
  const Result small = run("replay --device-memory 10MiB " + data + "protocol4.pickle");
  EXPECT_EQ(small.code, 3);
  EXPECT_NE(small.out.find("does not fit (recorded): entry 3, forward (model.py:57), asked for 2.86 MiB"), std::string::npos) << small.out;
}

TEST_F(Cli, SnapshotsThatAreNoneAreErrors) {
  const std::string data = PLIMSOLL_SOURCE_DIR "/tests/data/";
  expect_error("replay " + data + "evil.pickle", 5, {"STACK_GLOBAL", "no code of the file is run"});
  expect_error("replay " + file("list.pickle", std::string("\x80\x04K\x01.", 5)), 5, {"holds a whole number without 'segments'"});
  expect_error("replay " + file("cut.pickle", std::string("\x80\x04}(\x8c", 5)), 5, {"cut.pickle, byte 4", "are left"});
  expect_error("replay " + file("a.gz", "\x1f\x8b"), 5, {"gzip"});
  expect_error("replay " + file("a.pt", "PK\x03\x04"), 5, {"torch.save"});
  expect_error("replay " + (folder_ / "absent.pickle").string(), 5, {"cannot open"});
  expect_error("replay " + folder_.string(), 5, {"is a directory"});
  expect_error("replay --device 3 " + data + "two_devices.pickle", 5, {"nothing of device 3", "it has: 1"});
  expect_error("replay --device -1 " + data + "two_devices.pickle", 2, {"--device"});
}

TEST_F(Cli, ReplaysUnderOtherAllocators) {
  const std::string trace =
      file("a.trace", "{\"plimsoll_trace\":1}\n{\"alloc\":0,\"bytes\":3145728}\n{\"alloc\":1,\"bytes\":52428801}\n{\"free\":0}\n");
  const auto figures = [&](const std::string& flags) { return nlohmann::json::parse(run("replay --json " + flags + " " + trace).out); };
  EXPECT_EQ(figures("--allocator ideal")["tensors_peak_bytes"], 55574529);
  EXPECT_EQ(figures("--allocator ideal")["tensors_end_bytes"], 52428801);
  EXPECT_EQ(figures("--allocator bfc")["pool_peak_bytes"], 4194304 + 67108864);
  EXPECT_EQ(figures("--allocator bfc --device-memory 100MiB")["pool_peak_bytes"], 78643200);
  EXPECT_EQ(figures("--allocator pinned")["reserved_peak_bytes"], 4194304 + 67108864);
  EXPECT_EQ(figures("--allocator pinned --alloc-conf pinned_max_round_threshold_mb:1")["reserved_peak_bytes"], 55574529);
  EXPECT_EQ(figures("--allocator cuda")["reserved_peak_bytes"], 75497472);
  EXPECT_EQ(run("replay --allocator bfc --device-memory 60MiB " + trace).code, 3);
  EXPECT_EQ(run(std::string("replay --allocator ideal ") + PLIMSOLL_SOURCE_DIR "/tests/data/protocol4.pickle").code, 0);
  expect_error("replay --allocator bcf " + trace, 2, {"'bcf'", "did you mean 'bfc'"});
  expect_error("replay --allocator bfc --alloc-conf backend:native " + trace, 2, {"PYTORCH_CUDA_ALLOC_CONF"});
  expect_error("replay --allocator pinned --device-memory 1GiB " + trace, 2, {"on the host"});
  expect_error("replay --device 0 " + trace, 2, {"--device is for memory snapshots"});
}

TEST_F(Cli, SpeaksTheLineProtocolWithoutAFile) {
  const Result r = run("replay", file("a.case", "# capacity: 1048576000\nalloc a 1000\nsummary\n"));
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out, "ok\t1024\t2097152\t1024\t1000\t2096128\t1\t1:0\t+2097152\nsummary\t1024\t2097152\t0\t0\n");
}

TEST_F(Cli, ListsSpeakTextAndJson) {
  for (const char* what : {"models", "presets", "optimizers", "settings", "gpus"}) {
    EXPECT_GT(run(std::string("list ") + what).out.size(), 50u);
    const auto j = nlohmann::json::parse(run(std::string("list --json ") + what).out);
    EXPECT_GT(j[what].size(), 1u);
  }
}

TEST_F(Cli, DoctorSaysWhatItSawAndWhatBlocks) {
  fs::create_directories(folder_ / "proc");
  file("proc/meminfo", "MemTotal: 1024 kB\n");
  const std::string flags = "doctor --root " + folder_.string() + " --rocm-smi /nonexistent.so --nvml ";
  const Result none = run(flags + "/nonexistent.so");
  EXPECT_EQ(none.code, 6) << none.err;
  for (const char* part : {"Seen", "Concluded", "In the way", "no GPU was found", "/nonexistent.so"})
    EXPECT_NE(none.out.find(part), std::string::npos) << part;
  const std::string answers = file("nvml", "count 1\n0.name NVIDIA GeForce RTX 4090\n0.total 25757220864\n0.reserved 373293056\n");
  setenv("PLIMSOLL_STUB_NVML", answers.c_str(), 1);
  const Result one = run(flags + PLIMSOLL_STUB_NVML_LIBRARY " --json");
  unsetenv("PLIMSOLL_STUB_NVML");
  ASSERT_EQ(one.code, 0) << one.err;
  const auto j = nlohmann::json::parse(one.out);
  EXPECT_EQ(j["schema"], 1);
  EXPECT_EQ(j["host"]["total_bytes"], 1048576);
  EXPECT_EQ(j["devices"][0]["usable_bytes"], 25757220864 - 373293056);
  EXPECT_EQ(j["devices"][0]["catalogue_id"], "rtx-4090");
  expect_error("doctor --root /nonexistent", 2, {"/nonexistent"});
}

TEST_F(Cli, EveryPresetCanBeEstimated) {
  const auto presets = nlohmann::json::parse(run("list presets --json").out);
  for (const auto& p : presets["presets"]) {
    const std::string name = p["name"];
    const bool loops = name.starts_with("mamba-trainer");  // over the tokens, in Python: seconds for 2048 of them
    const Result r = run("estimate " + name + (loops ? " --seq 64 --json" : " --json"));
    EXPECT_EQ(r.code, 0) << name << ": " << r.err;
  }
}

TEST_F(Cli, EstimateSaysWhetherARunFitsAndTheExitCodeToo) {
  const Result fits = run("estimate gpt2 --batch 1 --seq 64 --gpu a100-80gb --json");
  EXPECT_EQ(fits.code, 0) << fits.err;
  const auto j = nlohmann::json::parse(fits.out);
  EXPECT_EQ(j["fits"][0]["verdict"], "fits");
  EXPECT_GT(j["fits"][0]["margin_bytes"].get<int64_t>(), 0);
  EXPECT_GE(j["memory"]["device"]["high_bytes"], j["memory"]["device"]["bytes"]);
  const Result no = run("estimate -v gpt2-xl --batch 8 --gpu rtx-3060");
  EXPECT_EQ(no.code, 3);
  EXPECT_NE(no.out.find("does not fit"), std::string::npos);
  EXPECT_NE(no.out.find("CUDA out of memory. Tried to allocate"), std::string::npos);
  EXPECT_EQ(run("estimate gpt2-xl --batch 8 --gpu rtx-3060,h200").code, 0);  // one of them does
  EXPECT_EQ(run("estimate gpt2 --batch 1 --seq 64 --gpus all").code, 0);
  EXPECT_EQ(run("estimate gpt2 --batch 1 --seq 64 --gpu 24GiB").code, 0);
}

TEST_F(Cli, DevicesThatCannotBeAreErrors) {
  expect_error("estimate gpt2 --gpu rtx-9999", 5, {"rtx-9999"});
  expect_error("estimate gpt2 --gpu 0GiB", 5, {"0GiB"});
  expect_error("estimate gpt2 --in-use 1GiB", 2, {"--gpu"});
  expect_error("estimate gpt2 --gpu a100-80gb --in-use -1GiB", 5, {"-1GiB"});
  expect_error("estimate gpt2 --torch two", 5, {"two"});
  expect_error("estimate resnet18 --sample-tokens 4", 5, {"resnet18"});
  expect_error("estimate resnet18 --loss logits-sum", 5, {"logits-sum"});
}

TEST_F(Cli, HostSectionHasRowsPeaksAndAVerdict) {
  const Result r = run("estimate resnet50 --batch 32 --workers 4 --pin-memory --host-memory 64GiB --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const auto j = nlohmann::json::parse(r.out);
  int64_t sum = 0;
  for (const auto& row : j["host"]["rows"]) sum += row["bytes"].get<int64_t>();
  EXPECT_EQ(j["host"]["steady"]["bytes"], sum);
  EXPECT_EQ(j["host"]["verdict"], "fits");
  EXPECT_EQ(j["host"]["target"]["shm_bytes"], int64_t{32} << 30);
  EXPECT_EQ(j["job"]["workers"], 4);
  EXPECT_EQ(j["job"]["origin"]["workers"], "--workers");
}

TEST_F(Cli, AHostThatIsTooSmallExitsWithNoAndSaysWhatToChange) {
  const Result r = run("estimate resnet50 --batch 32 --workers 8 --host-memory 64GiB --shm 64MiB");
  EXPECT_EQ(r.code, 3) << r.err;
  EXPECT_NE(r.out.find("--shm-size=512m"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("No space left on device"), std::string::npos);
  EXPECT_EQ(run("estimate gpt2 --seq 64 --host-memory 2GiB").code, 3);
  EXPECT_EQ(run("estimate gpt2 --seq 64 --host-memory 9GiB").code, 4);
  EXPECT_EQ(run("estimate gpt2 --seq 64 --host").code, 0);
}

TEST_F(Cli, ThisMachineIsAHostToo) {
  const Result r = run("estimate gpt2 --seq 64 --host-memory this --json");
  ASSERT_TRUE(r.code == 0 || r.code == 3 || r.code == 4) << r.err;
  EXPECT_GT(nlohmann::json::parse(r.out)["host"]["target"]["total_bytes"].get<int64_t>(), 0);
}

TEST_F(Cli, UnifiedMemoryIsWorkedOutStepByStep) {
  const Result r = run("estimate gpt2 --seq 256 --unified gb10 --rule-of-thumb --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const auto j = nlohmann::json::parse(r.out);
  EXPECT_EQ(j["unified"]["steps"][0]["name"], "total");
  EXPECT_EQ(j["unified"]["steps"].back()["samples"], j["unified"]["max_batch"]);
  EXPECT_GT(j["unified"]["max_batch"].get<int64_t>(), 1);
  EXPECT_TRUE(j["rule_of_thumb"]["per_sample_gib"].is_null());
  EXPECT_EQ(run("estimate gpt2 --seq 256 --unified 4GiB").code, 3);
}

TEST_F(Cli, AiToolkitPutsItsRulesBesideItsDocument) {
  const Result text = run("ai-toolkit --arch qwen_image --resolution 2048 --unified 120 --workers 2 --ema");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("109.00 GB"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("Where code and document differ"), std::string::npos);
  const Result json = run("ai-toolkit --arch qwen_image --resolution 2048 --unified 120 --workers 2 --ema --json");
  const auto j = nlohmann::json::parse(json.out);
  EXPECT_EQ(j["code"]["batch"]["batch_size"], 2);
  EXPECT_EQ(j["document"]["batch_size"], 1);
  EXPECT_EQ(j["document"]["budget"]["reserved_gb"], 109.0);
  EXPECT_FALSE(j["differences"].empty());
  EXPECT_TRUE(j["executed"].contains("available"));
  EXPECT_EQ(
      nlohmann::json::parse(run("ai-toolkit --vram 16 --resolution 1536 --rules-version v1 --json").out)["code"]["batch"]["batch_size"], 2);
}

TEST_F(Cli, AiToolkitIsCheckedToo) {
  expect_error("ai-toolkit --resolution 0", 5, {"--resolution 0"});
  expect_error("ai-toolkit --priority fast", 5, {"fast", "quality"});
  expect_error("ai-toolkit --rules-version v9", 5, {"v9"});
  expect_error("ai-toolkit --precision bf16", 2, {"--precision"});
  expect_error("ai-toolkit gpt2", 2, {"gpt2"});
  expect_error("plan --rules ai-toolkit", 2, {"--rules", "plimsoll ai-toolkit"});
}

TEST_F(Cli, PlanFindsARecipeWhoseFlagsFit) {
  const Result text = run("plan gpt2 --batch 32 --seq 512 --gpu rtx-3060-12gb");
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"What to change", "Memory against time", "Ladder", "If it still runs out of memory", "Quick fixes, in order",
                           "Does not help here", "Batch size", "Marginal cost"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << text.out;
  const Result flags = run("plan gpt2 --batch 32 --seq 512 --gpu rtx-3060-12gb --flags");
  ASSERT_EQ(flags.code, 0) << flags.err;
  ASSERT_EQ(std::count(flags.out.begin(), flags.out.end(), '\n'), 1) << flags.out;
  EXPECT_EQ(run("estimate gpt2 --batch 32 --seq 512 --gpu rtx-3060-12gb").code, 3);
  // The plan's flags win over those before them only where the user's are left out.
  const std::string changed = flags.out.substr(0, flags.out.size() - 1);
  EXPECT_EQ(run("estimate gpt2 --seq 512 --gpu rtx-3060-12gb " + changed).code, 0) << changed;
}

TEST_F(Cli, PlanAnswersInJson) {
  const Result r = run("plan gpt2 --batch 32 --seq 512 --gpu rtx-3060-12gb --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const auto j = nlohmann::json::parse(r.out);
  EXPECT_EQ(j["schema"], 3);
  EXPECT_EQ(j["command"], "plan");
  EXPECT_EQ(j["kind"], "plan");
  EXPECT_EQ(j["plan"]["verdict"], "fits");
  EXPECT_EQ(j["plan"]["global_batch"], 32);
  EXPECT_LE(j["plan"]["device_peak"]["high_bytes"], j["limit_bytes"]);
  EXPECT_GT(j["plan"]["time"]["samples_per_second"], 0);
  EXPECT_TRUE(j["shortage"].is_null());
  for (const char* key : {"front", "ladder", "after_oom", "fixes", "sensitivity"}) EXPECT_FALSE(j[key].empty()) << key;
}

TEST_F(Cli, PlanSaysWhatIsMissing) {
  const Result r = run("plan gpt2-xl --gpu 6GiB --keep adapter,precision,optimizer,update");
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_NE(r.out.find("No allowed change makes it fit"), std::string::npos) << r.out;
  expect_error("plan gpt2-xl --gpu 6GiB --keep adapter,precision,optimizer,update --flags", 3, {"makes it fit", "missing"});
  expect_error("plan gpt2 --gpu rtx-4090 --keep precisoin", 2, {"precisoin", "precision"});
  expect_error("plan gpt2 --gpu rtx-4090 --goal speed", 2, {"speed", "throughput"});
  expect_error("plan gpt2 --gpu rtx-4090 --leave-free 2", 2, {"--leave-free"});
  expect_error("plan gpt2 --gpu rtx-4090 --total-batch 99999999999999", 2, {"99999999999999", "2^31"});
  expect_error("plan gpt2 --gpu rtx-4090 --step-time 1e-300", 2, {"1e-300", "microsecond"});
  expect_error("plan gpt2 --gpu rtx-4090 --write x.yaml", 2, {"no file or command"});
  expect_error("plan gpt2 --gpu rtx-4090 --goal gpu", 2, {"'gpu'", "'gpus'"});
  expect_error("plan gpt2 --gpu rtx-4090 --goal gpus", 2, {"how many devices", "--num-gpus"});
  expect_error("plan gpt2 --gpu rtx-4090 --ddp world=2 --num-gpus 4", 2, {"--num-gpus 4", "2 ranks"});
  expect_error("plan gpt2 --gpu rtx-4090 --flags --write x.yaml", 2, {"--flags", "--write"});
  expect_error("plan gpt2 --gpu rtx-4090,a100-80gb --host-memory 64GiB", 2, {"--host-memory", "one device"});
  expect_error("plan gpt2 --matrix gpu=8GiB,batch=1,2 --keep precision", 2, {"--keep", "--matrix"});
  expect_error("plan qwen-image --unified 120GB", 2, {"--unified"});
  expect_error("plan gpt2 --gpu rtx-4090 --num-gpus 0", 2, {"--num-gpus", "above 0"});
  expect_error("plan gpt2 --gpu rtx-4090,a100-80gb --flags", 2, {"one device"});
}

TEST_F(Cli, PlanSaysWhyThereIsNone) {
  const Result r = run("plan gpt2 --gpu tpu-v3 --json");
  const auto j = nlohmann::json::parse(r.out);
  EXPECT_TRUE(j["plan"].is_null() && j["shortage"].is_null()) << r.out;
  ASSERT_TRUE(j["unanswered"].is_string()) << r.out;
  EXPECT_NE(run("plan gpt2 --gpu tpu-v3").out.find("There is no plan: " + j["unanswered"].get<std::string>()), std::string::npos);
}

TEST_F(Cli, BundlesDoNotOverwrite) {
  const std::string log = file("train.log", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n");
  const std::string bundle = file("help.tar", "mine");
  expect_error("explain " + log + " --bundle " + bundle, 2, {"exists already"});
  std::ifstream kept(bundle);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(kept), {}), "mine");
  expect_error("explain " + log + " --bundle " + (folder_ / "none/help.tar").string(), 2, {"no directory"});
}

TEST_F(Cli, PlanWritesTheFileItCameFrom) {
  const std::string text =
      "base_model: gpt2  # small\nsequence_len: 512\nmicro_batch_size: 32   # fits?\ngradient_accumulation_steps: 1\n"
      "optimizer: adamw_torch\nbf16: auto\ndatasets:\n  - path: data.jsonl\n    type: completion\n";
  const std::string path = file("axolotl.yaml", text), smaller = (folder_ / "smaller.yaml").string();
  const Result diff = run("plan " + path + " --gpu rtx-3060-12gb --keep loss,checkpointing,optimizer --diff");
  ASSERT_EQ(diff.code, 0) << diff.err;
  EXPECT_NE(diff.out.find("-micro_batch_size: 32   # fits?"), std::string::npos) << diff.out;
  EXPECT_NE(diff.out.find("@@ -1,"), std::string::npos) << diff.out;
  const Result written = run("plan " + path + " --gpu rtx-3060-12gb --keep loss,checkpointing,optimizer --write " + smaller);
  ASSERT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(run("estimate " + smaller + " --alloc-conf expandable_segments:True --gpu rtx-3060-12gb").code, 0);
  expect_error("plan " + path + " --gpu rtx-3060-12gb --write " + smaller, 2, {"exists already"});
  expect_error("plan " + path + " --gpu rtx-3060-12gb --write " + (folder_ / "none/x.yaml").string(), 2, {"cannot be written"});
}

TEST_F(Cli, PlanMakesTables) {
  const Result matrix = run("plan gpt2 --seq 256 --matrix gpu=rtx-3060-12gb,rtx-4090,batch=1,64 --json");
  ASSERT_EQ(matrix.code, 0) << matrix.err;
  EXPECT_EQ(nlohmann::json::parse(matrix.out)["matrix"].size(), 4u);
  const Result devices = run("plan resnet50 --batch 64 --gpu rtx-3060-12gb,rtx-4090,a100-80gb");
  ASSERT_EQ(devices.code, 0) << devices.err;
  for (const char* device : {"GeForce RTX 3060", "GeForce RTX 4090", "a100-80gb"})
    EXPECT_NE(devices.out.find(std::string("\n  ") + device), std::string::npos) << devices.out;
  expect_error("plan gpt2 --matrix batch=1,2", 2, {"no device"});
  expect_error("plan gpt2 --matrix 1,2", 2, {"1,2"});
  expect_error("plan gpt2 --matrix gpu=rtx-4090,btch=1", 5, {"btch"});
}

TEST_F(Cli, HostSettingsAreCheckedLikeAllOthers) {
  expect_error("estimate gpt2 --prefetch-factor 4", 5, {"prefetch_factor 4", "workers"});
  expect_error("estimate gpt2 --workers -2", 5, {"workers -2"});
  expect_error("estimate gpt2 --workers 2147483648 --prefetch-factor 2147483648 --item-bytes 1GiB --host", 5, {"63 bits"});
  expect_error("estimate gpt2 --cache ram", 5, {"how many items", "dataset_size"});
  expect_error("estimate gpt2 --host-memory lots", 5, {"--host-memory", "lots"});
  expect_error("estimate gpt2 --unified rtx-4090", 2, {"memory of its own"});
  expect_error("estimate gpt2 --unified -5", 5, {"--unified"});
  expect_error("estimate gpt2 --rule-of-thumb", 2, {"--unified"});
  expect_error("estimate gpt2 --os-reserve 4GiB", 2, {"--host"});
  expect_error("estimate gpt2 --margin 0.2", 2, {"--unified"});
}

}  // namespace
