// The library as a program meets it, through its C interface and the C++ header over it: the answers of the command, and no way to break
// it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <plimsoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <plimsoll.hpp>
#include <regex>
#include <thread>

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Verb = plimsoll_answer* (*)(const char*);
using Handle = std::unique_ptr<plimsoll_answer, decltype(&plimsoll_answer_free)>;

plimsoll_answer* ask_ai_toolkit(const char* request) { return plimsoll_ask("ai-toolkit", request); }
plimsoll_answer* ask_score(const char* request) { return plimsoll_ask("score", request); }
plimsoll_answer* ask_report(const char* request) { return plimsoll_ask("report", request); }

constexpr Verb kVerbs[] = {plimsoll_estimate, plimsoll_plan, plimsoll_compare, plimsoll_explain, plimsoll_replay, plimsoll_list};

Handle ask(Verb verb, const std::string& request) { return {verb(request.c_str()), plimsoll_answer_free}; }

// What the command prints and exits with. Where a value came from is a flag there and a key of `settings` here.
std::pair<std::string, int> command(const std::string& args) {
  FILE* pipe = popen((PLIMSOLL_BINARY " " + args.substr(0, args.find(' ')) + " --json" + args.substr(args.find(' '))).c_str(), "r");
  std::string out;
  std::array<char, 4096> buffer;
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) out.append(buffer.data(), n);
  const int status = pclose(pipe);
  out = std::regex_replace(out, std::regex(R"re("([a-z0-9_]+)": "--\1")re"), "\"$1\": \"settings\"");
  return {out, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

void expect_same(Verb verb, const std::string& request, const std::string& args) {
  const Handle answer = ask(verb, request);
  const auto [out, code] = command(args);
  size_t size = 0;
  EXPECT_EQ(plimsoll_answer_json(answer.get(), &size) + std::string("\n"), out) << request << plimsoll_answer_message(answer.get());
  EXPECT_EQ(size + 1, out.size());
  EXPECT_EQ(plimsoll_answer_code(answer.get()), code) << request;
  EXPECT_STREQ(plimsoll_answer_message(answer.get()), "");
}

// An error with `code` whose message and hint have every one of `words`; the document says the same.
void expect_error(Verb verb, const std::string& request, int code, std::initializer_list<const char*> words) {
  const Handle answer = ask(verb, request);
  const std::string said = plimsoll_answer_message(answer.get()) + std::string(" | ") + plimsoll_answer_hint(answer.get());
  EXPECT_EQ(plimsoll_answer_code(answer.get()), code) << request << ": " << said;
  EXPECT_STREQ(plimsoll_answer_text(answer.get(), "/command"), "error") << plimsoll_answer_json(answer.get(), nullptr);
  EXPECT_STREQ(plimsoll_answer_text(answer.get(), "/message"), plimsoll_answer_message(answer.get()));
  EXPECT_STREQ(plimsoll_answer_text(answer.get(), "/hint"), plimsoll_answer_hint(answer.get()));
  int64_t said_code = -1;
  EXPECT_EQ(plimsoll_answer_integer(answer.get(), "/code", &said_code), 1);
  EXPECT_EQ(said_code, code) << request;
  for (const char* word : words) EXPECT_NE(said.find(word), std::string::npos) << request << ": no '" << word << "' in: " << said;
}

struct Folder {
  fs::path path = fs::temp_directory_path() /
                  ("plimsoll_api_" + std::to_string(getpid()) + "_" + ::testing::UnitTest::GetInstance()->current_test_info()->name());
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

const std::string kData = std::string(PLIMSOLL_SOURCE_DIR) + "/tests/data/";

TEST(Library, EstimatesAsTheCommandDoes) {
  expect_same(plimsoll_estimate, R"({"run": "gpt2", "settings": {"batch": 2, "seq": 128}})", "estimate gpt2 --batch 2 --seq 128");
  expect_same(plimsoll_estimate, R"({"run": "gpt2", "settings": {"batch": 2, "seq": 128, "precision": "bf16", "lora": {"r": 8}},
                                     "gpu": "rtx-4090,24GiB", "in_use": "500MiB", "top": 3})",
              "estimate gpt2 --batch 2 --seq 128 --precision bf16 --lora r=8 --gpu rtx-4090,24GiB --in-use 500MiB --top 3");
  expect_same(plimsoll_estimate, R"({"run": "gpt2", "settings": {"batch": 2, "seq": 64}, "gpu": ["1GiB"], "what_if": true})",
              "estimate gpt2 --batch 2 --seq 64 --gpu 1GiB --what-if");
  expect_same(plimsoll_estimate, R"({"run": "gpt2", "settings": {"seq": 64, "workers": 2}, "host_memory": "16GiB", "unified": 34359738368,
                                     "margin": 0.05, "rule_of_thumb": true})",
              "estimate gpt2 --seq 64 --workers 2 --host-memory 16GiB --unified 32GiB --margin 0.05 --rule-of-thumb");
}

