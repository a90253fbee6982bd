// `plimsoll run`: what a failure is taken for, where settings are written, and whole runs of the command.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "json_schema.h"
#include "supervise/allocator_variables.h"
#include "supervise/checkpoints.h"
#include "supervise/failure.h"
#include "supervise/plain_settings.h"
#include "supervise/resume.h"
#include "supervise/run_folder.h"
#include "supervise/run_settings.h"
#include "supervise/scheduler.h"
#include "util/error.h"

namespace plimsoll::run_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

const std::string kRoot = PLIMSOLL_SOURCE_DIR;

struct Folder {
  fs::path path = fs::temp_directory_path() /
                  ("plimsoll_run_" + std::to_string(getpid()) + "_" + ::testing::UnitTest::GetInstance()->current_test_info()->name());
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// ---- judging

Failure judged(int status, const std::string& output) {
  FailureEvidence e;
  e.status = status;
  e.output = output;
  return judge(e);
}
constexpr int exited(int code) { return code << 8; }

const char* const kCudaOom =
    "step 12/100\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB of which "
    "1.02 GiB "
    "is free. Process 1234 has 6.77 GiB memory in use. Of the allocated memory 6.20 GiB is allocated by PyTorch, and 89.00 MiB is reserved "
    "by "
    "PyTorch but unallocated.\n";

TEST(Judge, TellsTheMemoriesApart) {
  const Failure device = judged(exited(1), kCudaOom);
  EXPECT_EQ(device.kind, FailureKind::device_memory);
  ASSERT_TRUE(device.limit);
  EXPECT_LE(*device.limit, int64_t{8364448809}) << "what the card has, less what others use";
  EXPECT_GT(*device.limit, int64_t{7} << 30);
  EXPECT_EQ(device.step, 12);
  EXPECT_FALSE(device.fragmented);
  EXPECT_EQ(judged(exited(1),
                   "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: you tried to allocate "
                   "17179869184 bytes.\n")
                .kind,
            FailureKind::host_memory);
  EXPECT_EQ(judged(exited(1), "MemoryError\n").kind, FailureKind::host_memory);
  EXPECT_EQ(judged(exited(1), "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.\n").kind, FailureKind::worker);
  EXPECT_EQ(judged(SIGKILL, "").kind, FailureKind::host_memory);
  EXPECT_EQ(judged(exited(137), "").kind, FailureKind::host_memory);
  EXPECT_EQ(judged(SIGBUS, "").kind, FailureKind::worker);
  EXPECT_EQ(judged(exited(1), "srun: error: node1: task 0: Out Of Memory\n").kind, FailureKind::host_memory);
}

TEST(Judge, LeavesEverythingElseAlone) {
  EXPECT_EQ(judged(0, kCudaOom).kind, FailureKind::none) << "it went on, and ended well";
  const Failure other = judged(exited(3), "ValueError: batch_size should be positive\n");
  EXPECT_EQ(other.kind, FailureKind::other);
  EXPECT_EQ(other.reason, "ended with exit code 3");
  EXPECT_EQ(judged(SIGSEGV, "").reason, "ended by signal 11 (Segmentation fault)");
  FailureEvidence e;
  e.status = SIGTERM;
  e.forwarded = SIGTERM;
  EXPECT_EQ(judge(e).kind, FailureKind::stopped);
}

TEST(Judge, ReadsErrorFilesCountersAndStates) {
  const Folder folder;
  write(folder / "error.json", R"({"message": {"message": "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "extraInfo":
                                   {"py_callstack": "Traceback (most recent call last):\n  ...", "timestamp": "1"}}})");
  FailureEvidence e;
  e.status = exited(1);
  e.error_files = {read_error_file(folder / "error.json")};
  const Failure f = judge(e);
  EXPECT_EQ(f.kind, FailureKind::device_memory);
  EXPECT_EQ(f.sources, (Words{"error file"}));
  write(folder / "old.json", R"({"message": "MemoryError"})");
  EXPECT_EQ(read_error_file(folder / "old.json"), "MemoryError");
  write(folder / "bad.json", "{");
  EXPECT_EQ(read_error_file(folder / "bad.json"), "");
  EXPECT_EQ(read_error_file(folder / "none.json"), "");

  FailureEvidence group;
  group.status = exited(1);
  group.oom_kills = 2;
  EXPECT_EQ(judge(group).reason, "the host ran out of memory: the kernel ended 2 processes of this control group");
  FailureEvidence slurm;
  slurm.status = exited(1);
  slurm.slurm_state = "OUT_OF_MEMORY";
  EXPECT_EQ(judge(slurm).kind, FailureKind::host_memory);

  fs::create_directories(folder / "proc/self");
  fs::create_directories(folder / "sys/fs/cgroup/job");
  write(folder / "proc/self/cgroup", "0::/job\n");
  write(folder / "sys/fs/cgroup/job/memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n");
  EXPECT_EQ(oom_kills(folder.path.string()), 2);
  write(folder / "proc/self/cgroup", "5:memory:/elsewhere\n");
  fs::create_directories(folder / "sys/fs/cgroup/memory");
  write(folder / "sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
  EXPECT_EQ(oom_kills(folder.path.string()), 4);
  EXPECT_EQ(oom_kills(folder / "nowhere"), 0);
}

