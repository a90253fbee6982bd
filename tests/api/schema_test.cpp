// The JSON Schemas of the verbs hold for real requests and answers, and describe nothing that is never answered.
#include "api/schema.h"

#include <gtest/gtest.h>
#include <plimsoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "api/verbs.h"
#include "captured_program.h"
#include "estimate/calibration.h"
#include "hardware/lookup.h"
#include "job/settings.h"
#include "json_schema.h"
#include "support.h"

namespace plimsoll::schema_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Problems = std::vector<std::string>;

const std::string kRoot = PLIMSOLL_SOURCE_DIR, kData = kRoot + "/tests/data/";

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Question {
  std::string verb;
  Json request;
};

class Schemas : public ::testing::Test {
 protected:
  // Files of every kind that verbs read, made once.
  static void SetUpTestSuite() {
    fs::create_directories(folder());
    const auto write = [](const char* name, const std::string& text) { std::ofstream(folder() / name) << text; };
    write("run.yaml", "model: resnet18\nbatch: 64\n");
    write("small.yaml", "model: gpt2\nbatch: 4\nseq: 64\nconfig: {n_layer: 2}\n");
    write("zero.yaml", "model: gpt2\nbatch: 1\nseq: 32\nconfig: {n_layer: 2}\nzero: {world: 2, stage: 2}\n");
    write("trl.yaml", "model_name_or_path: gpt2\nper_device_train_batch_size: 8\nmax_length: 128\nbf16: true\nunheard_of: 3\n");
    write("fixed.yaml", "model_name_or_path: gpt2\nper_device_train_batch_size: 8\nmax_length: 128\nbf16: true\n");
    write("captured.trace", captured_text());
    write("counted.trace", captured_count_text());
    write("slow.log", "step 1 loss 2.0\nstep 2 loss 1.9\n");
    write("profile.json", R"({"schemaVersion": 1, "traceEvents": [
      {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 1, "tid": 7, "ts": 12, "dur": 5},
      {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "tid": 7, "ts": 13, "args": {"Bytes": 1024, "Addr": 100,
       "Total Allocated": 5024, "Total Reserved": 8192, "Device Type": 1, "Device Id": 0}}]})");
    write("profile_cpu.json", R"({"schemaVersion": 1, "traceEvents": [
      {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "tid": 7, "ts": 13, "args": {"Bytes": 64, "Addr": 100,
       "Total Allocated": 64, "Total Reserved": 0, "Device Type": 0, "Device Id": -1}}]})");
    write("timeline.json",
          "[[10, 20, 30], [[0, 100, 0, 5, 0, 0, 0, 0, 0], [0, 100, 0, 5, 0, 70, 0, 0, 2], [0, 100, 0, 5, 0, 20, 30, 0, 0]]]");
    write("raw_timeline.json", "[[-1, 1, 100, 0], [-1, 1, 5, 2], [20, 2, 70, 4], [30, 4, -50, 4], [30, 2, 30, 5]]");
    write("second.json", R"({"traceEvents": [
      {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "tid": 7, "ts": 13, "args": {"Bytes": 512, "Addr": 100,
       "Total Allocated": 512, "Total Reserved": 2048, "Device Type": 1, "Device Id": 1}}]})");
    write("zero_timeline.json", "[[10, 20], [[0, 0, 0, 5, 0, 0, 0, 0, 0], [0, 10, 0, 5, 0, 0, 0, 0, 0]]]");
    write("nvml",
          "count 1\ndriver 570.86.10\n0.name NVIDIA GeForce RTX 4090\n0.uuid GPU-aaaa\n0.total 25757220864\n0.reserved 373293056\n"
          "0.used 104857600\n0.pci 1\n0.cc 8.9\n0.processes 77:1048576\n");
    write("stats.json", R"({"allocated_bytes.all.current": 100, "allocated_bytes.all.peak": 500, "reserved_bytes.all.current": 600,
      "reserved_bytes.all.peak": 700, "inactive_split_bytes.all.current": 90, "num_alloc_retries": 2, "num_ooms": 1})");
    write("nested_stats.json",
          R"({"allocated_bytes": {"all": {"current": 1, "peak": 2}}, "reserved_bytes": {"all": {"current": 3, "peak": 4}}})");
    write("idle_stats.json", R"({"allocated_bytes.all.current": 100, "allocated_bytes.all.peak": 100, "reserved_bytes.all.current": 100,
      "reserved_bytes.all.peak": 100, "requested_bytes.all.current": 90, "active_bytes.all.current": 100, "segment.all.current": 1})");
    Json row = Json::parse(R"({"id":"r1","family":"f","confidence":0.8,
      "model":{"name":"openai-community/gpt2","arch":"decoder_transformer","config":{"num_layers":2,"hidden_size":64,"num_heads":4,
        "ffn_size":256,"vocab_size":500,"position_rows":128,"ffn_kind":"gelu_tanh","hidden_dropout":0.1}},
      "train":{"trainable":"full","batch_per_gpu":2,"seq_len":64,"image_size":null,"grad_accum":1,"grad_clip":null,
        "precision":{"weights":"bf16","compute":"bf16"},"optimizer":{"name":"adamw","foreach":true},"checkpointing":"none",
        "attention":"sdpa","compile":false,"loss":"ce","lora":null,"quantization":null,"extra":null},
      "parallel":{"world":1},"gpu":{"name":"A100-80GB"},"software":{"framework":"x","torch":"2.4.1"},
      "measured":{"bytes":50000000,"kind":"allocated_peak"}})");
    for (const char* kind : {"allocated_peak", "device_used", "reserved_peak"}) {
      row["measured"]["kind"] = kind;
      write((std::string(kind) + ".jsonl").c_str(), row.dump() + "\n");
    }
    if (const char* state = getenv("XDG_STATE_HOME")) state_home() = state;
    setenv("XDG_STATE_HOME", folder().c_str(), 1);
    keep_measured(device_label(target_device(find_device("rtx-4090")))), keep_measured(kTensors);
    Json ignored;
    ask("estimate", Json{{"run", path("small.yaml")}, {"save_trace", path("run.trace")}}.dump(), ignored);
    ask("estimate", Json{{"run", path("zero.yaml")}, {"save_trace", path("zero.trace")}}.dump(), ignored);
    ask("estimate", Json{{"run", "fsdm-lag"}, {"settings", {{"framework", "jax"}, {"batch", 2}}}, {"save_trace", path("jax.trace")}}.dump(),
        ignored);
    setenv("PLIMSOLL_STUB_NVML", path("nvml").c_str(), 1);
  }
  static void TearDownTestSuite() {
    fs::remove_all(folder());
    unsetenv("PLIMSOLL_STUB_NVML");
    state_home().empty() ? unsetenv("XDG_STATE_HOME") : setenv("XDG_STATE_HOME", state_home().c_str(), 1);
  }
  static std::string& state_home() {
    static std::string home;
    return home;
  }
  // A run of resnet18 that this machine has measured, with 5 MiB more than predicted.
  static void keep_measured(const std::string& device) {
    MeasuredRun run = measured_run(estimate(job_of("resnet18", Json::object()), 0), device);
    run.predicted = Bytes{1 << 30};
    run.measured = run.predicted + Bytes{5 << 20};
    fs::create_directories(folder() / "plimsoll");
    add_measured_run(measured_runs_file(), run);
  }
  static fs::path folder() { return fs::temp_directory_path() / ("plimsoll_schemas_" + std::to_string(getpid())); }
  static std::string path(const char* name) { return (folder() / name).string(); }

  // At least three of each kind of answer.
  static std::vector<Question> questions() {
    const Json small{{"batch", 2}, {"seq", 64}, {"config", {{"n_layer", 2}}}};
    const std::string yaml = path("run.yaml"), trace = path("run.trace"), sharded = path("zero.trace"), own = path("small.yaml");
    const auto with = [&](Json settings) {
      Json out = small;
      out.update(settings);
      return out;
    };
    std::vector<Question> out{
        {"estimate", {{"run", "gpt2"}, {"settings", small}}},
        {"estimate",
         {{"run", "gpt2"}, {"settings", small}, {"gpu", {"rtx-4090", "600MiB"}}, {"what_if", true}, {"host_memory", "16GiB"}, {"top", 3}}},
        {"estimate",
         {{"run", "gpt2"},
          {"settings", with({{"dataset_size", 100}})},
          {"unified", "gb10"},
          {"rule_of_thumb", true},
          {"host_memory", "6GiB"}}},
        {"estimate", {{"run", "gpt2"}, {"settings", {{"batch", 8}, {"seq", 256}}}, {"gpu", "4GiB"}, {"verbose", true}}},
        {"estimate", {{"run", "resnet18"}, {"unified", "64GiB"}, {"rule_of_thumb", true}}},
        {"estimate", {{"run", "resnet18"}, {"gpu", "rtx-4090"}, {"calibrated", true}}},
        {"estimate", {{"run", "gpt2"}, {"settings", with({{"workers", 8}})}, {"gpu", "gb10"}, {"what_if", true}, {"host_memory", "4GiB"}}},
        {"estimate", {{"run", "fsdm-lag"}, {"settings", {{"framework", "jax"}, {"batch", 4}}}, {"gpu", "a100-80gb"}}},
        {"estimate", {{"run", "fsdm-lag"}, {"settings", {{"framework", "jax"}, {"batch", 4}, {"device_kind", "tpu"}}}}},
        {"estimate", {{"run", path("zero.yaml")}, {"gpu", "rtx-4090"}}},
        {"estimate", {{"run", "gpt2"}, {"settings", with({{"zero1", {{"world", 3}}}, {"ema", true}})}}},
        {"estimate", {{"run", "gpt2"}, {"settings", with({{"fsdp", {{"world", 3}}}, {"checkpointing", true}})}}},
        {"estimate",
         {{"run", "gpt2"}, {"settings", with({{"lora", {{"r", 4}}}, {"eval_batch", 2}, {"sample_tokens", 2}, {"longest", 128}})}}},
        {"estimate", {{"run", path("trl.yaml")}, {"settings", small}}},
        {"estimate",
         {{"run", path("captured.trace")}, {"settings", {{"batch", 16}, {"seq", 512}}}, {"gpu", "rtx-4090"}, {"what_if", true}}},
        {"estimate", {{"run", path("counted.trace")}, {"gpu", "40MiB"}}},
        {"explain", {{"run", path("captured.trace")}}},
        {"report", {{"run", path("counted.trace")}, {"gpu", "rtx-4090"}}},
        {"plan", {{"run", path("captured.trace")}, {"gpu", "1GiB"}}},
        {"replay", {{"file", path("captured.trace")}, {"size", "batch=16,seq=512"}}},
        {"compare", {{"run", path("captured.trace")}, {"vary", {{"batch", {6, 40}}}}, {"settings", {{"seq", 128}}}}},
        {"compare", {{"jobs", {"gpt2", "bert-base"}}, {"settings", {{"seq", 32}}}, {"gpu", "8GiB"}}},
        {"compare", {{"run", "gpt2"}, {"settings", small}, {"vary", {{"batch", {1, 2}}}}}},
        {"compare", {{"jobs", {own, path("zero.yaml")}}, {"gpu", {"rtx-4090", "200MiB"}}}},
        {"explain", {{"run", yaml}, {"gpu", "24GiB"}, {"bundle", path("help.tar")}}},
        {"explain", {{"run", path("trl.yaml")}, {"settings", small}}},
        {"explain", {{"run", path("zero.yaml")}}},
        {"explain", {{"run", kData + "oom/accelerator-sync.txt"}, {"log_of", own}, {"bundle", path("log.tar")}}},
        {"explain", {{"run", kData + "oom/allowed-2.0.txt"}, {"log_of", yaml}, {"gpu", "2GiB"}}},
        {"explain", {{"run", path("slow.log")}}},
        {"explain", {{"run", kData + "oom/pytorch-2.1-other-process.txt"}}},
        {"explain", {{"run", kData + "oom/composed-docker-json.txt"}}},
        {"report", {{"run", "gpt2"}, {"settings", small}, {"gpu", "1GiB"}}},
        {"report", {{"run", path("zero.yaml")}, {"brief", true}}},
        {"report", {{"run", "gpt2"}, {"settings", small}, {"brief", true}, {"measured", kData + "fragmented.pickle"}}},
        {"report", {{"run", "fsdm-lag"}, {"settings", {{"framework", "jax"}, {"batch", 2}}}, {"gpu", "a100-80gb"}, {"brief", true}}},
        {"plan", {{"run", yaml}, {"gpu", "2GiB"}, {"host_memory", "16GiB"}}},
        {"plan", {{"run", own}, {"gpu", "600MiB"}}},
        {"plan", {{"run", own}, {"gpu", "1GiB"}, {"goal", "memory"}}},
        {"plan", {{"run", own}, {"gpu", "rtx-4090"}, {"num_gpus", 2}, {"goal", "gpus"}, {"total_batch", 8}}},
        {"plan", {{"run", own}, {"gpu", "gb10"}, {"goal", "batch"}}},
        {"plan", {{"run", own}, {"settings", {{"tensor_parallel", {{"world", 5}}}}}, {"gpu", "8GiB"}}},
        {"plan", {{"run", own}, {"gpu", {"1GiB", "8GiB"}}}},
        {"plan", {{"run", own}, {"gpu", {"100MiB", "rtx-4090"}}}},
        {"plan", {{"run", yaml}, {"gpu", {"2GiB", "8GiB"}}}},
        {"plan", {{"run", own}, {"gpu", "1GiB"}, {"flags", true}}},
        {"plan", {{"run", yaml}, {"gpu", "2GiB"}, {"flags", true}}},
        {"plan", {{"run", "gpt2"}, {"settings", small}, {"gpu", "1GiB"}, {"flags", true}}},
        {"plan", {{"run", yaml}, {"gpu", "2GiB"}, {"diff", true}}},
        {"plan", {{"run", path("trl.yaml")}, {"gpu", "2.5GiB"}, {"diff", true}}},
        {"plan", {{"run", own}, {"gpu", "2GiB"}, {"generate", "accelerate"}}},
        {"plan", {{"run", own}, {"gpu", "1GiB"}, {"write", path("new.yaml")}}},
        {"plan", {{"run", yaml}, {"matrix", "gpu=2GiB,8GiB,batch=1,2"}}},
        {"plan", {{"run", own}, {"matrix", "gpu=rtx-4090,batch=1"}}},
        {"plan", {{"run", own}, {"gpu", "8GiB"}, {"matrix", "optimizer=AdamW,adamw_bnb_8bit,precision=bf16,fp32"}}},
        {"plan", {{"run", "gpt2"}, {"settings", small}, {"gpu", "a100-80gb"}, {"world", 2}}},
        {"plan", {{"run", "gpt2"}, {"settings", small}, {"gpu", "100MiB"}, {"world", 2}}},
        {"plan", {{"run", "gpt2"}, {"settings", small}, {"gpu", "a100-80gb"}, {"world", 4}, {"node", 2}}},
        {"plan", {{"run", "gpt2"}, {"settings", small}, {"gpu", "a100-80gb"}, {"world", 2}, {"generate", "torchrun"}}},
        {"plan", {{"run", path("trl.yaml")}, {"gpu", "2.5GiB"}}},
        {"fix", {{"run", path("trl.yaml")}, {"gpu", "2.5GiB"}}},
        {"fix", {{"run", path("fixed.yaml")}, {"gpu", "2.5GiB"}, {"write", true}}},
        {"fix", {{"run", "gpt2"}, {"settings", with({{"batch", 8}})}, {"gpu", "900MiB"}, {"keep", "precision"}, {"leave_free", 0.02}}},
        {"fix", {{"run", own}, {"gpu", "rtx-4090"}}},
        {"fix", {{"run", path("trl.yaml")}, {"gpu", "100MiB"}}},
        {"ai-toolkit", {{"arch", "flux"}, {"vram", 24}}},
        {"ai-toolkit", {{"arch", "qwen_image"}, {"resolution", 2048}, {"unified", 120}, {"workers", 2}, {"ema", true}}},
        {"ai-toolkit", {{"arch", "sdxl"}, {"vram", 8}, {"experience", "advanced"}, {"rules_version", "v6"}, {"images", 5}}},
        {"score", {{"files", kRoot + "/tests/truth/ema.jsonl"}}},
        {"score", {{"files", kRoot + "/tests/truth/cache.jsonl"}, {"walk", folder().string()}}},
        {"score", {{"files", kRoot + "/tests/truth/activations.jsonl"}}},
        {"replay", {{"file", trace}}},
        {"replay", {{"file", trace}, {"device_memory", "30MiB"}, {"in_use", "1MiB"}}},
        {"replay", {{"file", sharded}, {"alloc_conf", "expandable_segments:True"}}},
        {"doctor", Json::object()},
        {"doctor", {{"root", folder().string()}}},
        {"doctor", {{"nvml", PLIMSOLL_STUB_NVML_LIBRARY}, {"rocm_smi", PLIMSOLL_STUB_ROCM_LIBRARY}}},
        {"schema", {{"verb", "plan"}}},
        {"schema", {{"verb", "watch"}}},
        {"schema", {{"verb", "error"}}},
        {"version", Json::object()}};
    for (const char* allocator : {"ideal", "bfc", "pinned"})
      for (const std::string& file : {trace, sharded, kData + "protocol5.pickle"})
        out.push_back({"replay", {{"file", file}, {"allocator", allocator}}});
    out.push_back({"replay", {{"file", trace}, {"allocator", "bfc"}, {"device_memory", "20MiB"}}});
    out.push_back({"replay", {{"file", trace}, {"allocator", "ideal"}, {"device_memory", "20MiB"}}});
    for (const char* name : {"oom", "protocol5", "fragmented", "two_devices", "segments_only"}) {
      const std::string file = kData + name + ".pickle";
      out.push_back({"explain", {{"run", file}}});
      out.push_back({"report", {{"run", file}}});
      out.push_back({"replay", {{"file", file}, {"alloc_conf", "expandable_segments:True"}}});
    }
    out.push_back({"replay", {{"file", kData + "protocol5.pickle"}, {"device_memory", "4MiB"}}});
    for (const char* name : {"run.trace", "zero.trace", "profile.json", "profile_cpu.json", "timeline.json", "raw_timeline.json",
                             "jax.trace", "second.json", "zero_timeline.json"}) {
      out.push_back({"explain", {{"run", path(name)}}});
      out.push_back({"report", {{"run", path(name)}}});
    }
    for (const char* name : {"stats.json", "nested_stats.json", "idle_stats.json"}) out.push_back({"explain", {{"run", path(name)}}});
    for (const char* name : {"allocated_peak.jsonl", "device_used.jsonl", "reserved_peak.jsonl"})
      out.push_back({"score", {{"files", path(name)}}});
    for (const char* format : {"csv", "html", "markdown"})
      out.push_back({"report", {{"run", "gpt2"}, {"settings", small}, {"format", format}, {"brief", true}}});
    const RequestKey what_key = find_verb("list").keys().front();
    for (const std::string& what : what_key.choices) out.push_back({"list", {{"what", what}}});
    return out;
  }
};