TEST(Library, ReadsFilesAndCommands) {
  const Folder folder;
  const std::string file = (folder.path / "run.yaml").string();
  std::ofstream(file) << "model: gpt2\nbatch: 2\nseq: 64\n";
  expect_same(plimsoll_explain, Json{{"run", file}}.dump(), "explain " + file);
  expect_same(plimsoll_estimate, Json{{"job", file}}.dump(), "estimate --job " + file);
  expect_same(
      plimsoll_explain,
      R"({"run": ["python", "train.py", "--model_name_or_path", "gpt2", "--per_device_train_batch_size", "2"], "gpu": "a100-80gb"})",
      "explain --gpu a100-80gb --ascii -- python train.py --model_name_or_path gpt2 --per_device_train_batch_size 2");
}

TEST(Library, ComparesAsTheCommandDoes) {
  expect_same(plimsoll_compare, R"({"jobs": ["gpt2", "gpt2-medium"], "settings": {"seq": 64}, "gpu": "8GiB"})",
              "compare gpt2 gpt2-medium --seq 64 --gpu 8GiB");
  expect_same(plimsoll_compare, R"({"jobs": ["gpt2"], "settings": {"seq": 64}, "vary": {"batch": [1, 2], "checkpointing": [false, true]}})",
              "compare gpt2 --seq 64 --vary batch=1,2 --vary checkpointing=false,true");
  const Handle named = ask(plimsoll_compare, R"({"settings": {"seq": 64, "batch": 4}, "jobs": [
      {"name": "small", "run": "gpt2", "settings": {"batch": 1}}, {"name": "large", "run": "gpt2"}]})");
  ASSERT_EQ(plimsoll_answer_code(named.get()), PLIMSOLL_OK) << plimsoll_answer_message(named.get());
  EXPECT_STREQ(plimsoll_answer_text(named.get(), "/jobs/0/name"), "small");
  expect_error(plimsoll_compare, R"({"jobs": ["gpt2"]})", 2, {"nothing to be compared with"});
  expect_error(plimsoll_compare, R"({"jobs": ["gpt2"], "vary": {"batch": 4}})", 5, {"batch", "[1, 2, 4]"});
  expect_error(plimsoll_compare, R"({"jobs": ["gpt2"], "vary": {"batch": []}})", 5, {"batch"});
  expect_error(plimsoll_compare, R"({"jobs": [{"nam": "a"}, "gpt2"]})", 2, {"'nam'", "'name'"});
}

TEST(Library, AnswersAsTheAiToolkitDoes) {
  expect_same(ask_ai_toolkit, R"({"arch": "flux", "resolution": 512, "vram": 24, "checkpointing": false})",
              "ai-toolkit --arch flux --resolution 512 --vram 24 --no-checkpointing");
  expect_same(ask_ai_toolkit, R"({"batch": 2, "workers": 4, "ema": true, "quantization": "8bit", "checkpointing": true})",
              "ai-toolkit --batch 2 --workers 4 --ema --quantization 8bit --checkpointing");
  expect_error(ask_ai_toolkit, R"({"vrm": 24})", 2, {"'vrm'", "'vram'"});
  expect_error(plimsoll_plan, R"({"rules": "ai-toolkit", "vram": 24})", 2, {"'rules'", "plimsoll ai-toolkit"});
}