TEST(Scheduler, KnowsWhereItIs) {
  EXPECT_FALSE(rank_here({}));
  EXPECT_FALSE(rank_here({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}})) << "the batch script starts the others";
  const auto rank = rank_here({{"TORCHELASTIC_RUN_ID", "x"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}});
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->launcher, "torchrun");
  EXPECT_EQ(rank->rank, 1);
  EXPECT_EQ(rank_here({{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "2"}})->rank, 2);
  EXPECT_EQ(rank_here({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}})->launcher, "srun");
  EXPECT_FALSE(slurm_job({}));
  EXPECT_EQ(slurm_job({{"SLURM_JOB_ID", "7"}, {"SLURM_RESTART_COUNT", "2"}})->restarts, 2);
  EXPECT_EQ(slurm_job({{"SLURM_JOB_ID", "9"}, {"SLURM_ARRAY_JOB_ID", "7"}, {"SLURM_ARRAY_TASK_ID", "3"}})->id, "7_3");
  EXPECT_FALSE(slurm_job({{"SLURM_JOB_ID", "7; rm -rf /"}}));
}

// ---- settings

TEST(Scheduler, CountsNodesThatHaveSupervisorsOfTheirOwn) {
  EXPECT_EQ(nodes_beside({"torchrun", "--nnodes=2", "--nproc_per_node=4", "train.py"}), 2);
  EXPECT_EQ(nodes_beside({"python", "-m", "torch.distributed.run", "--nnodes", "4", "train.py"}), 4);
  EXPECT_EQ(nodes_beside({"srun", "torchrun", "--nnodes=2", "train.py"}), 1) << "srun starts them all";
  EXPECT_EQ(nodes_beside({"torchrun", "--nproc_per_node=4", "train.py"}), 1);
  EXPECT_EQ(nodes_beside({"python", "train.py", "--nnodes", "2"}), 1);
}

TEST(Templates, FindWhereACommandSaysIt) {
  const Folder folder;
  write(folder / "train.yaml", "training:\n  micro_batch_size: 8   # fits?\n  workers: 4\n");
  const std::string yaml = folder / "train.yaml";
  const Words command = {"python", "train.py", "--micro_batch_size", "8", "--accum=2", "model.depth=3", "--config", yaml};
  const auto s = settings_by_templates(
      command, {"micro_batch_size={batch}", "--accum={accumulation}", "BS={batch}", "training.workers={workers}", "--extra={batch}"}, {});
  EXPECT_EQ(s->now(), (RunValues{8, 2, 4}));
  fs::create_directories(folder / "state");
  const Launch l = s->say({4, 4, 2}, folder / "state");
  EXPECT_EQ(l.command, (Words{"python", "train.py", "--micro_batch_size", "4", "--accum=4", "model.depth=3", "--config",
                              folder / "state/train.yaml", "--extra", "4"}));
  EXPECT_EQ(l.environment.at("BS"), "4");
  EXPECT_EQ(text_of(folder / "state/train.yaml"), "training:\n  micro_batch_size: 8   # fits?\n  workers: 2\n");
  EXPECT_THROW(s->say({4, 4, 2}, folder / "nowhere"), Error);
}