// Each in a file of its own; PLIMSOLL_KEEP_ANSWERS names a folder that stays.
void keep(const Question& q, const Json& answer, size_t number, fs::path folder) {
  if (const char* kept = getenv("PLIMSOLL_KEEP_ANSWERS")) folder = kept;
  fs::create_directories(folder);
  std::ofstream(folder / (q.verb + "." + std::to_string(number) + ".json")) << answer.dump(1);
}

std::string kind_of(const Json& answer) { return answer.value("kind", ""); }

// Settings that are mappings, with all of their keys.
std::vector<std::pair<std::string, Json>> mappings() {
  const Json adapter{{"target_modules", {"q_proj"}}, {"exclude_modules", {"lm_head"}}, {"task_type", "SEQ_CLS"}};
  const auto with = [](Json mapping, const Json& more) {
    mapping.update(more);
    return mapping;
  };
  const Json ranked =
      with(adapter, {{"r", 4}, {"rank_pattern", {{"v_proj", 16}}}, {"layers_to_transform", {0}}, {"layers_pattern", "layers"}});
  return {{"lora", with(ranked, {{"implementation", "ai-toolkit"}})},
          {"lora", {{"target_modules", "all-linear"}, {"use_dora", true}}},
          {"lokr", ranked},
          {"ia3", with(adapter, {{"feedforward_modules", {"down_proj"}}})},
          {"ln_tuning", adapter},
          {"quantization", {{"type", "nf4"}, {"double_quant", true}}},
          {"quantization", {{"type", "int8"}, {"skip_modules", {"lm_head"}}}},
          {"checkpointing", true},
          {"checkpointing", {{"every", 2}}},
          {"checkpointing", {{"modules", {"mlp"}}, {"reentrant", true}}},
          {"checkpointing", {{"save", "matmuls"}}},
          {"offload_optimizer", {{"gradients", true}}},
          {"offload_activations", "pinned"},
          {"lengths", {5, 7}},
          {"item_bytes", "6MiB"},
          {"liger_kernels", "rope+swiglu"},
          {"ddp", {{"world", 8}, {"bucket_mb", 12.5}}},
          {"zero1", {{"world", 8}}},
          {"fsdp", {{"world", 8}, {"reshard", 2}, {"reshard_root", true}}},
          {"fsdp1", {{"world", 8}, {"strategy", "hybrid_shard"}, {"replicas", 2}}},
          {"zero", {{"world", 8}, {"stage", 3}}},
          {"tensor_parallel", {{"world", 4}}},
          {"megatron", {{"world", 16}, {"tensor", 4}, {"pipeline", 2}, {"layers", {7, 9}}, {"stage", 1}}},
          {"torchtitan", {{"world", 64}, {"tensor", 8}, {"pipeline", 2}, {"layers", {7, 9}}, {"stage", 1}, {"micro_batches", 4}}}};
}

