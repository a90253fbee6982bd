// How a log reaches `plimsoll explain`: a file, a pipe, pasted words; and what is no log. Then how far a long answer is.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hardware/lookup.h"
#include "plan/plan.h"
#include "support.h"
#include "util/progress.h"

namespace plimsoll::explain_input_test {
namespace {

namespace fs = std::filesystem;

struct Result {
  int code = -1;
  std::string out, err;
};

const std::string kMessage =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 15.57 GiB of which 2.44 MiB is "
    "free. "
    "Of the allocated memory 15.20 GiB is allocated by PyTorch, and 120.50 MiB is reserved by PyTorch but unallocated.";

class ExplainInput : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              ("plimsoll_explain_" + std::to_string(getpid()) + "_" + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  // `line`: as a shell reads it; PLIMSOLL in it is the program.
  Result shell(std::string line) const {
    for (size_t at; (at = line.find("PLIMSOLL")) != std::string::npos;) line.replace(at, 8, PLIMSOLL_BINARY);
    const std::string err_file = (folder_ / "stderr").string();
    FILE* pipe = popen(("{ " + line + "; } 2>'" + err_file + "'").c_str(), "r");
    Result r;
    char chunk[4096];
    while (const size_t n = fread(chunk, 1, sizeof chunk, pipe)) r.out.append(chunk, n);
    const int status = pclose(pipe);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    std::ifstream in(err_file);
    r.err.assign(std::istreambuf_iterator<char>(in), {});
    return r;
  }

  void expect_explained(const std::string& line) const {
    const Result r = shell(line);
    EXPECT_EQ(r.code, 0) << line << "\n" << r.err;
    EXPECT_NE(r.out.find("the device is full: tensors of this run hold 15.20 GiB of 15.57 GiB (98 %)"), std::string::npos) << line << r.out;
  }

  void expect_refused(const std::string& path, std::initializer_list<const char*> words) const {
    const Result r = shell("PLIMSOLL explain '" + path + "' </dev/null");
    EXPECT_EQ(r.code, 5) << path << "\n" << r.out << r.err;
    EXPECT_EQ(r.out, "") << path;
    for (const char* word : words) EXPECT_NE(r.err.find(word), std::string::npos) << path << ": no '" << word << "' in: " << r.err;
  }

  fs::path folder_;
};

TEST_F(ExplainInput, ComesFromAFileAPipeOrTheClipboard) {
  const std::string log = file("train.log", "step 3\n" + kMessage + "\n");
  expect_explained("PLIMSOLL explain " + log);
  expect_explained("PLIMSOLL explain < " + log);
  expect_explained("PLIMSOLL explain - < " + log);
  expect_explained("cat " + log + " | PLIMSOLL explain");
  expect_explained("PLIMSOLL explain '" + kMessage + "' </dev/null");
  expect_explained("PLIMSOLL explain " + kMessage + " </dev/null");
  expect_explained("PLIMSOLL explain '{\"error\": \"" + kMessage + "\"}' </dev/null");
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_explained("cat " + log + " > " + pipe + " & PLIMSOLL explain " + pipe);
}

TEST_F(ExplainInput, APastedErrorMayHaveItsRun) {
  const Result r = shell("PLIMSOLL explain '" + kMessage + "' --run gpt2 --seq 64 --json </dev/null");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(nlohmann::json::parse(r.out)["run"]["job"]["model"], "gpt2") << r.out;
}

// A script of one's own is no run that can be executed: the log is explained all the same, and its flags count as set.
TEST_F(ExplainInput, AnUnknownCommandIsLeftOut) {
  const std::string log = file("train.log", kMessage + "\n");
  const Result r = shell("PLIMSOLL explain " + log + " -- python mine.py --gradient_checkpointing --bf16 --batch_size 1 </dev/null");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("without the run: [command] mine.py"), std::string::npos) << r.err;
  for (const char* set : {"gradient checkpointing", "autocast", "smaller batch"}) EXPECT_EQ(r.out.find(set), std::string::npos) << r.out;
  const Result environment = shell("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True PLIMSOLL explain --json '" +
                                   std::string(kMessage).replace(kMessage.find("120.50 MiB"), 10, "1.90 GiB") + "' </dev/null");
  EXPECT_NE(environment.out.find("fragmentation: 1.90 GiB"), std::string::npos) << environment.out;
  EXPECT_EQ(environment.out.find("=expandable_segments:True"), std::string::npos) << environment.out;
}

TEST_F(ExplainInput, WhatIsNoLogIsNamedAndRefused) {
  expect_refused(file("train.py", "import torch\n\nprint(torch.cuda.is_available())\n"),
                 {"is a Python script", "plimsoll explain -- python"});
  expect_refused(file("requirements.txt", "torch==2.9\naccelerate\n"), {"a list of Python packages"});
  expect_refused(file("paper.pdf", "%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n"), {"a PDF"});
  expect_refused(file("demo.ipynb", R"({"cells": [], "nbformat": 4})"), {"a notebook"});
  expect_refused(file("letter.txt", "Dear all,\nthis is a letter.\n"), {"is no log", "2 lines", "plimsoll explain 'CUDA out of memory"});
  expect_refused(file("empty.txt", ""), {"empty"});
  const Result nothing = shell("PLIMSOLL explain </dev/null");
  EXPECT_EQ(nothing.code, 5);
  EXPECT_NE(nothing.err.find("nothing came from standard input"), std::string::npos) << nothing.err;
  EXPECT_EQ(shell("PLIMSOLL explain " + file("fine.log", "step 1 loss 2.0\nstep 2 loss 1.9\n")).code, 0) << "a log without an error";
}

TEST(ProgressText, SaysHowFarAndHowLong) {
  EXPECT_EQ(progress_text(0, 0, "", 3), "working, 3 s");
  EXPECT_EQ(progress_text(5, 25, "changes executed", 10), "5 of 25 changes executed, about 40 s more");
  EXPECT_EQ(progress_text(5, 105, "changes executed", 10), "5 of 105 changes executed, about 4 min more");
  EXPECT_EQ(progress_text(25, 25, "changes executed", 10), "25 of 25 changes executed");
  EXPECT_EQ(progress_text(7, 0, "rows scored", 10), "7 rows scored");
  EXPECT_EQ(progress_text(1 << 20, 1 << 21, "bytes read", 2), "50 % of bytes read, about 2 s more");
}

// Ended early, a plan is the best of what was executed.
TEST(UnfinishedPlan, IsTheBestSoFar) {
  PlanRequest request;
  request.job =
      job_of("gpt2", {{"config", {{"n_layer", 2}, {"n_embd", 64}, {"n_head", 4}, {"vocab_size", 500}}}, {"batch", 8}, {"seq", 128}});
  request.brief = true;
  const TargetDevice device = target_device(find_device("rtx-4090"));
  size_t told = 0, total = 0, enough = SIZE_MAX;
  request.progress = [&](size_t done, size_t of, const char*) {
    told = done, total = of;
    return done < enough;
  };
  ASSERT_TRUE(make_plans(request, {device}).front().best);
  enough = told - 1;
  EXPECT_THROW(make_plans(request, {device}), Cancelled) << "nobody asked for the best so far";
  request.keep_best = true;
  const Plan plan = make_plans(request, {device}).front();
  EXPECT_TRUE(plan.unfinished);
  ASSERT_TRUE(plan.best);
  EXPECT_EQ(plan.best->run.need.verdict, Verdict::fits);
  EXPECT_GE(total, told) << "how many are known to come";
}

}  // namespace
}  // namespace plimsoll::explain_input_test