TEST(Templates, RefuseWhatTheyCannotDo) {
  const auto message = [](const Words& command, const Words& templates) -> std::string {
    try {
      settings_by_templates(command, templates, {});
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message({"t"}, {"batch"}), "[run] --set 'batch' is no NAME={batch}");
  EXPECT_EQ(message({"t"}, {"--b={size}"}), "[run] --set '--b={size}' holds a name that is not known");
  EXPECT_EQ(message({"t"}, {"batch_size={batch}"}), "[run] neither the command nor a file that it names says 'batch_size'");
  EXPECT_EQ(message({"t"}, {"--b={batch}"}), "[run] the micro-batch to begin with is not known");
  EXPECT_EQ(message({"t", "--b", "4"}, {"--b={batch}"}), "");
}

// ---- the folder

TEST(RunFolder, SavesWholeStatesAndKeepsOthersOut) {
  const Folder folder;
  RunFolder first(folder / "state");
  first.lock(1);
  std::string problem, broken;
  EXPECT_FALSE(first.load(&broken));
  EXPECT_TRUE(first.save({{"attempt", 3}}, &problem)) << problem;
  EXPECT_EQ((*first.load(&broken))["attempt"], 3);
  write(folder / "state/state.json", "{\"attempt\":");
  EXPECT_FALSE(first.load(&broken));
  EXPECT_NE(broken.find("state.broken"), std::string::npos);
  RunFolder second(folder / "state");
  EXPECT_THROW(second.lock(0.1), Error);
  write(folder / "file", "x");
  EXPECT_THROW(RunFolder(folder / "file"), Error);
  EXPECT_NE(write_whole("/dev/full/x", "x"), "");
}

// ---- whole runs

struct Result {
  int code = -1;
  std::string out, err;
  std::vector<Json> events;

  std::string reasons(const char* event) const {
    std::string all;
    for (const Json& e : events)
      if (e["event"] == event) all += e.value("reason", "") + "\n";
    return all;
  }
  size_t count(const char* event) const {
    return static_cast<size_t>(std::count_if(events.begin(), events.end(), [&](const Json& e) { return e["event"] == event; }));
  }
};

Result run(const Folder& folder, const std::string& args) {
  const std::string state = folder / "state";
  const std::string line = "cd '" + kRoot + "' && " PLIMSOLL_BINARY " run --state '" + state + "' --backoff 0.01 --grace 2 " + args +
                           " >'" + (folder / "out") + "' 2>'" + (folder / "err") + "' </dev/null";
  Result r;
  const int status = std::system(line.c_str());
  r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  r.out = text_of(folder / "out");
  r.err = text_of(folder / "err");
  std::istringstream lines(text_of(state + "/events.jsonl"));
  JsonSchema schema(nlohmann::ordered_json::parse(text_of(kRoot + "/schemas/run-events.json")));
  for (std::string event; std::getline(lines, event);) {
    r.events.push_back(Json::parse(event));
    EXPECT_EQ(schema.problems(nlohmann::ordered_json::parse(event)), std::vector<std::string>{}) << event;
  }
  return r;
}

const std::string kPretend = "--set 'BATCH={batch}' --set 'ACCUMULATION={accumulation}' --batch 8 --accumulation 2 -- tests/run/pretend.sh";

TEST(Run, MakesTheBatchSmallerUntilItFits) {
  const Folder folder;
  const Result r = run(folder, kPretend);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("attempt 1: batch 8 x 2"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("batch 4 x 4"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("batch 2 x 8"), std::string::npos) << r.out;
  EXPECT_NE(r.err.find("CUDA out of memory"), std::string::npos) << "the command's own words pass through";
  EXPECT_EQ(r.count("decision"), 2u);
  EXPECT_EQ(r.count("finished"), 1u);
  EXPECT_FALSE(fs::exists(folder / "state/state.json"));
  for (const Json& e : r.events)
    if (e["event"] == "decision") {
      EXPECT_FALSE(e["reason"].get<std::string>().empty());
    }
}

TEST(Run, GivesUpWith75AndSaysWhy) {
  const Folder folder;
  const Result r = run(folder, "--minimum 4 " + kPretend);
  EXPECT_EQ(r.code, 75);
  EXPECT_NE(r.err.find("giving up: out of memory with a micro-batch of 4, and 4 is the minimum"), std::string::npos) << r.err;
  const Result none =
      run(folder, "--retries 1 -- sh -c 'echo \"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\" >&2; exit 1'");
  EXPECT_EQ(none.code, 75);
  EXPECT_NE(none.err.find("no batch flag is known in the command"), std::string::npos) << none.err;
}

// ---- a batch flag by its usual name

TEST(PlainSettings, FindTheBatchThatIsPlainlyThere) {
  const auto found = [](const Words& more) {
    Words command{"python", "train.py"};
    command.insert(command.end(), more.begin(), more.end());
    return plain_settings(command);
  };
  EXPECT_EQ(found({"--batch_size", "8"}).batch, Words{"--batch_size={batch}"});
  EXPECT_EQ(found({"--batch-size=8"}).batch, Words{"--batch-size={batch}"});
  EXPECT_EQ(found({"-b", "8"}).batch, Words{"-b={batch}"});
  EXPECT_EQ(found({"train.batch_size=8"}).batch, Words{"train.batch_size={batch}"});
  EXPECT_EQ(found({"--data.train_batch_size=8"}).batch, Words{"--data.train_batch_size={batch}"});
  const PlainSettings own = found({"--batch_size", "64", "--per_device_train_batch_size", "8", "--grad_accum", "2", "--num_workers", "0"});
  EXPECT_EQ(own.batch, Words{"--per_device_train_batch_size={batch}"}) << "a device's own batch comes before one of any other name";
  EXPECT_EQ(own.accumulation, "--grad_accum={accumulation}");
  EXPECT_EQ(own.workers, "--num_workers={workers}");
  EXPECT_EQ(found({"--batch_size", "8", "--train_batch_size", "4"}).batch.size(), 2u) << "either may be meant";
  for (const Words& none : {Words{"--eval_batch_size", "8"}, Words{"--batch_size", "auto"}, Words{"--batch_size", "0"},
                            Words{"--batch_size"}, Words{"BATCH_SIZE=8"}, Words{"--global_batch_size", "8"}, Words{"data/batch_size=8"}})
    EXPECT_TRUE(found(none).batch.empty()) << none[0];
  EXPECT_EQ(found({"-b", "8", "--batch_size", "4"}).batch, Words{"--batch_size={batch}"}) << "one letter counts when nothing else does";
}

// A script of one's own that raises PyTorch's error until its batch is small enough.
const char* const kOwnScript =
    "import argparse, sys\n"
    "p = argparse.ArgumentParser()\n"
    "p.add_argument('--batch_size', '--batch-size', '-b', type=int, default=8)\n"
    "p.add_argument('--train_batch_size', type=int)\n"
    "p.add_argument('--grad_accum', type=int, default=1)\n"
    "p.add_argument('overrides', nargs='*')\n"
    "a = p.parse_args()\n"
    "b = int(a.overrides[0].split('=')[1]) if a.overrides else a.batch_size\n"
    "print(f'batch {b} x {a.grad_accum}')\n"
    "if b > 2:\n"
    "    raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB of which 1.02 GiB is "
    "'\n"
    "                       'free. Of the allocated memory 6.20 GiB is allocated by PyTorch, and 89.00 MiB is reserved by PyTorch but '\n"
    "                       'unallocated.')\n";

TEST(Run, TakesABatchFlagThatIsPlainlyThere) {
  if (std::system("command -v python3 >/dev/null 2>&1") != 0) GTEST_SKIP() << "python3 is not here";
  const Folder folder;
  write(folder / "train.py", kOwnScript);
  for (const std::string& said : std::vector<std::string>{"--batch_size 8", "--batch-size=8", "-b 8", "train.batch_size=8"}) {
    const Result r = run(folder, "--anew -- python3 '" + (folder / "train.py") + "' " + said);
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.err.find("plimsoll: " + said + " is taken for the micro-batch"), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("no accumulation flag is known: the global batch changes from 8 to 4"), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("25 % less, rounded down to a divisor of 8; next: batch 4"), std::string::npos) << r.err;
    EXPECT_NE(r.out.find("batch 2 x 1"), std::string::npos) << r.out;
  }
  const Result kept = run(folder, "--anew -- python3 '" + (folder / "train.py") + "' --batch_size 8 --grad_accum 2");
  EXPECT_EQ(kept.code, 0) << kept.err;
  EXPECT_NE(kept.out.find("batch 2 x 8"), std::string::npos) << kept.out;
  EXPECT_EQ(kept.err.find("global batch changes"), std::string::npos) << kept.err;
}

TEST(Run, OfTwoBatchFlagsNeitherIsTakenWhereNobodyCanBeAsked) {
  if (std::system("command -v python3 >/dev/null 2>&1") != 0) GTEST_SKIP() << "python3 is not here";
  const Folder folder;
  write(folder / "train.py", kOwnScript);
  const Result r = run(folder, "--no-allocator -- python3 '" + (folder / "train.py") + "' --batch_size 8 --train_batch_size 4");
  EXPECT_EQ(r.code, 75);
  EXPECT_NE(r.err.find("--batch_size 8 and --train_batch_size 4 may each be the batch: name it with --set '--batch_size={batch}'"),
            std::string::npos)
      << r.err;
}

TEST(Run, TakesWorkersBeforeTheBatch) {
  const Folder folder;
  const Result r =
      run(folder, "--set 'WORKERS={workers}' --workers 8 --set 'BATCH={batch}' --batch 2 -- env MOST_WORKERS=3 tests/run/pretend.sh");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("batch 2 x 1, 2 workers"), std::string::npos) << r.out;
  EXPECT_NE(r.reasons("decision").find("4 instead of 8"), std::string::npos) << r.reasons("decision");
}