// Described, and in no answer here.
const std::map<std::string, Problems>& not_shown_here() {
  static const std::map<std::string, Problems> kNone{
      {"ai-toolkit", {"/executed/reason"}},  // every architecture is executed
      {"explain",                            // no recording here leaks
       {"/snapshot:/leaks/[]/place", "/snapshot:/leaks/[]/bytes", "/snapshot:/leaks/[]/blocks", "/snapshot:/leaks/[]/steps",
        "/snapshot:/leaks/[]/bytes_per_step"}},
      {"plan", {"/file:/consequences/[]/setting", "/file:/consequences/[]/before", "/file:/consequences/[]/after"}},  // nor derives more
      {"score", {"/recorded:/walk/differences/[]/id", "/recorded:/walk/differences/[]/first"}}};                      // every row is equal
  return kNone;
}

TEST_F(Schemas, HoldForRequestsAndAnswersAndDescribeNothingElse) {
  std::map<std::string, JsonSchema> schemas;
  const auto seen = std::make_shared<JsonSchema::Seen>();
  std::map<std::string, int> kinds;
  size_t number = 0;
  for (const Question& q : questions()) {
    SCOPED_TRACE(q.verb + " " + q.request.dump());
    Json answer;
    EXPECT_NO_THROW(ask(q.verb, q.request.dump(), answer));
    if (answer.is_null()) continue;
    keep(q, answer, number++, folder() / "answers");
    ASSERT_GE(answer.size(), 2u);
    EXPECT_EQ(answer.begin().key(), "schema");
    EXPECT_EQ((++answer.begin()).key(), "command");
    EXPECT_EQ(answer["command"], q.verb);
    EXPECT_EQ(JsonSchema(request_schema(q.verb, find_verb(q.verb).keys())).problems(q.request), Problems{});
    const auto schema = schemas.try_emplace(q.verb, Json::parse(answer_schema(q.verb)), seen).first;
    EXPECT_EQ(schema->second.problems(answer), Problems{});
    ++kinds[q.verb + " " + kind_of(answer)];
  }
  const Json parts = Json::parse(answer_schema("estimate"))["$defs"];
  JsonSchema job_schema(Json{{"$ref", "#/$defs/job"}, {"$defs", parts}}, seen);
  for (const auto& [setting, value] : mappings()) {
    Job job;
    apply_setting(job, setting, value, "here");
    EXPECT_EQ(job_schema.problems(job_json(job)), Problems{}) << setting;
  }
  for (auto& [verb, schema] : schemas) {
    const auto known = not_shown_here().find(verb);
    EXPECT_EQ(schema.never_seen(), known == not_shown_here().end() ? Problems{} : known->second) << verb;
  }
  for (const auto& [kind, times] : kinds) EXPECT_GE(times, kind.starts_with("list ") || kind == "version " ? 1 : 3) << kind;
}