TEST(Library, PlansAsTheCommandDoes) {
  expect_same(plimsoll_plan, R"({"run": "resnet50", "settings": {"batch": 64}, "gpu": "rtx-3060-12gb", "keep": ["precision"]})",
              "plan resnet50 --batch 64 --gpu rtx-3060-12gb --keep precision");
  expect_error(plimsoll_plan, R"({"run": "gpt2", "gpu": "rtx-4090", "gaol": "memory"})", 2, {"'gaol'", "'goal'"});
  expect_error(plimsoll_plan, R"({"run": "gpt2", "gpu": "rtx-4090", "flags": true, "diff": true})", 2, {"--flags", "--diff"});
  expect_error(plimsoll_plan, R"({"run": "gpt2", "gpu": "rtx-4090", "num_gpus": 0})", 5, {"num_gpus 0", "above 0"});
}

TEST(Library, PlansIntoFiles) {
  const Folder folder;
  const std::string file = (folder.path / "run.yaml").string(), written = (folder.path / "new.yaml").string();
  std::ofstream(file) << "model: resnet18  # small\nbatch: 64\n";
  const Json question{{"run", file}, {"gpu", "2GiB"}};
  const auto with = [&](const char* key, const Json& value) {
    Json q = question;
    q[key] = value;
    return q.dump();
  };
  expect_same(plimsoll_plan, with("diff", true), "plan " + file + " --gpu 2GiB --diff");
  expect_same(plimsoll_plan, with("flags", true), "plan " + file + " --gpu 2GiB --flags");
  const Handle answer = ask(plimsoll_plan, with("write", written));
  ASSERT_EQ(plimsoll_answer_code(answer.get()), PLIMSOLL_OK) << plimsoll_answer_message(answer.get());
  int64_t planned = 0, needed = 0;
  EXPECT_EQ(plimsoll_answer_integer(answer.get(), "/plan/device_peak/bytes", &planned), 1);
  EXPECT_EQ(plimsoll_answer_integer(answer.get(), "/as_written/device_peak/bytes", &needed), 1);
  EXPECT_EQ(planned, needed);
  expect_error(plimsoll_plan, with("write", written), 2, {"new.yaml"});  // what a user may have edited since stays
}

TEST(Library, TablesHaveTheCommand) {
  const Handle table = ask(plimsoll_plan, R"({"run": "resnet18", "settings": {"batch": 64}, "gpu": "2GiB,24GiB"})");
  const char* command = plimsoll_answer_text(table.get(), "/plans/1/command");
  ASSERT_NE(command, nullptr);
  EXPECT_TRUE(std::string(command).starts_with("plimsoll estimate resnet18")) << command;
}

TEST(Library, ReplaysAsTheCommandDoes) {
  const std::string snapshot = kData + "fragmented.pickle";
  expect_same(plimsoll_replay, Json{{"file", snapshot}}.dump(), "replay " + snapshot);
  expect_same(plimsoll_replay, Json{{"file", snapshot}, {"alloc_conf", "expandable_segments:True"}, {"device_memory", "24GiB"}}.dump(),
              "replay " + snapshot + " --alloc-conf expandable_segments:True --device-memory 24GiB");
  const Folder folder;
  const std::string trace = (folder.path / "run.trace").string();
  const Handle saved = ask(plimsoll_estimate, Json{{"run", "gpt2"}, {"settings", {{"seq", 64}}}, {"save_trace", trace}}.dump());
  ASSERT_EQ(plimsoll_answer_code(saved.get()), PLIMSOLL_OK) << plimsoll_answer_message(saved.get());
  expect_same(plimsoll_replay, Json{{"file", trace}, {"device_memory", 1 << 30}}.dump(), "replay " + trace + " --device-memory 1GiB");
  expect_error(plimsoll_replay, "{}", 2, {"no file"});
  expect_error(plimsoll_replay, R"({"file": "/nowhere"})", 5, {"/nowhere"});
  expect_error(plimsoll_replay, Json{{"file", trace}, {"device", -1}}.dump(), 5, {"-1"});
}

TEST(Library, ListsAsTheCommandDoes) {
  for (const char* what : {"models", "presets", "optimizers", "settings", "gpus", "overheads"})
    expect_same(plimsoll_list, Json{{"what", what}}.dump(), std::string("list ") + what);
  expect_error(plimsoll_list, R"({"what": "gpu"})", 2, {"'gpu'", "'gpus'"});
  EXPECT_STREQ(plimsoll_version(), "0.1.0");
}