TEST(Run, PassesOtherEndsThrough) {
  const Folder folder;
  EXPECT_EQ(run(folder, "-- sh -c 'exit 42'").code, 42);
  EXPECT_EQ(run(folder, "-- sh -c 'kill -SEGV $$'").code, 139);
  const Result missing = run(folder, "-- no-such-command-here");
  EXPECT_EQ(missing.code, 127);
  EXPECT_NE(missing.err.find("'no-such-command-here' cannot be started: No such file or directory"), std::string::npos) << missing.err;
  EXPECT_EQ(run(folder, "-- /etc/passwd").code, 126);
  EXPECT_EQ(run(folder, "--set 'x={batch}' -- true").code, 2);
  write(folder / "file", "");
  EXPECT_EQ(std::system((PLIMSOLL_BINARY " run --state '" + (folder / "file") + "' -- true 2>/dev/null").c_str()), exited(5));
}

TEST(Run, BytesPassUnchanged) {
  const Folder folder;
  const Result r = run(folder, R"(--quiet -- sh -c 'printf "a\0b\r\n\377"; printf "e\tf" >&2')");
  EXPECT_EQ(r.out, std::string("a\0b\r\n\377", 6));
  EXPECT_EQ(r.err, "e\tf");
}

bool terminals_can_be_had() {
  const int leader = posix_openpt(O_RDWR | O_NOCTTY);
  const int follower = leader >= 0 && grantpt(leader) == 0 && unlockpt(leader) == 0 ? open(ptsname(leader), O_RDWR | O_NOCTTY) : -1;
  for (const int file : {leader, follower})
    if (file >= 0) close(file);
  return follower >= 0;
}

TEST(Run, ATerminalStaysOne) {
  if (!terminals_can_be_had()) GTEST_SKIP() << "no terminal can be had here: mount /dev/pts";
  if (std::system("command -v script >/dev/null 2>&1") != 0) GTEST_SKIP() << "script, which gives a command a terminal, is not here";
  const Folder folder;
  const std::string script = "script -qec \"" PLIMSOLL_BINARY " run --state '" + (folder / "state") +
                             "' -- sh -c 'test -t 0 && test -t 1 && test -t 2 && echo all three'\" /dev/null </dev/null";
  FILE* pipe = popen(script.c_str(), "r");
  char chunk[256] = "";
  std::string out;
  while (const size_t n = fread(chunk, 1, sizeof chunk, pipe)) out.append(chunk, n);
  pclose(pipe);
  EXPECT_NE(out.find("all three"), std::string::npos) << out;
}

TEST(Run, NothingIsLeftBehind) {
  const Folder folder;
  const Result r = run(folder, "-- sh -c '(setsid sleep 1000 & echo $! >" + (folder / "pid") + "); exit 0'");
  EXPECT_EQ(r.code, 0);
  const int pid = std::atoi(text_of(folder / "pid").c_str());
  ASSERT_GT(pid, 0);
  EXPECT_NE(kill(pid, 0), 0) << "the sleeping one was ended";
}

TEST(Run, SignalsReachTheCommand) {
  const Folder folder;
  const std::string ready = folder / "ready";
  const Result r =
      run(folder, "-- sh -c 'trap \"echo saved; exit 7\" TERM; touch " + ready + "; (while [ ! -e " + ready +
                      " ]; do sleep 0.01; done; kill -TERM $(ps -o ppid= -p $(ps -o ppid= -p $$))) & while :; do sleep 0.05; done'");
  EXPECT_EQ(r.code, 7) << r.err;
  EXPECT_NE(r.out.find("saved"), std::string::npos);
  EXPECT_EQ(r.count("decision"), 0u) << "stopped is not failed";
}

TEST(Run, ResumesFromTheNewestCheckpointThatIsItsOwnAndWhole) {
  const Folder folder;
  write(folder / "of_an_earlier_run.pt", "x");
  fs::last_write_time(folder / "of_an_earlier_run.pt", fs::file_time_type::clock::now() + std::chrono::hours(1));
  write(folder / "train.sh",
        "#!/bin/sh\ncd '" + folder.path.string() +
            "'\necho $PLIMSOLL_ATTEMPT: \"$@\"\n[ $PLIMSOLL_ATTEMPT = 2 ] && echo x >good.pt && sleep 0.02 && : >empty.pt\n"
            "[ $PLIMSOLL_ATTEMPT -gt 2 ] && exit 0\necho 'torch.OutOfMemoryError: CUDA out of memory. Tried to "
            "allocate 2.00 GiB.' >&2\nexit 1\n");
  const Result r = run(folder, "--set 'BATCH={batch}' --batch 8 --resume-flag '--resume {checkpoint}' --checkpoints '" + (folder / "*.pt") +
                                   "' -- sh " + (folder / "train.sh"));
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out, "1:\n2:\n3: --resume " + (folder / "good.pt") + "\n");
  EXPECT_NE(r.reasons("warning").find("empty.pt: it is empty"), std::string::npos) << r.reasons("warning");
}