// The same by a validator that others use: python3-jsonschema.
TEST_F(Schemas, HoldByAnotherValidator) {
  const char* kept = getenv("PLIMSOLL_KEEP_ANSWERS");
  const std::string answers = kept ? kept : (folder() / "answers").string();
  if (std::system("python3 -c 'import jsonschema' 2>/dev/null") != 0) GTEST_SKIP() << "python3-jsonschema is not installed";
  if (!fs::exists(answers)) GTEST_SKIP() << "the answers are those of the test before";
  EXPECT_EQ(std::system(("python3 " + kRoot + "/tests/api/validate.py " + kRoot + "/schemas " + answers).c_str()), 0);
}

// Every look of a run that was kept, as `watch` prints it.
TEST_F(Schemas, HoldForLooksOfWatch) {
  JsonSchema schema(Json::parse(answer_schema("watch")));
  for (const char* name : {"leak", "pressure", "starving"}) {
    const std::string out = path("looks.jsonl");
    ASSERT_EQ(
        std::system((PLIMSOLL_BINARY " watch --jsonl --run gpt2 --seq 32 --replay " + kData + "watch/" + name + ".jsonl > " + out).c_str()),
        0);
    std::ifstream in(out);
    std::string line;
    int lines = 0;
    for (; std::getline(in, line); ++lines) ASSERT_EQ(schema.problems(Json::parse(line)), Problems{}) << line.substr(0, 200);
    EXPECT_GT(lines, 2);
  }
}

