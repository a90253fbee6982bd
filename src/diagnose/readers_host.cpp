// Whoever ends processes for their memory: the kernel, control groups, Slurm, Kubernetes; and what launchers see of it.
#include <algorithm>

#include "diagnose/printed_size.h"
#include "diagnose/symptom.h"
#include "diagnose/words.h"

namespace plimsoll {

namespace {

Symptom on_host(const char* kind, Certainty certainty = Certainty::certain) {
  Symptom s;
  s.kind = kind;
  s.memory = Memory::host;
  s.certainty = certainty;
  return s;
}

// "Out of memory: Killed process 7899 (python) total-vm:26184840kB, anon-rss:15370088kB, file-rss:0kB, shmem-rss:0kB". Up to Linux 5.0 the
// sizes are in a line of their own, "Killed process 935 (python) total-vm:...".
void read_killed(Symptom& s, std::string_view text) {
  const size_t process = text.find("illed process ");
  if (process == std::string_view::npos || process > 300) return;
  text = text.substr(process, 400);
  const size_t open = text.find('('), close = text.find(')');
  if (open < close && close < 80) s.note = std::string(text.substr(open + 1, close - open - 1));
  const auto anonymous = size_after(text, "anon-rss:"), file = size_after(text, "file-rss:"), shared = size_after(text, "shmem-rss:");
  if (anonymous) s.allocated = *anonymous + file.value_or(0) + shared.value_or(0);
}

std::optional<Symptom> kernel(const Place& place, const char* kind) {
  const std::string_view after = place.after();
  if (!after.starts_with(" Kill") || !number_after(after, "process ") || !is_complete_message(place)) return {};
  Symptom s = on_host(kind);
  read_killed(s, place.from());
  return s;
}

std::optional<Symptom> group(const Place& place) { return kernel(place, "cgroup_oom"); }

std::optional<Symptom> machine(const Place& place) {
  if (has(place.before(), "Memory cgroup")) return {};
  return kernel(place, "kernel_oom");
}

// "Killed process 935 (python) total-vm:113656kB, anon-rss:102104kB" alone: an excerpt of dmesg.
std::optional<Symptom> excerpt(const Place& place) {
  if (has(place.before(), "ut of memory") || !has(place.line(), "total-vm:") || !is_complete_message(place)) return {};
  Symptom s = on_host("kernel_oom");
  read_killed(s, place.from());
  return s;
}

// "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),...,task=python,pid=7899,uid=0". The group's limit may stand before or after.
std::optional<Symptom> constraint(const Place& place) {
  Symptom s = on_host(has(place.after().substr(0, 40), "MEMCG") ? "cgroup_oom" : "kernel_oom");
  const std::string_view line = place.line();
  if (const size_t task = line.find(",task="); task != std::string_view::npos)
    s.note = std::string(line.substr(task + 6, line.find(',', task + 6) - task - 6)).substr(0, 40);
  read_killed(s, place.after());
  return s;
}

// "memory: usage 1048576kB, limit 1048576kB, failcnt 123" stands between them.
std::optional<Symptom> invoked(const Place& place) {
  const std::string_view line = place.line();
  if (!has(line, "gfp_mask=") && !has(line, "order=")) return {};
  const std::string_view report = place.text.substr(0, 16000);
  Symptom s = on_host(has(report, "CONSTRAINT_MEMCG") || has(report, "Memory cgroup out of memory") ? "cgroup_oom" : "kernel_oom");
  if (const size_t usage = report.find("memory: usage "); usage != std::string_view::npos) {
    s.total = size_after(report.substr(usage, 200), "limit ");
    s.allocated = size_after(report.substr(usage, 200), "usage ");
  }
  if (const size_t killed = report.find("illed process "); killed != std::string_view::npos && !s.allocated)
    read_killed(s, report.substr(killed));
  else if (killed != std::string_view::npos) {
    Symptom process;
    read_killed(process, report.substr(killed));
    s.note = process.note;
  }
  return s;
}

// "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0."; earlier "1 oom-kill event(s) in step 3495064.0 cgroup".
std::optional<Symptom> slurm_event(const Place& place) {
  if (!has(place.before(), "Detected ") || !is_complete_message(place)) return {};
  const auto events = number_after(place.before(), "Detected ");
  if (!events || *events == 0) return {};
  return on_host("slurm_oom");
}

// "Job 42664148 exceeded memory limit (10889240 > 4194304), being killed": kilobytes.
std::optional<Symptom> slurm_limit(const Place& place) {
  const auto used = number_after(place.after(), " ("), limit = number_after(place.after(), " > ");
  if (!used || !limit || *used > (int64_t{1} << 50) || *limit > (int64_t{1} << 50)) return {};
  Symptom s = on_host("slurm_oom");
  s.allocated = *used * 1024;
  s.total = *limit * 1024;
  return s;
}

// "Exceeded job memory limit": killed; with "at some point" it may also have been pages of files, and the job went on.
std::optional<Symptom> slurm_exceeded(const Place& place) {
  if (!is_complete_message(place)) return {};
  const std::string_view before = place.before();
  if (!before.empty() && !has(before, "slurm") && !has(before, "srun") && !has(before, "error")) return {};
  Symptom s = on_host("slurm_oom");
  s.harmless_alone = place.after().starts_with(" at some point");
  return s;
}

// "srun: error: sdumont6156: task 0: Out Of Memory".
std::optional<Symptom> slurm_task(const Place& place) {
  if (!has(place.before(), "srun:") && !has(place.before(), "task")) return {};
  Symptom s = on_host("slurm_oom");
  if (const auto task = number_after(place.before(), "task "); task && *task < 100000) s.rank = static_cast<int>(*task);
  return s;
}

// The state in sacct's table, seff's summary, mails.
std::optional<Symptom> slurm_state(const Place& place) {
  const std::string_view line = place.line(), before = place.before();
  const bool isolated = (before.empty() || std::string_view(" |:\t=").find(before.back()) != std::string_view::npos) &&
                        (place.after().empty() || std::string_view(" |\n+,\t").find(place.after()[0]) != std::string_view::npos);
  if (!isolated || has(line, "import") || has(line, "state in") || !is_complete_message(place)) return {};
  const bool table =
      number_after(line, "").has_value() || has(before, "State") || has(before, "state") || has(line, "0:125") || has(line, "Slurm");
  if (!table) return {};
  return on_host("slurm_oom");
}

std::optional<Symptom> kubernetes(const Place& place) {
  const std::string_view before = place.before(), line = place.line();
  const bool field = has(before, "Reason") || has(before, "reason") || has(before, "STATUS") || has(before, "Last State") ||
                     has(before, "0/1") || has(before, "/") || before.find_first_not_of(" \t") == std::string_view::npos;
  if (!field || has(line, "==") || !is_complete_message(place)) return {};
  return on_host("kubernetes_oom");
}

std::optional<Symptom> evicted(const Place& place) {
  if (!is_complete_message(place)) return {};
  Symptom s = on_host("kubernetes_evicted");
  s.allocated = size_after(place.from().substr(0, 400), "was using ");
  s.total = size_after(place.from().substr(0, 400), "request of ");
  return s;
}

// 128 + 9: SIGKILL. Somebody may have sent it by hand.
std::optional<Symptom> killed_code(const Place& place) {
  const std::string_view after = place.after();
  if (!after.empty() && after[0] >= '0' && after[0] <= '9') return {};
  if (!is_complete_message(place) || !ends_sentence(after)) return {};
  return on_host("sigkill", Certainty::likely);
}

// torchrun: "failed (exitcode: -9) local_rank: 4 (pid: 899509)"; its summary has "exitcode  : -9 (pid: 14750)" after the rank.
std::optional<Symptom> torchelastic(const Place& place) {
  auto s = killed_code(place);
  if (!s) return {};
  s->framework = "pytorch";
  if (const auto rank = number_after(place.line(), "local_rank: "); rank && *rank < 100000) s->rank = static_cast<int>(*rank);
  return s;
}

std::optional<Symptom> signal_received(const Place& place) {
  if (!is_complete_message(place)) return {};
  Symptom s = on_host("sigkill", Certainty::likely);
  s.framework = "pytorch";
  return s;
}

// What a shell says of its child: "Killed" alone, "train.sh: line 28:  8156 Killed                  python3 main.py".
std::optional<Symptom> shell(const Place& place) {
  const std::string_view line = place.line(), before = place.before(), after = place.after();
  const auto is_end = [](char c) { return c == ' ' || c == '\n' || c == '(' || c == '\t'; };
  if (!after.empty() && !is_end(after[0])) return {};
  const bool alone = line == "Killed" || line == "Killed " || line.starts_with("Killed (core dumped)");
  const size_t number = before.find_last_not_of(' ');
  const bool job = has(before, ": line ") && number != std::string_view::npos && before[number] >= '0' && before[number] <= '9';
  const bool background = before.starts_with("[") && has(before, "]") && has(before, "+");
  const bool task = has(before, "srun: error:") && has(before, "task");
  if (!alone && !job && !background && !task) return {};
  return on_host("sigkill", Certainty::likely);
}

}  // namespace

std::vector<SymptomReader> host_readers() {
  return {
      {"Memory cgroup out of memory:", group},
      {"Out of memory:", machine},
      {"Killed process ", excerpt},
      {"oom-kill:constraint=", constraint},
      {"invoked oom-killer:", invoked},
      {" oom_kill event", slurm_event},
      {" oom-kill event", slurm_event},
      {" exceeded memory limit", slurm_limit},
      {"Exceeded job memory limit", slurm_exceeded},
      {"Exceeded step memory limit", slurm_exceeded},
      {": Out Of Memory", slurm_task},
      {"OUT_OF_MEMORY", slurm_state},
      {"OUT_OF_ME+", slurm_state},
      {"OOMKilled", kubernetes},
      {"low on resource: memory", evicted},
      {"exit code 137", killed_code},
      {"exit code: 137", killed_code},
      {"Exit Code:    137", killed_code},
      {"Exit Code: 137", killed_code},
      {"exit status 137", killed_code},
      {"exited with code 137", killed_code},
      {"ExitCode: 137", killed_code},
      {"exitcode: 137", killed_code},
      {"exitCode\":137", killed_code},
      {"Exited (137)", killed_code},
      {"status of 137", killed_code},
      {"return code 137", killed_code},
      {"return code = 137", killed_code},
      {"returned non-zero exit status 137", killed_code},
      {"died with <Signals.SIGKILL: 9>", killed_code},
      {"terminated with signal SIGKILL", killed_code},
      {"exitcode: -9", torchelastic},
      {"exitcode  : -9", torchelastic},
      {"exits with return code = -9", killed_code},
      {"Signal 9 (SIGKILL) received by PID", signal_received},
      {"Killed", shell},
  };
}

}  // namespace plimsoll
