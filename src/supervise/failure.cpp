#include "supervise/failure.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "util/text.h"

namespace plimsoll {

namespace {

bool starts(const std::string& text, const char* with) { return text.starts_with(with); }

FailureKind kind_of(const Symptom& s) {
  if (starts(s.kind, "dataloader") || s.memory == Memory::shm) return FailureKind::worker;
  return s.memory == Memory::host ? FailureKind::host_memory : FailureKind::device_memory;
}

std::string words_for(FailureKind kind) {
  switch (kind) {
    case FailureKind::device_memory: return "the device ran out of memory";
    case FailureKind::host_memory: return "the host ran out of memory";
    case FailureKind::worker: return "a worker of the data loader died";
    default: return "";
  }
}

// What a text says, or nothing. A SIGKILL that only a launcher reports says less than a message of the process itself.
bool read_text(Failure& f, const std::string& text, const char* source) {
  std::istringstream in(text);
  const Diagnosis d = diagnose(in);
  if (d.progress && d.progress->training && d.progress->done) f.step = std::max(f.step.value_or(0), *d.progress->done);
  if (!d.is_oom() || d.recovered) return false;
  if (f.is_memory()) {  // known already
    f.sources.emplace_back(source);
    return true;
  }
  f.kind = kind_of(*d.symptom);
  f.reason = words_for(f.kind) + ": " + printable(d.text, 300);
  f.text = d.text;
  f.ranks = d.ranks;
  f.sources.emplace_back(source);
  f.fragmented = f.kind == FailureKind::device_memory && d.fragmented();
  if (d.symptom->total) f.limit = std::max<int64_t>(0, d.symptom->allowed.value_or(*d.symptom->total) - (d.others ? d.others->count : 0));
  return true;
}

void add(Failure& f, FailureKind kind, const char* source, const std::string& reason) {
  f.sources.emplace_back(source);
  if (f.is_memory()) return;
  f.kind = kind;
  f.reason = reason;
}

}  // namespace

const char* to_string(FailureKind kind) {
  switch (kind) {
    case FailureKind::none: return "none";
    case FailureKind::device_memory: return "device_memory";
    case FailureKind::host_memory: return "host_memory";
    case FailureKind::worker: return "worker";
    case FailureKind::stopped: return "stopped";
    case FailureKind::other: return "other";
  }
  return "";
}

Failure judge(const FailureEvidence& e) {
  Failure f;
  const bool signalled = WIFSIGNALED(e.status);
  const int signal = signalled ? WTERMSIG(e.status) : WEXITSTATUS(e.status) > 128 ? WEXITSTATUS(e.status) - 128 : 0;
  if (!signalled && WEXITSTATUS(e.status) == 0) {
    Failure progress;
    read_text(progress, e.output, "output");
    f.step = progress.step;
    return f;
  }
  read_text(f, e.output, "output");
  for (const std::string& text : e.error_files) read_text(f, text, "error file");
  if (e.forwarded != 0) {
    f.kind = FailureKind::stopped;
    f.reason = fmt::format("signal {} ({}) was passed on", e.forwarded, strsignal(e.forwarded));
    return f;
  }
  if (e.oom_kills > 0)
    add(f, FailureKind::host_memory, "control group",
        fmt::format("the host ran out of memory: the kernel ended {} process{} of this control group", e.oom_kills,
                    e.oom_kills == 1 ? "" : "es"));
  if (e.slurm_state == "OUT_OF_MEMORY")
    add(f, FailureKind::host_memory, "slurm", "the host ran out of memory: Slurm's state is OUT_OF_MEMORY");
  if (signal == SIGKILL)
    add(f, FailureKind::host_memory, "exit status", "the host ran out of memory, most likely: the process was killed by signal 9");
  if (signal == SIGBUS)
    add(f, FailureKind::worker, "exit status", "shared memory ran out, most likely: the process was ended by signal 7 (bus error)");
  if (f.is_memory()) return f;
  f.kind = FailureKind::other;
  f.reason = signalled ? fmt::format("ended by signal {} ({})", signal, strsignal(signal))
                       : fmt::format("ended with exit code {}", WEXITSTATUS(e.status));
  f.sources.emplace_back("exit status");
  return f;
}

bool waits_for_the_dead(const std::string& output) {
  std::istringstream in(output);
  const Diagnosis d = diagnose(in);
  return d.is_oom() && !d.recovered && !d.traceback.frames.empty();
}

int64_t oom_kills(const std::string& root) {
  std::ifstream in(root + "/proc/self/cgroup");
  int64_t kills = 0;
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> parts = split_at(line, ':');
    if (parts.size() < 3) continue;
    const bool unified = parts[0] == "0", memory = parts[1] == "memory";
    if (!unified && !memory) continue;
    // In a container the path may be that of the host: then the group is the folder itself.
    const std::string base = root + (unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    for (const std::string& folder : {base + parts[2], base}) {
      std::ifstream events(folder + (unified ? "/memory.events" : "/memory.oom_control"));
      if (!events) continue;
      std::string name;
      for (int64_t count = 0; events >> name >> count;)
        if (name == "oom_kill") kills += count;
      break;
    }
  }
  return kills;
}

std::string read_error_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) return "";
  const nlohmann::json file = nlohmann::json::parse(in, nullptr, false);
  if (!file.is_object()) return "";
  const nlohmann::json message = file.value("message", nlohmann::json());
  if (message.is_string()) return message.get<std::string>();
  if (!message.is_object()) return "";
  const nlohmann::json stack = message.value("extraInfo", nlohmann::json::object());
  std::string out;
  if (stack.is_object() && stack.contains("py_callstack") && stack["py_callstack"].is_string())
    out = stack["py_callstack"].get<std::string>() + "\n";
  if (message.contains("message") && message["message"].is_string()) out += message["message"].get<std::string>();
  return out;
}

}  // namespace plimsoll