// The `job` of an answer says of each setting what it is; only values of the user's own are open.
TEST_F(Schemas, LeaveNoSettingOpen) {
  const Json job = Json::parse(answer_schema("estimate"))["$defs"]["job"]["properties"];
  for (const auto& [key, schema] : job.items()) {
    const bool said = schema.contains("type") || schema.contains("oneOf");
    EXPECT_TRUE(said) << key << " may be anything";
  }
}

// What `run` would do: with a trainer that is known, with templates, and with a command of which nothing is known.
TEST_F(Schemas, HoldForDryRuns) {
  JsonSchema schema(Json::parse(answer_schema("run")));
  const std::string hf = "-- python run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 8 --output_dir out";
  const std::vector<std::string> commands{hf, "--set 'BATCH={batch}' --batch 8 --gpu 8GiB -- ./train.sh", "-- true"};
  for (const std::string& command : commands) {
    const std::string out = path("dry.json");
    ASSERT_EQ(std::system((PLIMSOLL_BINARY " run --dry-run --json " + command + " > " + out).c_str()), 0) << command;
    EXPECT_EQ(schema.problems(Json::parse(content(out))), Problems{}) << command;
  }
  EXPECT_EQ(schema.never_seen(), Problems{});
  EXPECT_NE(std::system(PLIMSOLL_BINARY " run --json -- true 2>/dev/null"), 0) << "stdout is the command's own";
}

