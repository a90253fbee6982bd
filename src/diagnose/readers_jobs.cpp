// Who ends a job for its memory on clusters, clouds and desktops: Ray, Dask, PBS, LSF, YARN, HTCondor, containers, systemd-oomd, Windows,
// notebooks; and virtual machines whose own heap is full.
#include <algorithm>
#include <string>

#include "diagnose/printed_size.h"
#include "diagnose/symptom.h"
#include "diagnose/words.h"

namespace plimsoll {

namespace {

// "Memory on the node (...) where the task (...) was running was 59.49GB / 62.58GB (0.950744), which exceeds the memory usage threshold"
std::optional<Symptom> ray(const Place& place) {
  if (!is_complete_message(place)) return {};
  Symptom s = symptom("ray", "ray", Memory::host);
  const std::string_view text = place.from().substr(0, 700);
  s.allocated = size_after(text, "was running was ");
  if (const size_t at = text.find("was running was "); at != std::string_view::npos) s.total = size_after(text.substr(at), " / ");
  return s;
}

// "RayOutOfMemoryError: More than 95% of the memory on node NAME is used (11.8 / 12.3 GB)", up to Ray 2.1; the unit stands once.
std::optional<Symptom> old_ray(const Place& place) {
  const std::string_view text = place.from().substr(0, 300);
  const size_t used = text.find("is used (");
  const auto total = used == std::string_view::npos ? std::nullopt : size_after(text.substr(used), " / ");
  if (!total || !is_complete_message(place)) return {};
  Symptom s = symptom("ray", "ray", Memory::host);
  s.total = total;
  const std::string_view number = text.substr(used + 9, text.find(" /", used) - used - 9);
  s.allocated = size_after(std::string(number) + " GB", "");
  return s;
}

// "12 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed"
std::optional<Symptom> ray_workers(const Place& place) {
  std::string_view before = place.before();
  const size_t digit = before.find_last_not_of("0123456789");
  const std::string_view count = before.substr(digit == std::string_view::npos ? 0 : digit + 1);
  if (count.empty() || count.find_first_not_of('0') == std::string_view::npos) return {};
  return symptom("ray", "ray", Memory::host);
}

// "distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting"
std::optional<Symptom> dask(const Place& place) {
  if (!has(place.after().substr(0, 40), "memory budget")) return {};
  return symptom("dask", "dask", Memory::host);
}

// "=>> PBS: job killed: mem 38427376kb exceeded limit 33554432kb"; vmem is in bytes without a unit.
std::optional<Symptom> pbs(const Place& place) {
  const std::string_view line = place.line();
  if (!has(line, "mem ") || !has(line, "exceeded limit")) return {};
  Symptom s = symptom("pbs", "", Memory::host);
  const auto amount = [&](std::string_view marker) {
    return size_after(line, marker) ? size_after(line, marker) : number_after(line, marker);
  };
  s.allocated = amount("mem ");
  s.total = amount("exceeded limit ");
  return s;
}

std::optional<Symptom> torque(const Place&) { return symptom("pbs", "", Memory::host); }

// "job 3132467 exceeded MEM usage hard limit (2528 > 1126)", in MiB.
std::optional<Symptom> moab(const Place& place) {
  Symptom s = symptom("pbs", "", Memory::host);
  const auto used = number_after(place.after(), "("), limit = number_after(place.after(), " > ");
  if (!used || !limit || *used > 1 << 30 || *limit > 1 << 30) return {};
  s.allocated = *used << 20;
  s.total = *limit << 20;
  return s;
}

// "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit." with a summary of what was used and requested after it.
std::optional<Symptom> lsf(const Place& place) {
  if (!has(place.line(), "job killed")) return {};
  Symptom s = symptom("lsf", "", Memory::host);
  const std::string_view text = place.from().substr(0, 1200);
  const auto figure = [&](std::string_view name) -> std::optional<int64_t> {
    const size_t at = text.find(name);
    if (at == std::string_view::npos) return {};
    const std::string_view rest = text.substr(at + name.size());
    const size_t digit = rest.find_first_of("0123456789"), end = rest.find('\n');
    return digit == std::string_view::npos || digit > end ? std::nullopt : size_after(rest.substr(digit, end - digit), "");
  };
  s.allocated = figure("Max Memory :");
  s.total = figure("Total Requested Memory :");
  return s;
}

// "Container killed by YARN for exceeding memory limits. 20.0 GB of 20 GB physical memory used."
std::optional<Symptom> yarn(const Place& place) {
  const std::string_view text = place.from().substr(0, 200);
  if (!has(text, "memory limits")) return {};
  Symptom s = symptom("yarn", "", Memory::host);
  s.allocated = size_before(text, " of ");
  s.total = size_after(text, " of ");
  return s;
}

std::optional<Symptom> java(const Place& place) {
  if (has(place.before(), "catch") || has(place.before(), "//") || has(place.before(), "XX:")) return {};
  return symptom("java_heap", "java", Memory::host);
}

// "# There is insufficient memory for the Java Runtime Environment to continue.", with the size in the next line.
std::optional<Symptom> java_native(const Place& place) {
  Symptom s = symptom("java_heap", "java", Memory::host);
  s.tried = number_after(place.from().substr(0, 300), "failed to allocate ");
  return s;
}

std::optional<Symptom> node_heap(const Place& place) {
  if (!is_complete_message(place)) return {};
  return symptom("node_heap", "", Memory::host);
}

// "systemd-oomd[840]: Killed /user.slice/... due to memory pressure for ..."
std::optional<Symptom> oomd(const Place& place) {
  if (!has(place.before(), "Killed ") && !has(place.before(), "Marked ")) return {};
  return symptom("systemd_oomd", "", Memory::host);
}

// "Killed /user.slice/... due to memory used (32305733632) / total (33046921216) and swap used (...)"
std::optional<Symptom> oomd_used(const Place& place) {
  if (!has(place.before(), "Killed ")) return {};
  Symptom s = symptom("systemd_oomd", "", Memory::host);
  s.allocated = number_after(place.from(), "memory used (");
  s.total = number_after(place.from(), "total (");
  return s;
}

// "earlyoom[1234]: sending SIGTERM to process 4567 uid 1000 "python": badness 1120, VmRSS 29000 MiB"
std::optional<Symptom> earlyoom(const Place& place) {
  if (!number_after(place.from(), "to process ") || !has(place.line(), "badness")) return {};
  Symptom s = symptom("earlyoom", "", Memory::host);
  s.allocated = size_after(place.line(), "VmRSS ");
  return s;
}

std::optional<Symptom> oomd_unit(const Place& place) {
  const auto killed = number_after(place.from(), "systemd-oomd killed ");
  return killed && *killed > 0 ? std::optional(symptom("systemd_oomd", "", Memory::host)) : std::nullopt;
}

std::optional<Symptom> systemd_unit(const Place&) { return symptom("kernel_oom", "", Memory::host); }

// "[WinError 1455] The paging file is too small for this operation to complete", in the words of any language.
std::optional<Symptom> paging_file(const Place& place) {
  if (has(place.before(), "if you") || has(place.before(), "solve") || has(place.before(), "//")) return {};
  return symptom("windows_commit", "", Memory::host);
}

std::optional<Symptom> notebook(const Place&) { return symptom("notebook", "", Memory::host); }

Symptom likely_killed() {
  Symptom s = symptom("sigkill", "", Memory::host);
  s.certainty = Certainty::likely;
  return s;
}

// "zsh: killed     python train.py", "Killed: 9" on macOS: what a shell says, at the beginning of a line.
std::optional<Symptom> killed(const Place& place) {
  const std::string_view before = place.before();
  if (before.find_first_not_of(" \t") != std::string_view::npos && !has(before, "line ")) return {};
  return likely_killed();
}

std::optional<Symptom> loky(const Place&) { return likely_killed(); }

// What `docker inspect` says of a container.
std::optional<Symptom> docker(const Place&) { return symptom("cgroup_oom", "", Memory::host); }

// "The replica master 0 ran out-of-memory and exited with a non-zero status of 9(SIGKILL)", of Google's training service.
std::optional<Symptom> replica(const Place& place) {
  if (!has(place.before(), "replica")) return {};
  return symptom("cgroup_oom", "", Memory::host);
}

// "OutOfMemoryError: Container killed due to memory usage" of ECS, "container init was OOM-killed (memory limit too low?)" of runc.
std::optional<Symptom> container(const Place& place) {
  if (!is_complete_message(place)) return {};
  return symptom("cgroup_oom", "", Memory::host);
}

// "reason": "OOM Killed", as Kubernetes wrote it up to 1.2.
std::optional<Symptom> old_kubernetes(const Place& place) {
  if (!has(place.before(), "eason")) return {};
  return symptom("kubernetes_oom", "", Memory::host);
}

// "Error from slot1: memory usage exceeded request_memory" of HTCondor.
std::optional<Symptom> condor(const Place& place) {
  if (!is_complete_message(place)) return {};
  return symptom("condor", "", Memory::host);
}

// What compilers say when a part of them was killed: building an extension with many jobs at once.
std::optional<Symptom> compiler(const Place&) { return likely_killed(); }

}  // namespace

std::vector<SymptomReader> job_readers() {
  return {
      {"Task was killed due to the node running low on memory", ray},
      {" Workers (tasks / actors) killed due to memory pressure", ray_workers},
      {"Worker exceeded ", dask},
      {"PBS: job killed: ", pbs},
      {"Job exceeded a memory resource limit", torque},
      {"exceeded MEM usage hard limit", moab},
      {"TERM_MEMLIMIT", lsf},
      {"killed by YARN for exceeding ", yarn},
      {"java.lang.OutOfMemoryError", java},
      {"insufficient memory for the Java Runtime Environment", java_native},
      {"JavaScript heap out of memory", node_heap},
      {" due to memory pressure for ", oomd},
      {"systemd-oomd killed ", oomd_unit},
      {"A process of this unit has been killed by the OOM killer", systemd_unit},
      {"WinError 1455", paging_file},
      {"os error 1455", paging_file},
      {"error code: <1455>", paging_file},
      {"paging file is too small", paging_file},
      {"crashed after using all available RAM", notebook},
      {"zsh: killed ", killed},
      {"Killed: 9", killed},
      {"exit codes of the workers are {SIGKILL(-9)", loky},
      {"\"OOMKilled\": true", docker},
      {"RayOutOfMemoryError: More than ", old_ray},
      {" due to memory used (", oomd_used},
      {"sending SIGTERM ", earlyoom},
      {"sending SIGKILL ", earlyoom},
      {"ran out-of-memory and exited with ", replica},
      {"Container killed due to memory usage", container},
      {"container init was OOM-killed", container},
      {"OOM Killed", old_kubernetes},
      {"memory usage exceeded request_memory", condor},
      {"Killed signal terminated program ", compiler},
      {"died due to signal 9 (Kill signal)", compiler},
  };
}

}  // namespace plimsoll