TEST(Library, NamesWhatIsWrong) {
  expect_error(plimsoll_estimate, R"({"rum": "gpt2"})", 2, {"'rum'", "did you mean 'run'"});
  expect_error(plimsoll_estimate, R"({"run": 8})", 5, {"run 8", "a file"});
  expect_error(plimsoll_estimate, R"({"run": ["python", 3]})", 5, {"run"});
  expect_error(plimsoll_estimate, R"({"run": "gpt2", "settings": 8})", 5, {"settings 8"});
  expect_error(plimsoll_estimate, R"({"run": "gpt2", "settings": {"bach": 8}})", 5, {"'bach'", "did you mean 'batch'"});
  expect_error(plimsoll_estimate, R"({"run": "gpt2", "settings": {"batch": "many"}})", 5, {"batch", "many"});
  expect_error(plimsoll_estimate, R"({"run": "gpt2", "what_if": "perhaps"})", 5, {"what_if", "perhaps"});
  expect_error(plimsoll_estimate, R"({"run": "gpt2", "gpu": "rtx-4091"})", 5, {"rtx-4091"});
  expect_error(plimsoll_estimate, R"({"run": "gpt2", "gpus": "some"})", 5, {"gpus"});
  expect_error(plimsoll_estimate, R"({"run": "gpt2", "in_use": "1GiB"})", 2, {"without a device"});
  expect_error(plimsoll_estimate, R"({"run": "gpt2", "unified": "32GiB", "margin": 2})", 5, {"margin", "2"});
  expect_error(plimsoll_estimate, R"({"run": "gtp2"})", 5, {"gtp2", "gpt2"});
  expect_error(plimsoll_estimate, R"({"run": "gpt2", "top": -1})", 5, {"-1"});
}

TEST(Library, HugeNumbersAreErrors) {
  for (const char* batch : {"9223372036854775807", "18446744073709551616", "-1", "0", "1e300", "1e999"})
    expect_error(plimsoll_estimate, std::string(R"({"run": "gpt2", "settings": {"batch": )") + batch + "}}", 5, {});
  expect_error(plimsoll_estimate, R"({"run": "gpt2", "top": 9223372036854775807})", 5, {"9223372036854775807"});
  expect_error(plimsoll_estimate, R"({"run": "gpt2", "settings": {"batch": 2147483647, "seq": 2147483647}})", 5, {});
}

TEST(Library, WhatIsNoRequestIsAnError) {
  for (Verb verb : kVerbs) {
    const Handle nothing(verb(nullptr), plimsoll_answer_free);
    EXPECT_EQ(plimsoll_answer_code(nothing.get()), PLIMSOLL_USAGE);
    EXPECT_STRNE(plimsoll_answer_message(nothing.get()), "");
    expect_error(verb, "", 5, {"json"});
    expect_error(verb, "{\"run\": ", 5, {"request:1"});
    expect_error(verb, "{\"run\": \"\xff\xfe\"}", 5, {"json"});
    expect_error(verb, std::string(100000, '['), 5, {"deeper"});
    for (const char* other : {"null", "8", "[]", "\"gpt2\""}) {
      const Handle answer = ask(verb, other);
      EXPECT_EQ(plimsoll_answer_code(answer.get()), PLIMSOLL_USAGE) << other;
    }
  }
}

TEST(Library, NullIsNoAnswer) {
  EXPECT_EQ(plimsoll_answer_code(nullptr), PLIMSOLL_USAGE);
  size_t size = 1;
  EXPECT_STREQ(plimsoll_answer_json(nullptr, &size), "");
  EXPECT_EQ(size, 0u);
  EXPECT_STREQ(plimsoll_answer_message(nullptr), "");
  EXPECT_STREQ(plimsoll_answer_hint(nullptr), "");
  EXPECT_EQ(plimsoll_answer_integer(nullptr, "/a", nullptr), 0);
  EXPECT_EQ(plimsoll_answer_number(nullptr, "/a", nullptr), 0);
  EXPECT_EQ(plimsoll_answer_text(nullptr, "/a"), nullptr);
  EXPECT_EQ(plimsoll_answer_count(nullptr, ""), 0u);
  plimsoll_answer_free(nullptr);
}