TEST_F(Schemas, EveryVerbThatAnswersHasOneAndAQuestionHere) {
  for (const Verb& v : verbs()) {
    EXPECT_TRUE(!v.answer || v.shape) << v.name;
    if (!v.answer) continue;
    bool asked = false;
    for (const Question& q : questions()) asked |= q.verb == v.name;
    EXPECT_TRUE(asked) << v.name;
  }
}

// `plimsoll schema --all schemas` writes them.
TEST_F(Schemas, ThatAreShippedAreThoseOfTheCode) {
  std::vector<std::string> shipped;
  for (const auto& entry : fs::directory_iterator(kRoot + "/schemas")) shipped.push_back(entry.path().stem().string());
  std::vector<std::string> names = schema_names();
  std::sort(names.begin(), names.end());
  std::sort(shipped.begin(), shipped.end());
  EXPECT_EQ(shipped, names);
  for (const std::string& name : names) EXPECT_EQ(content(kRoot + "/schemas/" + name + ".json"), answer_schema(name)) << name;
}

// Objects are closed and every key has a meaning.
void expect_described(const Json& schema, const std::string& at) {
  if (schema.contains("properties")) {
    EXPECT_EQ(schema["additionalProperties"], false) << at;
    for (const auto& [key, inner] : schema["properties"].items()) {
      const bool said = inner.contains("description") || inner.contains("$ref");
      EXPECT_TRUE(said && inner.value("description", "x") != "") << at << "/" << key << " has no meaning";
      expect_described(inner, at + "/" + key);
    }
  }
  for (const char* word : {"items", "additionalProperties"})
    if (schema.contains(word) && schema[word].is_object()) expect_described(schema[word], at + "/" + word);
  if (schema.contains("oneOf"))
    for (const Json& each : schema["oneOf"]) expect_described(each, at);
  if (schema.contains("$defs"))
    for (const auto& [name, inner] : schema["$defs"].items()) expect_described(inner, "/$defs/" + name);
}