TEST(Checkpoints, AreWholeOrNot) {
  const Folder folder;
  const auto whole = [&](const std::string& name, const std::string& bytes) {
    write(folder / name, bytes);
    return incomplete(folder / name);
  };
  EXPECT_EQ(whole("a.pt", std::string("PK\x03\x04") + std::string(100, 'x') + "PK\x05\x06" + std::string(18, '\0')), "");
  EXPECT_EQ(whole("b.pt", std::string("PK\x03\x04") + std::string(100, 'x')), "its end is missing");
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string length{static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(whole("a.safetensors", length + header + "12345678"), "");
  EXPECT_EQ(whole("b.safetensors", length + header + "1234"), "its data is cut off");
  EXPECT_EQ(whole("c.safetensors", length + "{"), "its header is cut off");
  EXPECT_EQ(whole("d.bin", "anything"), "");
  EXPECT_NE(incomplete(folder / "nowhere"), "");
  const std::string hf = folder / "checkpoint-5";
  fs::create_directories(hf);
  EXPECT_EQ(incomplete(hf), "it is empty");
  write(hf + "/model.safetensors", length + header + "12345678");
  EXPECT_EQ(incomplete(hf), "trainer_state.json is missing");
  write(hf + "/trainer_state.json", "{}");
  EXPECT_EQ(incomplete(hf), "");
  write(hf + "/optimizer.pt", "");
  EXPECT_EQ(incomplete(hf), "optimizer.pt: it is empty");
}

TEST(Allocator, EveryNameThatIsReadIsSet) {
  using Variables = std::map<std::string, std::string>;
  EXPECT_EQ(with_expandable_segments({}), (Variables{{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}}));
  EXPECT_EQ(with_expandable_segments({{"PYTORCH_ALLOC_CONF", "max_split_size_mb:128"}}),
            (Variables{{"PYTORCH_ALLOC_CONF", "max_split_size_mb:128,expandable_segments:True"},
                       {"PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128,expandable_segments:True"}}));
  EXPECT_EQ(
      with_expandable_segments({{"PYTORCH_HIP_ALLOC_CONF", "a:1"}, {"PYTORCH_CUDA_ALLOC_CONF", "b:2"}}),
      (Variables{{"PYTORCH_HIP_ALLOC_CONF", "a:1,expandable_segments:True"}, {"PYTORCH_CUDA_ALLOC_CONF", "b:2,expandable_segments:True"}}));
  EXPECT_TRUE(with_expandable_segments({{"PYTORCH_ALLOC_CONF", "expandable_segments:False"}}).empty()) << "the user decided";
}

TEST(Run, GoesOnFromItsStateAndGrowsBack) {
  const Folder folder;
  const std::string flags = "--set 'BATCH={batch}' --set 'ACCUMULATION={accumulation}' --batch 8 --accumulation 1 ";
  // Ends for another reason once it fits.
  const std::string command = "-- sh -c 'CAPACITY=4 tests/run/pretend.sh && test -e " + (folder / "go") + "'";
  const Result first = run(folder, flags + command);
  EXPECT_EQ(first.code, 1) << first.err;
  EXPECT_TRUE(fs::exists(folder / "state/state.json"));
  write(folder / "go", "");
  const Result second = run(folder, flags + command);
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_NE(second.out.find("attempt 3: batch 4 x 2"), std::string::npos) << second.out << second.err;
  EXPECT_NE(second.err.find("going on after attempt 2"), std::string::npos) << second.err;
  // 20 and 15 failed, 10 went well: a later start tries 12, which does not fit either, and is back at 10.
  fs::remove(folder / "go");
  const std::string more = "--set 'BATCH={batch}' --set 'ACCUMULATION={accumulation}' --batch 20 --accumulation 3 --grow-after 0 ";
  const std::string sixty = "-- sh -c 'CAPACITY=11 tests/run/pretend.sh && test -e " + (folder / "go") + "'";
  const Result ten = run(folder, more + sixty);
  EXPECT_EQ(ten.code, 1);
  EXPECT_NE(ten.out.find("batch 10 x 6"), std::string::npos) << ten.out << ten.err;
  write(folder / "go", "");
  const Result grown = run(folder, more + sixty);
  EXPECT_EQ(grown.code, 0);
  EXPECT_NE(grown.out.find("batch 12 x 5"), std::string::npos) << grown.out << grown.err;
  EXPECT_NE(grown.out.find("batch 10 x 6"), std::string::npos) << grown.out << grown.err;
  EXPECT_NE(grown.reasons("decision").find("the size before"), std::string::npos) << grown.reasons("decision");
}

TEST(Run, RewritesAFileOfATrainerThatIsKnown) {
  const Folder folder;
  write(folder / "train.sh", "#!/bin/sh\necho \"$@\" >>" + (folder / "calls") +
                                 "\nfor last; do :; done\ngrep -q 'micro_batch_size: 2 ' $last && exit 0\necho 'torch.OutOfMemoryError: "
                                 "CUDA out of memory. Tried to allocate 2.00 GiB.' >&2\nexit 1\n");
  write(folder / "t.yaml", "training:\n  micro_batch_size: 4 # per rank\n  gradient_accumulation_steps: 2\n");
  const Result r =
      run(folder, "--set 'training.micro_batch_size={batch}' --set 'training.gradient_accumulation_steps={accumulation}' -- sh " +
                      (folder / "train.sh") + " " + (folder / "t.yaml"));
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(text_of(folder / "t.yaml"), "training:\n  micro_batch_size: 4 # per rank\n  gradient_accumulation_steps: 2\n") << "as it was";
  EXPECT_EQ(text_of(folder / "state/t.yaml"), "training:\n  micro_batch_size: 2 # per rank\n  gradient_accumulation_steps: 4\n");
  write(folder / "alias.yaml", "a: &b 4\nbatch: *b\n");
  const Result refused = run(folder, "--set 'batch={batch}' --batch 4 -- sh " + (folder / "train.sh") + " " + (folder / "alias.yaml"));
  EXPECT_EQ(refused.code, 5) << refused.err;
  EXPECT_NE(refused.err.find("alias"), std::string::npos) << refused.err;
}

std::string resumed(const Folder& folder, const std::string& command) {
  std::istringstream words(command);
  const Words split{std::istream_iterator<std::string>(words), {}};
  std::string out;
  const Resume resume = resume_of_trainer(split);
  for (const std::string& word : resume_words(resume, newest_checkpoint(resume.checkpoints, {}).path))
    out += (out.empty() ? "" : " ") + word;
  if (const size_t at = out.find(folder.path.string()); at != std::string::npos) out.replace(at, folder.path.string().size(), "DIR");
  return out;
}

TEST(Run, TrainersAreToldToGoOnInTheirOwnWords) {
  const Folder folder;
  const std::string out = folder / "out";
  fs::create_directories(out);
  write(folder / "axolotl.yml", "base_model: gpt2\nmicro_batch_size: 2\ngradient_accumulation_steps: 1\nlearning_rate: 1e-4\n");
  write(folder / "lf.yaml", "model_name_or_path: gpt2\nstage: sft\nfinetuning_type: full\noutput_dir: " + out + "\n");
  write(folder / "tune.yaml", "output_dir: " + out +
                                  "\nmodel:\n  _component_: torchtune.models.llama3_2.llama3_2_1b\nbatch_size: 2\ncheckpointer:\n  "
                                  "_component_: torchtune.training.FullModelHFCheckpointer\n");
  write(folder / "args.json", R"({"model_name_or_path": "gpt2", "per_device_train_batch_size": 2, "output_dir": ")" + out + "\"}");
  const std::string llama = "llamafactory-cli train " + (folder / "lf.yaml"),
                    tune = "tune run full_finetune_single_device --config " + (folder / "tune.yaml");
  const std::string flags = " --model_name_or_path gpt2 --per_device_train_batch_size 2 --output_dir " + out;
  const std::string lora =
      "train_network.py --pretrained_model_name_or_path sd --network_module networks.lora --save_state --output_dir " + out;
  EXPECT_EQ(resumed(folder, "axolotl train " + (folder / "axolotl.yml")), "--auto-resume-from-checkpoints");
  for (const std::string& command : {llama, tune, "python run_clm.py" + flags, "accelerate launch " + lora})
    EXPECT_EQ(resumed(folder, command), "") << "no checkpoint yet: " << command;
  fs::create_directories(out + "/checkpoint-5");
  fs::create_directories(out + "/epoch_0");
  fs::create_directories(out + "/last-000002-state");
  for (const char* file : {"/checkpoint-5/state", "/epoch_0/recipe_state.pt", "/last-000002-state/state"}) write(out + file, "x");
  EXPECT_EQ(resumed(folder, llama), "resume_from_checkpoint=DIR/out/checkpoint-5");
  EXPECT_EQ(resumed(folder, "llamafactory-cli train --stage sft --finetuning_type full" + flags),
            "--resume_from_checkpoint DIR/out/checkpoint-5");
  EXPECT_EQ(resumed(folder, tune), "resume_from_checkpoint=True");
  EXPECT_EQ(resumed(folder, "python run_clm.py" + flags), "--resume_from_checkpoint DIR/out/checkpoint-5");
  EXPECT_EQ(resumed(folder, "python run_clm.py " + (folder / "args.json")), "") << "it reads a file alone";
  EXPECT_EQ(resumed(folder, "accelerate launch " + lora), "--resume DIR/out/last-000002-state --skip_until_initial_step");
  EXPECT_EQ(resumed(folder, "accelerate launch sdxl_train.py --pretrained_model_name_or_path sd --save_state --output_dir " + out),
            "--resume DIR/out/last-000002-state");
}