TEST(Library, ValuesAreFoundByPointers) {
  const Handle answer = ask(plimsoll_estimate, R"({"run": "gpt2", "settings": {"seq": 64}, "gpu": "24GiB"})");
  int64_t parameters = 0;
  EXPECT_EQ(plimsoll_answer_integer(answer.get(), "/parameters", &parameters), 1);
  EXPECT_EQ(parameters, 124439808);
  double number = 0;
  EXPECT_EQ(plimsoll_answer_number(answer.get(), "/parameters", &number), 1);
  EXPECT_EQ(number, 124439808.0);
  EXPECT_STREQ(plimsoll_answer_text(answer.get(), "/fits/0/verdict"), "fits");
  EXPECT_EQ(plimsoll_answer_count(answer.get(), "/fits"), 1u);
  EXPECT_GT(plimsoll_answer_count(answer.get(), ""), 5u);
  for (const char* pointer :
       {"/fits/1/verdict", "/fits/-", "/fits/01", "/fits/x", "fits", "/~2", "/parameters/x", "/fits/99999999999999999999"}) {
    EXPECT_EQ(plimsoll_answer_text(answer.get(), pointer), nullptr) << pointer;
    EXPECT_EQ(plimsoll_answer_integer(answer.get(), pointer, &parameters), 0) << pointer;
    EXPECT_EQ(plimsoll_answer_count(answer.get(), pointer), 0u) << pointer;
  }
  EXPECT_EQ(plimsoll_answer_text(answer.get(), nullptr), nullptr);
  EXPECT_EQ(plimsoll_answer_text(answer.get(), "/parameters"), nullptr);
  EXPECT_EQ(parameters, 124439808);
}

TEST(Library, ThreadsDoNotMeet) {
  constexpr int kThreads = 8;
  const std::string requests[] = {R"({"run": "gpt2", "settings": {"seq": 64}, "gpu": "rtx-4090"})", R"({"run": "resnet18"})",
                                  R"({"run": "gtp2"})"};
  std::string alone[3];
  const auto said = [](const Handle& a) { return plimsoll_answer_json(a.get(), nullptr) + std::string(plimsoll_answer_message(a.get())); };
  for (int i = 0; i < 3; ++i) alone[i] = said(ask(plimsoll_estimate, requests[i]));
  std::array<std::string, kThreads> together;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&, t] { together[t] = said(ask(plimsoll_estimate, requests[t % 3])); });
  for (std::thread& t : threads) t.join();
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(together[t], alone[t % 3]);
}

TEST(CppHeader, WritesRequests) {
  EXPECT_EQ(plimsoll::Request("a\"b\\\n")
                .set("batch", 8)
                .set("clip", 0.5)
                .set("ema", true)
                .with("gpu", std::vector<plimsoll::Value>{"x", "y"})
                .json(),
            R"({"gpu":["x","y"],"run":"a\"b\\\u000a","settings":{"batch":8,"clip":0.5,"ema":true}})");
  EXPECT_EQ(plimsoll::Request().json(), "{}");
}

TEST(CppHeader, AnswersAndThrows) {
  const plimsoll::Answer answer = plimsoll::estimate(plimsoll::Request("gpt2").set("seq", 64).with("gpu", "24GiB"));
  EXPECT_TRUE(answer.fits());
  EXPECT_EQ(answer.integer("/parameters"), 124439808);
  EXPECT_EQ(answer.text("/fits/0/verdict"), "fits");
  EXPECT_FALSE(answer.text("/nothing").has_value());
  EXPECT_EQ(Json::parse(answer.json())["parameters"], 124439808);
  const plimsoll::Answer no = plimsoll::estimate(plimsoll::Request("gpt2").set("seq", 64).with("gpu", "1GiB"));
  EXPECT_EQ(no.code(), PLIMSOLL_NO);
  EXPECT_FALSE(no.fits());
  const plimsoll::Answer nothing_asked = plimsoll::estimate(plimsoll::Request("gpt2").set("seq", 64));
  EXPECT_EQ(nothing_asked.code(), PLIMSOLL_OK);
  EXPECT_FALSE(nothing_asked.fits());
  EXPECT_FALSE(plimsoll::list("models").fits());
  EXPECT_TRUE(plimsoll::estimate(plimsoll::Request("gpt2").set("seq", 64).with("host_memory", "64GiB")).fits());
  EXPECT_TRUE(plimsoll::plan(plimsoll::Request("resnet18").set("batch", 8).with("gpu", "8GiB")).fits());
  EXPECT_GT(plimsoll::list("models").count("/models"), 10u);
  try {
    plimsoll::explain("gtp2");
    FAIL() << "nothing was thrown";
  } catch (const plimsoll::Error& e) {
    EXPECT_EQ(e.code(), PLIMSOLL_BAD_INPUT);
    EXPECT_NE(e.hint().find("gpt2"), std::string::npos) << e.hint();
  }
}