TEST_F(Schemas, DescribeEveryKeyAndLeaveNoObjectOpen) {
  for (const std::string& name : schema_names()) expect_described(Json::parse(answer_schema(name)), name);
}

TEST_F(Schemas, RefuseWhatTheVerbRefuses) {
  JsonSchema schema(request_schema("plan", find_verb("plan").keys()));
  for (const char* request :
       {R"({"gaol": "memory"})", R"({"num_gpus": 0})", R"({"keep": 3})", R"({"flags": "yes"})", R"({"gpus": "some"})"}) {
    EXPECT_FALSE(schema.problems(Json::parse(request)).empty()) << request;
    Json answer;
    EXPECT_THROW(ask("plan", request, answer), Error) << request;
  }
}

// An answer with one key more, one less, or another value is none.
TEST_F(Schemas, RefuseAnAnswerThatIsNone) {
  Json answer;
  ask("estimate", Json{{"run", path("small.yaml")}, {"gpu", "8GiB"}}.dump(), answer);
  JsonSchema schema(Json::parse(answer_schema("estimate")));
  ASSERT_EQ(schema.problems(answer), Problems{});
  const auto expect_refused = [&](const std::function<void(Json&)>& change) {
    Json changed = answer;
    change(changed);
    EXPECT_FALSE(schema.problems(changed).empty()) << changed["fits"];
  };
  expect_refused([](Json& a) { a["fits"][0]["more"] = 1; });
  expect_refused([](Json& a) { a["fits"][0].erase("margin_bytes"); });
  expect_refused([](Json& a) { a["fits"][0]["verdict"] = "perhaps"; });
  expect_refused([](Json& a) { a["fits"][0]["device_peak"]["bytes"] = 1.5; });
  expect_refused([](Json& a) { a["peak"]["phase"] = nullptr; });
  expect_refused([](Json& a) { a["job"].erase("batch"); });
  expect_refused([](Json& a) { a["schema"] = 1; });
}

TEST_F(Schemas, HoldForErrorsOfTheLibrary) {
  JsonSchema schema(Json::parse(answer_schema("error")));
  const std::pair<const char*, const char*> wrong[]{{"estimate", R"({"run": "gtp2"})"},
                                                    {"estimate", R"({"rnu": "gpt2"})"},
                                                    {"plan", "{"},
                                                    {"estimaet", "{}"},
                                                    {"watch", "{}"},
                                                    {nullptr, "{}"},
                                                    {"replay", R"({"file": "/no/such"})"},
                                                    {"list", nullptr}};
  for (const auto& [verb, request] : wrong) {
    plimsoll_answer* answer = plimsoll_ask(verb, request);
    const Json document = Json::parse(plimsoll_answer_json(answer, nullptr));
    EXPECT_EQ(schema.problems(document), Problems{}) << document;
    EXPECT_EQ(document["code"], static_cast<int>(plimsoll_answer_code(answer)));
    EXPECT_EQ(document["message"], plimsoll_answer_message(answer));
    plimsoll_answer_free(answer);
  }
  EXPECT_EQ(schema.never_seen(), Problems{});
}

}  // namespace
}  // namespace plimsoll::schema_test