// gpt2 with 1024 tokens in 7.31 GiB: 4 do not fit, so they are not tried.
TEST(Run, TakesTheSimulatedSizeOfATrainerThatIsKnown) {
  const Folder folder;
  const std::string out = folder / "made";
  write(folder / "oom", kCudaOom);
  write(folder / "run_clm.py",
        "import os, sys\nprint(' '.join(sys.argv[1:]))\nflags = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
        "if int(flags['--per_device_train_batch_size']) > 2:\n  os.makedirs('" +
            out + "/checkpoint-5')\n  open('" + out + "/checkpoint-5/state', 'w').write('x')\n  sys.exit(open('" + (folder / "oom") +
            "').read())\n");
  const Result r =
      run(folder, "-- python3 " + (folder / "run_clm.py") + " --model_name_or_path gpt2 --per_device_train_batch_size 8 --output_dir " +
                      out + " --gradient_accumulation_steps 2 --bf16 true");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.reasons("decision").find("by simulation"), std::string::npos) << r.reasons("decision");
  EXPECT_EQ(r.count("start"), 2u);
  EXPECT_NE(r.out.find("--per_device_train_batch_size 2 --output_dir " + out +
                       " --gradient_accumulation_steps 8 --bf16 true --resume_from_checkpoint " + out + "/checkpoint-5"),
            std::string::npos)
      << r.out;
}