TEST(Library, AnswersAnyVerbByItsName) {
  const Handle named(plimsoll_estimate(R"({"run": "gpt2"})"), plimsoll_answer_free),
      asked(plimsoll_ask("estimate", R"({"run": "gpt2"})"), plimsoll_answer_free);
  EXPECT_STREQ(plimsoll_answer_json(asked.get(), nullptr), plimsoll_answer_json(named.get(), nullptr));
  const std::string rows = std::string(PLIMSOLL_SOURCE_DIR) + "/tests/truth/ema.jsonl";
  const Handle score = ask(ask_score, Json{{"files", rows}}.dump());
  EXPECT_EQ(plimsoll_answer_code(score.get()), PLIMSOLL_OK) << plimsoll_answer_message(score.get());
  const Handle page = ask(ask_report, R"({"run": "gpt2", "settings": {"seq": 64}, "brief": true})");
  EXPECT_STREQ(plimsoll_answer_text(page.get(), "/kind"), "job");
  const Handle markdown = ask(ask_report, R"({"run": "gpt2", "settings": {"seq": 64}, "format": "markdown"})");
  EXPECT_STREQ(plimsoll_answer_text(markdown.get(), "/kind"), "document");
  const auto refused = [](const char* verb, const char* word) {
    const Handle answer(plimsoll_ask(verb, "{}"), plimsoll_answer_free);
    EXPECT_EQ(plimsoll_answer_code(answer.get()), PLIMSOLL_USAGE);
    EXPECT_NE(std::string(plimsoll_answer_message(answer.get()) + std::string(plimsoll_answer_hint(answer.get()))).find(word),
              std::string::npos)
        << plimsoll_answer_message(answer.get());
  };
  refused("estimat", "'estimate'");
  refused("watch", "command line");
  refused(nullptr, "NULL");
}

