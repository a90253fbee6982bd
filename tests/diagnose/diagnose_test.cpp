// Logs and error texts: tests/data/oom holds real ones with what must be read from them, and texts that only mention memory. Then what
// follows from them, the archive for a request for help, and hostile input.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "diagnose/diagnosis.h"
#include "diagnose/log_stream.h"
#include "diagnose/needles.h"
#include "diagnose/printed_size.h"
#include "diagnose/redact.h"
#include "diagnose/tar.h"
#include "report/diagnosis_report.h"
#include "report/help_bundle.h"
#include "shown.h"
#include "support.h"

namespace plimsoll::diagnose_test {
namespace {

const std::string kFolder = std::string(PLIMSOLL_SOURCE_DIR) + "/tests/data/oom/";
constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;

std::string text_of(const std::string& name) {
  std::ifstream in(kFolder + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

Diagnosis diagnosis_of(const std::string& text) {
  std::istringstream in(text);
  return diagnose(in);
}

nlohmann::ordered_json json_of(const std::string& text) { return diagnosis_json(diagnosis_of(text)); }

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool any_holds(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(), [&](const std::string& t) { return holds(t, part); });
}

const std::string kOom =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.57 GiB of which 1.00 GiB is "
    "free. "
    "Including non-PyTorch memory, this process has 14.50 GiB memory in use. Of the allocated memory 13.50 GiB is allocated by PyTorch, "
    "and 500.00 "
    "MiB is reserved by PyTorch but unallocated.\n";

TEST(PrintedSizes, AreReadAsTheyAreMeant) {
  EXPECT_EQ(printed_size("20.00 MiB")->bytes, 20 * kMiB);
  EXPECT_EQ(printed_size("2.00GiB (rounded")->bytes, 2 * kGiB);
  EXPECT_EQ(printed_size("21.95G of")->bytes, 23568633037);
  EXPECT_EQ(printed_size("0B")->bytes, 0);
  EXPECT_EQ(printed_size("116813856768 bytes")->bytes, 116813856768);
  EXPECT_EQ(printed_size("26,184,840kB,")->bytes, 26184840LL * 1024);
  EXPECT_EQ(printed_size("926. GiB")->bytes, 926 * kGiB);
  EXPECT_EQ(printed_size(": 2.94 MiB")->bytes, 3082813);
  EXPECT_FALSE(printed_size("17179869184.00 GiB"));  // 2^64: PyTorch's "no limit"
  EXPECT_FALSE(printed_size("12"));
  EXPECT_FALSE(printed_size("GiB"));
  EXPECT_FALSE(printed_size("1234567890123456789012 bytes"));
  EXPECT_EQ(size_before("of which 2.44 MiB is free", " is free"), 2558525);
  EXPECT_FALSE(size_before("none is free", " is free"));
}

TEST(Needles, AreAllFoundInOnePass) {
  const Needles needles({"he", "she", "hers", "her"});
  std::multimap<size_t, size_t> found;
  needles.search("ushers", [&](size_t word, size_t end) { found.emplace(word, end); });
  EXPECT_EQ(found, (std::multimap<size_t, size_t>{{0, 4}, {1, 4}, {2, 6}, {3, 5}}));
}

TEST(Diagnose, ReadsEveryRealText) {
  std::ifstream in(kFolder + "expected.jsonl");
  std::string line;
  int ooms = 0, others = 0;
  while (std::getline(in, line)) {
    const auto expected = nlohmann::json::parse(line);
    const std::string name = expected["file"];
    const auto got = json_of(text_of(name));
    for (const auto& [key, value] : expected.items()) {
      if (key == "file" || key == "source") continue;
      if (key == "frame") {
        const std::string place =
            std::filesystem::path(got["frame"]["file"].get<std::string>()).filename().string() + ":" + got["frame"]["line"].dump();
        EXPECT_EQ(place, value.get<std::string>()) << name;
      } else {
        EXPECT_EQ(nlohmann::json(got[key]), value) << name << ": " << key;
      }
    }
    expected["is_oom"].get<bool>() ? ++ooms : ++others;
    EXPECT_EQ(got["causes"].empty(), got["symptom"].is_null()) << name;
    EXPECT_EQ(got["fixes"].empty(), got["symptom"].is_null()) << name;
    EXPECT_EQ(got["schema"], 3);
  }
  EXPECT_GE(ooms, 60);
  EXPECT_GE(others, 25);
}

// The same text in other clothes says the same.
TEST(Diagnose, PrefixesColoursAndLineEndsDoNotMatter) {
  const auto plain = json_of(kOom);
  for (const std::string prefix : {"[rank3]: ", "[1,3]<stderr>: ", "3: ", "(RayTrainWorker rank=3 pid=12, ip=10.0.0.1) ", "[default3]:"}) {
    const auto got = json_of(prefix + kOom);
    EXPECT_EQ(got["rank"], 3) << prefix;
    EXPECT_EQ(got["tried_bytes"], plain["tried_bytes"]) << prefix;
  }
  EXPECT_EQ(json_of("10%|#  | 5/50 [00:10<01:30,  2.0s/it]\r 12%|#  | 6/50 [00:12<01:28,  2.0s/it]\n" + kOom)["progress"]["done"], 6);
  std::string wide = "\xff\xfe";  // UTF-16, as PowerShell writes it
  for (const char c : kOom) wide += c, wide += '\0';
  EXPECT_EQ(json_of(wide)["tried_bytes"], plain["tried_bytes"]);
  for (const char* quote : {"\"", "`", "> ", "train.log:12:", "msg=\""}) EXPECT_EQ(json_of(quote + kOom)["is_oom"], true) << quote;
  EXPECT_EQ(json_of("{\"message\": {\"message\": \"OutOfMemoryError: " + kOom.substr(24, kOom.size() - 25) + "\"}}")["is_oom"], true);
}

// Docker's lines, a structured logger's records with the traceback inside, torchrun's error file.
TEST(Diagnose, RecordsOfLoggersStandForTheirText) {
  const auto record = [](const std::string& field, const std::string& text) {
    return nlohmann::json{{field, text}, {"stream", "stderr"}, {"time", "2024-05-01T10:00:00.1Z"}}.dump() + "\n";
  };
  const auto plain = json_of(kOom);
  const std::string frame = "  File \"/app/train.py\", line 88, in <module>\n", statement = "    loss.backward()\n";
  const auto docker = json_of(record("log", "step 7\n") + record("log", "Traceback (most recent call last):\n") + record("log", frame) +
                              record("log", statement) + record("log", kOom));
  const auto inside = json_of(record("message", "failed\nTraceback (most recent call last):\n" + frame + statement + kOom));
  for (const auto& got : {docker, inside}) {
    EXPECT_EQ(got["tried_bytes"], plain["tried_bytes"]);
    EXPECT_EQ(got["reserved_bytes"], plain["reserved_bytes"]);
    EXPECT_EQ(got["phase"], "backward");
    EXPECT_EQ(got["frame"]["line"], 88);
  }
  EXPECT_EQ(docker["line"], 5);
  EXPECT_EQ(inside["line"], 1);
  EXPECT_EQ(json_of("{\"message\": {\"message\": \"" + kOom.substr(0, kOom.size() - 1) + "\"}}\n")["is_oom"], true);
  EXPECT_EQ(json_of("{\"on_oom\": \"CUDA out of memory\", \"batch\": 8}\n")["is_oom"], false);  // a setting
  EXPECT_EQ(json_of("{\"message\": broken " + kOom)["tried_bytes"], plain["tried_bytes"]);
}

TEST(Diagnose, TimesBeforeALineDoNotMatter) {
  for (const char* time : {"2024-05-01T12:00:00.123456789Z ", "2024-05-01 12:00:00,123 ", "2024-05-01T12:00:00.1+02:00 stderr F "}) {
    const std::string log = std::string(time) + "  File \"/w/t.py\", line 3, in f\n" + time + "    loss.backward()\n" + time + kOom;
    EXPECT_EQ(json_of(log)["phase"], "backward") << time;
    EXPECT_EQ(json_of(std::string(time) + "Killed\n")["symptom"], "sigkill") << time;
    EXPECT_EQ(json_of(std::string(time) + "[rank3]: " + kOom)["rank"], 3) << time;
  }
  EXPECT_EQ(json_of("ERROR 04-09 05:39:54 [core.py:390]   File \"/w/t.py\", line 3, in evaluate\nERROR 04-09 05:39:54 [core.py:390] " +
                    kOom)["phase"],
            "evaluation");
}

TEST(Diagnose, WideCharactersWithoutAMarkAreRead) {
  for (const bool little : {true, false}) {
    std::string wide;
    for (const char c : "start\r\n" + kOom) wide += little ? std::string{c, '\0'} : std::string{'\0', c};
    EXPECT_EQ(json_of(wide)["tried_bytes"], 2 * kGiB) << little;
  }
}

TEST(Diagnose, TheFirstIsTheCauseAndTheRestIsCounted) {
  const Diagnosis d =
      diagnosis_of("step 1 loss 2.0\n[rank1]: " + kOom + "[rank0]: " + kOom + "[rank2]: RuntimeError: CUDA error: out of memory\n");
  EXPECT_EQ(d.rank, 1);
  EXPECT_EQ(d.line, 2);
  EXPECT_EQ(d.occurrences, 2) << "the same message of another rank is no other";
  EXPECT_EQ(d.ranks, (std::vector<int>{0, 1, 2}));
  EXPECT_FALSE(d.recovered);
}

TEST(Diagnose, AMessageThatIsPrintedTwiceIsOne) {
  EXPECT_EQ(diagnosis_of(kOom + "Traceback (most recent call last):\n  File \"t.py\", line 1, in main\n    f()\n" + kOom).occurrences, 1);
  std::string wrapped = kOom;
  for (const char* word : {" Tried", " Including", " Of the allocated"}) wrapped.replace(wrapped.find(word), 1, "\n");
  EXPECT_EQ(diagnosis_of(wrapped).occurrences, 1);
  EXPECT_EQ(diagnosis_of("step 3\n" + kOom + "step 4\nstep 5\n" + kOom).occurrences, 2) << "it was caught, and came again";
}

TEST(Diagnose, HeadingsOfATextAreNoSteps) {
  const Diagnosis d = diagnosis_of("## Step 3: start\n" + kOom + "## Step 10: try again\n**Step 11**\n");
  EXPECT_FALSE(d.progress);
  EXPECT_FALSE(d.recovered);
}

// As people paste it.
TEST(Diagnose, OtherFormsSayTheSame) {
  const auto plain = json_of(kOom);
  const auto expect_same = [&](const std::string& text, const std::string& what) {
    const auto got = json_of(text);
    for (const char* key : {"is_oom", "tried_bytes", "total_bytes", "free_bytes", "allocated_bytes", "reserved_bytes", "occurrences"})
      EXPECT_EQ(got[key], plain[key]) << what << ": " << key << "\n" << text;
  };
  for (const size_t width : {72u, 80u, 101u}) {  // a terminal that breaks in the middle of words
    std::string wrapped = kOom.substr(0, kOom.size() - 1);
    for (size_t at = width; at < wrapped.size(); at += width + 1) wrapped.insert(at, "\n");
    expect_same(wrapped, "wrapped");
    std::string commented = "# " + wrapped;
    for (size_t at = 0; (at = commented.find('\n', at)) != std::string::npos; at += 3) commented.insert(at + 1, "# ");
    expect_same(commented, "wrapped and commented");
  }
  for (const char* marker : {"# ", "> ", "// ", "-- ", "    # "}) expect_same(marker + kOom, marker);
  const std::string message = kOom.substr(0, kOom.size() - 1);
  expect_same(nlohmann::json{{"error", message}}.dump(), "body");
  expect_same(nlohmann::json{{"status", 500}, {"result", {{"detail", {{{"msg", message}}}}}}}.dump(2), "body on several lines");
  expect_same(nlohmann::json{{"cells", {{{"outputs", {{{"traceback", {message}}}}}}}}, {"nbformat", 4}}.dump(1), "notebook");
  for (const char* prefix : {"2024-05-01T12:00:00.123456789Z ", "2024-05-01 12:00:00,123 ", "\x1b[31m", "2024-05-01T12:00:00.1Z stderr F "})
    expect_same(prefix + kOom, prefix);
  // A mention stays one.
  EXPECT_FALSE(diagnosis_of("# RuntimeError: CUDA out of memory.\n").is_oom());
  EXPECT_FALSE(diagnosis_of("{\"note\": \"what to do when CUDA is out of memory\"}").is_oom());
}

// The class tells enough where its message is not known.
TEST(Diagnose, ExceptionsWithoutKnownMessages) {
  EXPECT_EQ(diagnosis_of("torch.OutOfMemoryError: Allocation on device\nGot an OOM, unloading all loaded models.\n").symptom->kind,
            "pytorch_cuda");
  EXPECT_EQ(diagnosis_of("java.lang.OutOfMemoryError: Java heap space\n").symptom->memory, Memory::host);
  EXPECT_EQ(diagnosis_of("MemoryError\n").symptom->kind, "python_memory");
  EXPECT_EQ(diagnosis_of("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n").symptom->memory,
            Memory::host);
  EXPECT_FALSE(diagnosis_of("Note: 'CUDA out of memory' errors can be avoided.\ndocs say exit code 137 means much\n").is_oom());
  EXPECT_FALSE(diagnosis_of("catching OutOfMemoryError is on\nMemoryErrors: 0\n").is_oom());
}

TEST(Diagnose, AnErrorThatSaysSoComesBeforeASignal) {
  const Diagnosis d = diagnosis_of("Killed\n" + kOom);
  EXPECT_EQ(d.symptom->kind, "pytorch_cuda");
  EXPECT_EQ(d.occurrences, 2);
}

TEST(Diagnose, ARunThatWentOnIsSaidToHave) {
  const Diagnosis d = diagnosis_of("step 10\n" + kOom + "step 11\nstep 12\n");
  EXPECT_TRUE(d.is_oom());
  EXPECT_TRUE(d.recovered);
  // The driver refuses TensorFlow's first wish; it asks for less and trains.
  const std::string wish =
      "E tensorflow/stream_executor/cuda/cuda_driver.cc:825] failed to allocate 7.43G (7980000000 bytes) from device: "
      "CUDA_ERROR_OUT_OF_MEMORY: out of memory\n";
  EXPECT_TRUE(diagnosis_of(wish).is_oom());
  EXPECT_FALSE(diagnosis_of(wish + "step 1\nstep 2\n").is_oom());
}

TEST(Diagnose, TracebacksTellThePhaseAndTheUsersLine) {
  const auto traceback = [](const std::string& inner) {
    return "Traceback (most recent call last):\n  File \"/work/train.py\", line 12, in main\n    fit(model)\n" + inner + kOom;
  };
  const Diagnosis backward =
      diagnosis_of(traceback("  File \"/work/loop.py\", line 40, in fit\n    loss.backward()\n  File "
                             "\"/opt/env/lib/python3.11/site-packages/torch/_tensor.py\", line 581, in backward\n"));
  EXPECT_EQ(backward.phase, "backward");
  ASSERT_TRUE(backward.traceback.users());
  EXPECT_EQ(backward.traceback.users()->file, "/work/loop.py");
  EXPECT_EQ(backward.traceback.users()->statement, "loss.backward()");
  EXPECT_EQ(diagnosis_of(traceback("  File \"/work/loop.py\", line 41, in fit\n    optimizer.step()\n")).phase, "optimizer step");
  EXPECT_EQ(
      diagnosis_of(traceback("  File \"/opt/site-packages/transformers/modeling_utils.py\", line 9, in from_pretrained\n    x\n")).phase,
      "loading");
  EXPECT_EQ(diagnosis_of(traceback("  File \"/work/loop.py\", line 50, in evaluate\n    model(x)\n")).phase, "evaluation");
  EXPECT_EQ(
      diagnosis_of(traceback("  File \"/opt/site-packages/transformers/models/llama/modeling_llama.py\", line 9, in forward\n    x\n"))
          .phase,
      "forward");
  EXPECT_EQ(diagnosis_of(kOom).phase, "");
}

TEST(Diagnose, CausesFollowTheNumbers) {
  EXPECT_TRUE(diagnosis_of(text_of("pytorch-1.7-fragmented.txt")).causes[0].starts_with("fragmentation"));
  const Diagnosis large = diagnosis_of(text_of("pytorch-2.1-other-process.txt"));
  EXPECT_TRUE(large.causes[0].starts_with("one tensor larger than the device"));
  EXPECT_TRUE(large.causes[1].starts_with("other processes"));
  EXPECT_TRUE(any_holds(diagnosis_of(text_of("pytorch-2.5-guide-wrapped.txt")).causes, "1 MiB at most"));
  EXPECT_TRUE(any_holds(diagnosis_of("step 400\n" + kOom).causes, "memory grew"));
  EXPECT_FALSE(any_holds(diagnosis_of("  0%| | 0/500 [00:00<?, ?it/s]\n" + kOom).causes, "memory grew"));
  const Diagnosis fragmented = diagnosis_of(text_of("pytorch-1.7-fragmented.txt"));
  EXPECT_EQ(fragmented.fixes[0].flags, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  // A message without the process's own size: what is not free and not reserved may be a CUDA context.
  EXPECT_FALSE(any_holds(diagnosis_of(text_of("pytorch-1.5-reserved.txt")).causes, "other processes"));
  const Diagnosis any = diagnosis_of(kOom);
  std::vector<std::string> changes;
  for (const Fix& f : any.fixes) changes.push_back(f.change);
  for (const char* part : {"smaller batch", "checkpointing", "shorter", "smaller model", "on the CPU", "part of the data", "rented"})
    EXPECT_TRUE(any_holds(changes, part)) << part;
}

std::string full_device_text(const std::string& idle) {
  return "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 15.57 GiB of which 2.44 "
         "MiB "
         "is free. Including non-PyTorch memory, this process has 15.55 GiB memory in use. Of the allocated memory 15.20 GiB is allocated "
         "by "
         "PyTorch, and " +
         idle +
         " is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n";
}

TEST(Diagnose, AFullDeviceIsAFullDevice) {
  const Diagnosis full = diagnosis_of(full_device_text("120.50 MiB"));
  EXPECT_EQ(full.causes[0].substr(0, 82), "the device is full: tensors of this run hold 15.20 GiB of 15.57 GiB (98 %); the 2.");
  EXPECT_FALSE(any_holds(full.causes, "fragmentation: ")) << "0.8 % is what an allocator keeps around";
  EXPECT_FALSE(any_holds(full.causes, "the driver refused")) << "0.44 MiB more than was asked for is nothing";
  EXPECT_NE(full.fixes[0].flags, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  EXPECT_EQ(json_of(full_device_text("120.50 MiB"))["fragmentation"], "yes") << "what the numbers say stays";
  // A tenth of what is reserved, and enough for what was asked for.
  EXPECT_FALSE(diagnosis_of(full_device_text("1.68 GiB")).fragmented());
  EXPECT_TRUE(diagnosis_of(full_device_text("1.70 GiB")).fragmented());
  EXPECT_TRUE(diagnosis_of(full_device_text("1.70 GiB")).causes[0].starts_with("fragmentation: 1.70 GiB"));
  // Half of the device is free: then the driver has a reason of its own.
  EXPECT_TRUE(any_holds(diagnosis_of(text_of("cellpose.txt")).causes, "the driver refused"));
}

TEST(Diagnose, NobodyIsToldToSetWhatIsSet) {
  const auto told = [](const Diagnosis& d, const std::string& part) {
    return std::any_of(d.fixes.begin(), d.fixes.end(), [&](const Fix& f) { return holds(f.change + f.flags, part); });
  };
  const std::string fragmented = full_device_text("1.70 GiB");
  EXPECT_TRUE(told(diagnosis_of(fragmented), "expandable_segments")) << "PyTorch's own advice is no setting";
  EXPECT_FALSE(told(diagnosis_of("+ export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" + fragmented), "expandable_segments"));
  const Diagnosis any = diagnosis_of(kOom);
  for (const char* part : {"gradient checkpointing", "a smaller batch", "autocast"}) EXPECT_TRUE(told(any, part)) << part;
  EXPECT_FALSE(told(diagnosis_of("  gradient_checkpointing=True,\n" + kOom), "gradient checkpointing"));
  EXPECT_FALSE(told(diagnosis_of("+ python t.py --gradient_checkpointing --bf16 true\n" + kOom), "gradient checkpointing"));
  EXPECT_FALSE(told(diagnosis_of("+ python t.py --gradient_checkpointing --bf16 true\n" + kOom), "autocast"));
  EXPECT_TRUE(told(diagnosis_of("  gradient_checkpointing=False, bf16=False\n" + kOom), "gradient checkpointing"));
  EXPECT_FALSE(told(diagnosis_of("{'per_device_train_batch_size': 1}\n" + kOom), "a smaller batch"));
  EXPECT_TRUE(told(diagnosis_of("{'per_device_train_batch_size': 16}\n" + kOom), "a smaller batch"));
}

TEST(Diagnose, ThreeChangesAreShownAndAllAreThere) {
  const Diagnosis d = diagnosis_of(kOom);
  const std::string brief = shown(diagnosis_document(d)), all = shown(diagnosis_document(d, true));
  EXPECT_TRUE(holds(brief, "  3.") && !holds(brief, "  4.")) << brief;
  EXPECT_TRUE(holds(brief, std::to_string(d.fixes.size() - 3) + " more: -v. What each saves is computed for the command")) << brief;
  EXPECT_TRUE(holds(all, std::to_string(d.fixes.size()) + ".  " + d.fixes.back().change)) << all;
  EXPECT_EQ(diagnosis_json(d)["fixes"].size(), d.fixes.size());
}

TEST(Diagnose, WhatIsNoLogIsKnown) {
  for (const char* text :
       {"step 4 loss 2.1\n", "2024-05-01 12:00:00,123 start\n", "Traceback (most recent call last):\n", "Killed\n", "WARNING: slow\n"})
    EXPECT_TRUE(diagnosis_of(text).is_log) << text;
  for (const char* text : {"torch==2.9\nnumpy\n", "Dear all,\nthis is a letter.\n", "", "import torch\nprint(torch)\n"})
    EXPECT_FALSE(diagnosis_of(text).is_log) << text;
}

TEST(Diagnose, EndedEarlyItHasWhatWasExecuted) {
  const Job job =
      job_of("gpt2", {{"config", {{"n_layer", 2}, {"n_embd", 64}, {"n_head", 4}, {"vocab_size", 20000}}}, {"batch", 8}, {"seq", 128}});
  Diagnosis d = diagnosis_of(
      "RuntimeError: CUDA out of memory. Tried to allocate 80.00 MiB (GPU 0; 600.00 MiB total capacity; 300.00 MiB already allocated; "
      "10.00 MiB free; 310.00 MiB reserved in total by PyTorch)\n");
  size_t total = 0;
  EXPECT_FALSE(add_run(d, job, {}, [&](size_t done, size_t of, const char*) {
    total = of;
    return done < 4;
  }));
  ASSERT_TRUE(d.run);
  EXPECT_TRUE(d.run->unfinished);
  EXPECT_GT(total, 10u) << "how many there are is known from the beginning";
  EXPECT_GE(d.run->what_if.effects.size(), 4u);
  EXPECT_LT(d.run->what_if.effects.size(), total);
  EXPECT_TRUE(any_holds(d.causes, "the run needs more than the device has"));
}

// However its segments lie, it does not fit.
TEST(Diagnose, PiecesAreNotMendedWhereTheRunNeedsMore) {
  const Job job = job_of("gpt2", {{"config", {{"n_layer", 2}, {"n_embd", 64}, {"n_head", 4}}}, {"batch", 8}, {"seq", 128}});
  Diagnosis d = diagnosis_of(
      "RuntimeError: CUDA out of memory. Tried to allocate 80.00 MiB (GPU 0; 600.00 MiB total capacity; 300.00 MiB already allocated; "
      "10.00 MiB free; 500.00 MiB reserved in total by PyTorch)\n");
  EXPECT_TRUE(holds(d.fixes[0].flags, "expandable_segments"));
  add_run(d, job);
  ASSERT_EQ(d.run->fit->verdict, Verdict::does_not_fit);
  EXPECT_FALSE(holds(d.fixes[0].flags, "expandable_segments")) << d.fixes[0].flags;
  EXPECT_TRUE(d.fixes[0].saving) << d.fixes[0].change;
}

TEST(Diagnose, WithTheRunSavingsAreComputed) {
  const Job job =
      job_of("gpt2", {{"config", {{"n_layer", 2}, {"n_embd", 64}, {"n_head", 4}, {"vocab_size", 20000}}}, {"batch", 8}, {"seq", 128}});
  // The logits in fp32: 8 x 128 x 20000 x 4 bytes = 78.125 MiB, asked for as 80 MiB.
  Diagnosis d = diagnosis_of(
      "RuntimeError: CUDA out of memory. Tried to allocate 80.00 MiB (GPU 0; 600.00 MiB total capacity; 300.00 MiB already allocated; "
      "10.00 MiB free; 310.00 MiB "
      "reserved in total by PyTorch)\n");
  add_run(d, job);
  ASSERT_TRUE(d.run);
  EXPECT_FALSE(d.run->matches.empty());
  EXPECT_TRUE(d.causes[0].starts_with("the run needs more than the device has")) << d.causes[0];
  EXPECT_TRUE(holds(d.causes[1], "20000")) << d.causes[1];
  ASSERT_TRUE(d.run->fit);
  EXPECT_NE(d.run->fit->verdict, Verdict::fits);
  const auto saving = std::find_if(d.fixes.begin(), d.fixes.end(), [](const Fix& f) { return f.saving.has_value(); });
  ASSERT_NE(saving, d.fixes.end());
  EXPECT_GT(saving->saving->count, 0);
  EXPECT_TRUE(holds(saving->flags, "--"));
  EXPECT_TRUE(holds(shown(diagnosis_document(d)), "saves "));
}

TEST(Diagnose, TextSaysWhatJsonSays) {
  const std::string text = shown(diagnosis_document(diagnosis_of("step 3\n" + kOom)));
  for (const char* part : {"Out of memory: the GPU's memory", "asked for", "2.00 GiB", "15.57 GiB", "other processes",
                           "Why, the likeliest first", "What to change"})
    EXPECT_TRUE(holds(text, part)) << part << "\n" << text;
  EXPECT_TRUE(holds(shown(diagnosis_document(diagnosis_of("all is well\n"))), "No out-of-memory"));
  EXPECT_TRUE(holds(shown(diagnosis_document(diagnosis_of(text_of("not-triton.txt")))), "Not out of device memory"));
}

// A log of many megabytes of the same lines: the first counts, lines are counted, memory is a window.
TEST(LogStream, WindowsOverLongLogs) {
  std::string log;
  for (int i = 0; i < 200000; ++i) log += "epoch 1 step " + std::to_string(i) + " loss 1.25 lr 0.0001\n";
  const Diagnosis d = diagnosis_of(log + kOom);
  EXPECT_EQ(d.line, 200001);
  EXPECT_EQ(d.progress->done, 199999);
  const std::string one_line(20 << 20, 'x');
  EXPECT_TRUE(diagnosis_of(one_line + "\n" + kOom).is_oom());
}

TEST(LogStream, CountsLinesAsAnEditorDoes) {
  std::istringstream in("a\r\nb\rc\rd\n\ne");
  LogStream log(in);
  std::vector<std::pair<std::string, int64_t>> lines;
  while (log.next()) lines.emplace_back(std::string(log.line()), log.number());
  EXPECT_EQ(lines, (std::vector<std::pair<std::string, int64_t>>{{"a", 1}, {"b", 2}, {"c", 2}, {"d", 2}, {"", 3}, {"e", 4}}));
}

const std::vector<std::string> kSecrets{"hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
                                        "0123456789abcdef0123456789abcdef01234567",
                                        "AKIAIOSFODNN7EXAMPLE",
                                        "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
                                        "sk-proj-abcdefghijklmnopqrstuvwx",
                                        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
                                        "hunter2",
                                        "dXNlcjpwYXNz",
                                        "s3cr3t-pw",
                                        "alice",
                                        "gpu-node-17",
                                        "10.48.73.68",
                                        "alice@example.org",
                                        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIx",
                                        "MIIEpAIBAAKCAQEA",
                                        "prod-bucket-77"};

const std::string kPrivateText =
    "export HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345\n"
    "wandb: Appending key for api.wandb.ai: 0123456789abcdef0123456789abcdef01234567\n"
    "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY\n"
    "{\"openai_api_key\": \"sk-proj-abcdefghijklmnopqrstuvwx\", \"batch_size\": 8}\n"
    "password: hunter2\nAuthorization: Basic dXNlcjpwYXNz\nAuthorization: Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIx\n"
    "git clone https://alice:s3cr3t-pw@git.example.org/x.git ghp_abcdefghijklmnopqrstuvwxyz0123456789\n"
    "  File \"/home/alice/train.py\", line 3, in main\n  host      : gpu-node-17\nMASTER_ADDR=10.48.73.68 CUDA_VISIBLE_DEVICES=0,1\n"
    "mail alice@example.org; BUCKET=prod-bucket-77 python train.py --hub_token hunter2 --pad_token_id 0 --max_tokens 512\n"
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----\nalice saw 10.48.73.68 on gpu-node-17\n";

TEST(Redaction, LeavesNoSecretAndKeepsTheRest) {
  Redaction redact({"/root", "root", "localhost"});
  const std::string text = redact(kPrivateText);
  for (const std::string& secret : kSecrets) EXPECT_FALSE(holds(text, secret)) << secret << "\n" << text;
  for (const char* kept : {"\"batch_size\": 8", "CUDA_VISIBLE_DEVICES=0,1", "train.py\", line 3, in main", "--pad_token_id 0",
                           "--max_tokens 512", "git.example.org/x.git"})
    EXPECT_TRUE(holds(text, kept)) << kept << "\n" << text;
  EXPECT_GE(redact.left_out().size(), 5u);
}

// Each line hides one secret, the second of the pair.
TEST(Redaction, ResistsWaysAroundIt) {
  const std::vector<std::pair<std::string, std::string>> lines{
      {"https://alice:p/a@ss@git.example.org/x.git", "p/a@ss"},
      {"psql postgresql://bob:hunter2@db.example.org:5432/runs", "hunter2"},
      {"https://x.blob.core.windows.net/c?sv=2022&sig=Zm9vYmFy%2Fbaz&se=2024", "Zm9vYmFy"},
      {"https://b.s3.amazonaws.com/w?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20240501&X-Amz-Signature=deadbeefcafe", "deadbeefcafe"},
      {"{\"log\": \"login\\nhf_AbCdEfGhIjKlMnOpQrStUvWxYz012345\"}", "hf_AbCd"},
      {"token%3Dhf_AbCdEfGhIjKlMnOpQrStUvWxYz012345", "hf_AbCd"},
      {"key is wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY indeed", "K7MDENG"},
      {"{\"password\": \"a\\\"b-rest\"}", "b-rest"},
      {"Namespace(hub_token='tok en', lr=0.1)", "tok en"},
      {"access_tokens: opaque123", "opaque123"},
      {"db_pwd=opaque123", "opaque123"},
      {"POST https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXX", "XXXXXXXX"},
      {"-H 'Authorization: Bearer opaque-123'", "opaque-123"},
      {"(base) carol@gpu-box-3:~/run$ python train.py\ncarol on gpu-box-3", "carol"},
      {"C:\\\\Users\\\\carol\\\\train.py", "carol"},
      {"C:\\Users\\carol\\train.py", "carol"},
      {"/gpfs/users/carol/train.py", "carol"},
      {"/scratch/carol/data", "carol"},
      {"MASTER_ADDR fe80::5054:ff:fe12:3456 joined", "fe12:3456"},
      {"eth0 52:54:00:12:34:56 up", "12:34:56"},
      {"node 2001:db8:0:0:0:0:0:1 up", "2001:db8"},
  };
  for (const auto& [line, secret] : lines) {
    Redaction redact({"/root", "root", "localhost"});
    const std::string text = redact(line);
    EXPECT_FALSE(holds(text, secret)) << line << "\n" << text;
    EXPECT_FALSE(redact.left_out().empty()) << line;
  }
  for (const char* kept : {"_ZN8LightGBM4GBDT17ResetTrainingDataEPKNS_14BoostingConfigE", "checkpoints/Llama3-8B-Instruct/step1000/Model12",
                           "pciBusID: 0000:01:00.0", "12:34:56", "transformer.h.11.mlp.c_proj", "c10::Error::Error", "model_path: /data/x",
                           "https://pytorch.org:443/docs/stable/notes/cuda.html"}) {
    Redaction redact({"/root", "root", "localhost"});
    EXPECT_EQ(redact(kept), kept);
  }
}

TEST(Redaction, ErrorTextsStayAsTheyAre) {
  for (const char* name : {"pytorch-2.1-other-process.txt", "jax-buffer-assignment.txt", "tensorflow-float.txt", "pytorch-cpu-linux.txt"}) {
    Redaction redact({"/root", "root", "localhost"});
    EXPECT_EQ(redact(text_of(name)), text_of(name));
  }
}

// The files of an archive, read as a tar program reads them.
std::map<std::string, std::string> untar(const std::string& archive) {
  std::map<std::string, std::string> files;
  EXPECT_EQ(archive.size() % 512, 0u);
  for (size_t at = 0; at + 512 <= archive.size() && archive[at] != '\0';) {
    const std::string header = archive.substr(at, 512);
    EXPECT_EQ(header.substr(257, 5), "ustar");
    unsigned sum = 8 * ' ';
    for (size_t i = 0; i < 512; ++i) sum += i >= 148 && i < 156 ? 0 : static_cast<unsigned char>(header[i]);
    EXPECT_EQ(std::stoul(header.substr(148, 6), nullptr, 8), sum);
    const size_t size = std::stoul(header.substr(124, 11), nullptr, 8);
    files[header.substr(0, header.find('\0'))] = archive.substr(at + 512, size);
    at += 512 + (size + 511) / 512 * 512;
  }
  return files;
}

TEST(HelpBundle, HasAllPartsAndNoSecrets) {
  HelpBundle bundle;
  bundle.diagnosis = diagnosis_of(
      kPrivateText + "Traceback (most recent call last):\n  File \"/home/alice/train.py\", line 3, in main\n    token = \"hunter2\"\n" +
      kOom);
  bundle.estimate = estimate(job_of("gpt2", {{"config", {{"n_layer", 1}, {"n_embd", 64}, {"n_head", 4}, {"vocab_size", 100}}}}), 0);
  bundle.configuration = {{"alice.yaml", kPrivateText}};
  bundle.command = "HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345 python /home/alice/train.py";
  const WrittenBundle written = write_bundle(bundle, {"/root", "root", "gpu-node-17"});
  const auto files = untar(written.archive);
  for (const char* name :
       {"README.txt", "error.txt", "diagnosis.json", "hardware.json", "command.txt", "config/USER.yaml", "estimate.json"})
    EXPECT_TRUE(files.contains(name)) << name;
  EXPECT_EQ(files.size(), written.files.size());
  for (const std::string& secret : kSecrets) EXPECT_FALSE(holds(written.archive, secret)) << secret;
  EXPECT_TRUE(holds(files.at("error.txt"), "Tried to allocate 2.00 GiB"));
  EXPECT_TRUE(holds(files.at("README.txt"), "tokens of Hugging Face"));
  EXPECT_EQ(nlohmann::json::parse(files.at("diagnosis.json"))["tried_bytes"], 2 * kGiB);
  EXPECT_EQ(write_bundle(bundle, {"/root", "root", "gpu-node-17"}).archive, written.archive);
}

// Any bytes give an answer. The mutations are the same in every run.
TEST(Diagnose, HostileLogsGiveAnAnswer) {
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    if (entry.path().extension() == ".txt") seeds.push_back(text_of(entry.path().filename().string()));
  std::sort(seeds.begin(), seeds.end());
  std::mt19937 random(20240607);
  const auto below = [&](size_t n) { return n == 0 ? size_t{0} : random() % n; };
  for (int i = 0; i < PLIMSOLL_FUZZ_ROUNDS; ++i) {
    std::string text = seeds[static_cast<size_t>(i) % seeds.size()];
    for (size_t k = 0, n = 1 + below(8); k < n; ++k) {
      const size_t at = below(text.size() + 1);
      switch (below(5)) {
        case 0: text.erase(at, below(30)); break;
        case 1: text.insert(at, std::string(1 + below(3), static_cast<char>(random()))); break;
        case 2: text.insert(at, text.substr(below(text.size() + 1), below(200))); break;
        case 3: text.insert(at, "99999999999999999999.99 GiB\x1b[\r\n"); break;
        default:
          if (!text.empty()) text[at % text.size()] = static_cast<char>(random());
      }
    }
    const Diagnosis d = diagnosis_of(text);
    EXPECT_FALSE(shown(diagnosis_document(d)).empty());
    EXPECT_NO_THROW(dump(diagnosis_json(d)));
    Redaction redact({"/root", "root", "localhost"});
    redact(text);
  }
}

}  // namespace
}  // namespace plimsoll::diagnose_test