TEST(Run, AFullDiskDoesNotEndTheTraining) {
  const Folder folder;
  const Result r = run(folder, "--events /dev/full " + kPretend);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("events cannot be written (No space left on device); the run goes on without"), std::string::npos) << r.err;
  // A folder in the way of the state.
  const Result state =
      run(folder, "--set 'BATCH={batch}' --batch 4 -- sh -c 'mkdir -p " + (folder / "state/state.json.part") + "; tests/run/pretend.sh'");
  EXPECT_EQ(state.code, 0) << state.err;
  EXPECT_NE(state.err.find("the run goes on, but a new start would not know of this"), std::string::npos) << state.err;
}

// A driver that knows the process of the run by its host's pid, and the most that it held.
TEST(Run, KeepsWhatWasMeasuredForTheNextEstimate) {
  const Folder folder;
  write(folder / "nvml", "count 1\n0.name NVIDIA GeForce RTX 4090\n0.uuid GPU-a\n0.total 25757220864\n0.used 9000000000\n");
  write(folder / "run_clm.py",
        "import os, time\nopen('" + (folder / "nvml") + "', 'a').write(f'0.processes {os.getpid()}:8589934592\\n')\ntime.sleep(12)\n");
  fs::create_directories(folder / "lib");
  fs::create_symlink(PLIMSOLL_STUB_NVML_LIBRARY, folder / "lib/libnvidia-ml.so.1");
  setenv("PLIMSOLL_STUB_NVML", (folder / "nvml").c_str(), 1), setenv("XDG_STATE_HOME", folder.path.c_str(), 1);
  setenv("LD_LIBRARY_PATH", (folder / "lib").c_str(), 1);
  const Result r =
      run(folder, "-- python3 " + (folder / "run_clm.py") + " --model_name_or_path gpt2 --per_device_train_batch_size 4 --output_dir out");
  const std::string estimate =
      std::string(PLIMSOLL_BINARY) +
      " estimate 'python run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 8 --output_dir out' --gpu "
      "rtx-4090 >" +
      (folder / "estimate");
  (void)!std::system(estimate.c_str());
  unsetenv("PLIMSOLL_STUB_NVML"), unsetenv("XDG_STATE_HOME"), unsetenv("LD_LIBRARY_PATH");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.reasons("measured").find("8.00 GiB measured"), std::string::npos) << r.err;
  EXPECT_NE(text_of(folder / "plimsoll/measured.jsonl").find("\"measured_bytes\":8589934592,\"source\":\"run\""), std::string::npos);
  EXPECT_NE(text_of(folder / "estimate").find("measured before"), std::string::npos) << text_of(folder / "estimate");
}

// One rank is dead, the other waits for it and says nothing.
TEST(Run, EndsWhatWaitsForARankThatRanOutOfMemory) {
  const Folder folder;
  write(folder / "ranks.sh",
        "#!/bin/sh\n[ $BATCH -le 4 ] && exit 0\necho step 3/10\n(echo 'Traceback (most recent call last):\n  File "
        "\"train.py\", line 3, in <module>\n    loss.backward()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to "
        "allocate 2.00 GiB.' >&2; exit 1) &\nsleep 1000 & wait\n");
  const Result r = run(folder, "--hang 0.5 --set 'BATCH={batch}' --batch 8 -- sh " + (folder / "ranks.sh"));
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.count("hung"), 1u);
  EXPECT_NE(r.reasons("decision").find("out of memory with a micro-batch of 8"), std::string::npos) << r.err;
  // A message that was caught, and silence: left alone.
  const Result caught =
      run(folder, "--hang 0.3 -- sh -c 'echo \"WARNING: CUDA out of memory. Tried to allocate 2.00 GiB, skipping batch\"; sleep 1'");
  EXPECT_EQ(caught.code, 0) << caught.err;
  EXPECT_EQ(caught.count("hung"), 1u) << "the one of before";
}

TEST(Judge, OfSeveralMessagesTheLastOneCounts) {
  const std::string first =
      "step 3/100\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\nskipped\nstep 4/100\nstep 50/100\n";
  EXPECT_EQ(judged(exited(1), first + "ValueError: nan\n").kind, FailureKind::other) << "it was survived";
  const Failure last = judged(exited(1), first + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB.\n");
  EXPECT_EQ(last.kind, FailureKind::device_memory);
}

TEST(Run, TasksOfAnArrayHaveFoldersOfTheirOwn) {
  const Words command = {"python", "train.py"};
  const std::string alone = usual_folder(command);
  setenv("SLURM_ARRAY_TASK_ID", "7", 1);
  EXPECT_EQ(usual_folder(command), alone + "-7");
  unsetenv("SLURM_ARRAY_TASK_ID");
}

TEST(Run, StatesOfOthersAreKept) {
  const Folder folder;
  fs::create_directories(folder / "state");
  write(folder / "state/state.json", R"({"schema": 2, "command": ["true"]})");
  const Result newer = run(folder, "-- true");
  EXPECT_EQ(newer.code, 5) << newer.err;
  EXPECT_NE(newer.err.find("of a newer version of plimsoll (schema 2, known here: 1)"), std::string::npos) << newer.err;
  write(folder / "state/state.json", R"({"schema": 1, "command": ["false"], "attempt": 3})");
  const Result other = run(folder, "-- true");
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_NE(text_of(folder / "state/state.broken").find("\"false\""), std::string::npos) << other.err;
}

TEST(Run, BothStreamsInOneFileKeepTheirOrder) {
  const Folder folder;
  const std::string line = "cd '" + folder.path.string() +
                           "' && " PLIMSOLL_BINARY
                           " run --quiet --state s -- sh -c 'for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done' >all 2>&1";
  EXPECT_EQ(std::system(line.c_str()), 0);
  std::string expected;
  for (int i = 1; i < 10; ++i) expected += "o" + std::to_string(i) + "\ne" + std::to_string(i) + "\n";
  EXPECT_EQ(text_of(folder / "all"), expected);
}

TEST(Run, DoesNotSuperviseAQueue) {
  const Folder folder;
  const Result r = run(folder, "-- env A=1 sbatch job.sh");
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("sbatch only puts a job into the queue"), std::string::npos) << r.err;
}