// What a call prints, on standard output and standard error together.
std::string printed(const std::function<void()>& call) {
  FILE* file = std::tmpfile();
  std::fflush(stdout);
  const int out = dup(1), err = dup(2);
  dup2(fileno(file), 1);
  dup2(fileno(file), 2);
  call();
  std::fflush(stdout);
  dup2(out, 1);
  dup2(err, 2);
  close(out);
  close(err);
  std::rewind(file);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

TEST(Library, PrintsNothing) {
  const Folder folder;
  const std::string file = (folder.path / "run.yaml").string(), log = (folder.path / "train.log").string();
  std::ofstream(file) << "model: resnet18\nbatch: 64\n";
  std::ofstream(log)
      << "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of "
         "which 1.00 GiB is free.\n";
  const std::pair<const char*, Json> calls[]{{"estimate", {{"run", "gpt2"}, {"gpu", "24GiB"}, {"what_if", true}}},
                                             {"plan", {{"run", file}, {"gpu", "2GiB"}}},
                                             {"plan", {{"run", file}, {"gpu", "2GiB"}, {"diff", true}}},
                                             {"plan", {{"run", file}, {"gpu", "2GiB"}, {"generate", "accelerate"}}},
                                             {"ai-toolkit", {{"vram", 24}}},
                                             {"compare", {{"run", "gpt2"}, {"vary", {{"batch", {1, 2}}}}}},
                                             {"explain", {{"run", log}, {"bundle", (folder.path / "help.tar").string()}}},
                                             {"explain", {{"run", file}, {"bundle", (folder.path / "run.tar").string()}}},
                                             {"report", {{"run", "gpt2"}, {"brief", true}}},
                                             {"list", {{"what", "gpus"}}},
                                             {"doctor", Json::object()},
                                             {"estimate", {{"run", "gtp2"}}}};
  for (const auto& [verb, request] : calls)
    EXPECT_EQ(printed([&] { plimsoll_answer_free(plimsoll_ask(verb, request.dump().c_str())); }), "") << verb << request;
  const Handle answer(plimsoll_ask("explain", Json{{"run", log}, {"bundle", (folder.path / "two.tar").string()}}.dump().c_str()),
                      plimsoll_answer_free);
  EXPECT_GT(plimsoll_answer_count(answer.get(), "/bundle/files"), 0u) << plimsoll_answer_json(answer.get(), nullptr);
}

TEST(Library, ReportsProgressAndCanBeCancelled) {
  const std::string request = R"({"run": "gpt2", "settings": {"batch": 32, "seq": 512}, "gpu": "rtx-3060-12gb"})";
  struct Seen {
    int64_t calls = 0, most = 1 << 30;
    std::string text;
  };
  const auto progress = [](void* context, int64_t done, int64_t, const char* text) {
    Seen& seen = *static_cast<Seen*>(context);
    EXPECT_GT(done, 0);
    seen.text = text;
    return ++seen.calls >= seen.most ? 1 : 0;
  };
  Seen whole;
  const plimsoll_callbacks watching{progress, &whole};
  const Handle answer(plimsoll_ask_with("plan", request.c_str(), &watching), plimsoll_answer_free);
  EXPECT_EQ(plimsoll_answer_code(answer.get()), PLIMSOLL_OK) << plimsoll_answer_message(answer.get());
  EXPECT_GT(whole.calls, 10);
  EXPECT_EQ(whole.text, "candidates executed");
  const Handle silent(plimsoll_plan(request.c_str()), plimsoll_answer_free);
  EXPECT_STREQ(plimsoll_answer_json(answer.get(), nullptr), plimsoll_answer_json(silent.get(), nullptr));
  Seen some;
  some.most = 5;
  const plimsoll_callbacks ending{progress, &some};
  const Handle cancelled(plimsoll_ask_with("plan", request.c_str(), &ending), plimsoll_answer_free);
  EXPECT_EQ(plimsoll_answer_code(cancelled.get()), PLIMSOLL_CANCELLED);
  EXPECT_STREQ(plimsoll_answer_message(cancelled.get()), "cancelled");
  EXPECT_EQ(some.calls, 5);
  Seen changes;
  changes.most = 2;
  const plimsoll_callbacks early{progress, &changes};
  const Handle what_if(plimsoll_ask_with("estimate", R"({"run": "gpt2", "settings": {"seq": 64}, "what_if": true})", &early),
                       plimsoll_answer_free);
  EXPECT_EQ(plimsoll_answer_code(what_if.get()), PLIMSOLL_CANCELLED);
  EXPECT_EQ(changes.text, "changes executed");
  EXPECT_EQ(changes.calls, 2);
  EXPECT_THROW(plimsoll::ask("compare",
                             plimsoll::Request("gpt2").with(
                                 "vary", std::map<std::string, plimsoll::Value>{{"batch", std::vector<plimsoll::Value>{1, 2}}}),
                             [](int64_t, int64_t, std::string_view) { return false; }),
               plimsoll::Error);
}

// Comments and examples of the headers name what is there.
TEST(Library, HeadersNamePointersThatExist) {
  const Handle answer = ask(plimsoll_estimate, R"({"run": "gpt2", "settings": {"seq": 64}, "gpu": "24GiB"})");
  const Json document = Json::parse(plimsoll_answer_json(answer.get(), nullptr));
  size_t found = 0;
  for (const char* name : {"include/plimsoll.h", "include/plimsoll.hpp", "docs/library.md"}) {
    std::ifstream in(std::string(PLIMSOLL_SOURCE_DIR) + "/" + name);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::regex pointer(R"re((integer|number|text|count|pointer \(RFC 6901\)|says_fits)(?:\(|: )"(/[a-z0-9_/]+)")re");
    for (auto it = std::sregex_iterator(text.begin(), text.end(), pointer); it != std::sregex_iterator(); ++it) {
      if ((*it)[1] == "says_fits") continue;  // of several verbs: tested by what fits() says
      EXPECT_TRUE(document.contains(Json::json_pointer((*it)[2].str()))) << name << ": " << (*it)[2];
      ++found;
    }
  }
  EXPECT_GE(found, 3u);
}

}  // namespace