// ---- commands inside of others

const char* const kClm =
    "run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 8 --output_dir out --gradient_accumulation_steps 2";

TEST(Trainers, AreFoundBehindWhatStartsThem) {
  for (const std::string before : {"nohup", "env -u HOME A=1", "nice -n 5", "stdbuf -oL", "timeout -k 10 2h", "taskset -c 0-3",
                                   "numactl -N 0 --membind=0", "conda run -n x", "conda run --no-capture-output -p /opt/x",
                                   "uv run --with torch", "poetry run", "apptainer exec --nv -B /data image.sif", "time nohup",
                                   "sudo -u me -E", "accelerate launch --num_processes 1", "srun --ntasks=1 conda run -n x"}) {
    std::istringstream words(before + (before.starts_with("accelerate") ? " " : " python ") + kClm);
    const Words command{std::istream_iterator<std::string>(words), {}};
    std::string why;
    const auto s = settings_of_trainer(command, &why);
    ASSERT_TRUE(s) << before << ": " << why;
    EXPECT_EQ(s->now().batch, 8) << before;
    Words expected = command;
    std::replace(expected.begin(), expected.end(), std::string("8"), std::string("4"));
    expected.back() = "4";
    EXPECT_EQ(s->say({4, 4, -1}, "nowhere").command, expected) << before;
  }
}

TEST(Trainers, AreToldInsideOfAShell) {
  const Folder folder;
  const std::string script = std::string("cd . && python ") + kClm + " >log 2>&1";
  std::string why;
  const auto inline_text = settings_of_trainer({"bash", "-lc", script}, &why);
  ASSERT_TRUE(inline_text) << why;
  Launch l = inline_text->say({4, 4, -1}, folder.path.string());
  add_words(l, folder.path.string(), {"--resume_from_checkpoint", "out/checkpoint-5"});
  EXPECT_EQ(l.command, (Words{"bash", "-lc",
                              "cd . && python run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 4 --output_dir out "
                              "--gradient_accumulation_steps 4 --resume_from_checkpoint out/checkpoint-5 >log 2>&1"}));
  EXPECT_EQ(resume_of_trainer({"bash", "-lc", script}).checkpoints, "out/checkpoint-*");

  write(folder / "train.sh",
        "#!/bin/bash\nset -e\nBS=8\npython run_clm.py --model_name_or_path gpt2 \\\n  --per_device_train_batch_size $BS --output_dir "
        "out\necho done\n");
  fs::create_directories(folder / "state");
  for (const Words& command : {Words{"bash", "-e", folder / "train.sh"}, Words{folder / "train.sh"}}) {
    const auto file = settings_of_trainer(command, &why);
    ASSERT_TRUE(file) << why;
    Launch f = file->say({4, 2, -1}, folder / "state");
    EXPECT_EQ(f.command.back(), folder / "state/train.sh");
    add_words(f, folder / "state", {"--more"});
    EXPECT_EQ(text_of(folder / "state/train.sh"),
              "#!/bin/bash\nset -e\nBS=4\npython run_clm.py --model_name_or_path gpt2 \\\n  --per_device_train_batch_size $BS --output_dir "
              "out \\\n  --gradient_accumulation_steps 2 --more\necho done\n");
  }
  write(folder / "place.sh", std::string("cd \"$(dirname \"$0\")\"\npython ") + kClm + "\n");
  const auto place = settings_of_trainer({"sh", folder / "place.sh"}, &why);
  ASSERT_TRUE(place) << why;
  EXPECT_THROW(place->say({4, 4, -1}, folder / "state"), Error);
  EXPECT_THROW(settings_by_templates({"sh", "-c", "python t.py --b 4"}, {"--b={batch}"}, {4, 0, -1}), Error);
}

TEST(Run, RefusesToBeOneOfManyRanks) {
  const Folder folder;
  setenv("TORCHELASTIC_RUN_ID", "x", 1), setenv("WORLD_SIZE", "2", 1), setenv("RANK", "1", 1);
  const Result r = run(folder, "-- true");
  unsetenv("TORCHELASTIC_RUN_ID"), unsetenv("WORLD_SIZE"), unsetenv("RANK");
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("this is rank 1 of 2 of torchrun"), std::string::npos) << r.err;
}

TEST(Run, RefusesNumbersThatCannotBe) {
  const Folder folder;
  const Result large = run(folder, "--set 'BATCH={batch}' --batch 9223372036854775807 --accumulation 9 -- true");
  EXPECT_EQ(large.code, 5);
  EXPECT_NE(large.err.find("does not fit in 63 bits"), std::string::npos) << large.err;
  const Result nan = run(folder, "--backoff nan -- true");
  EXPECT_EQ(nan.code, 2);
  EXPECT_NE((nan.out + nan.err).find("'nan' is not between"), std::string::npos) << nan.out << nan.err;
}

TEST(Run, SurvivesKillNine) { EXPECT_EQ(std::system(("'" + kRoot + "/tests/run/kill_nine' " PLIMSOLL_BINARY " 5").c_str()), 0); }

TEST(Run, RealPyTorchAloneAndUnderTorchrun) {
  EXPECT_EQ(std::system(("'" + kRoot + "/tests/run/pytorch' " PLIMSOLL_BINARY " alone torchrun").c_str()), 0);
}

}  // namespace
}  // namespace plimsoll::run_test
