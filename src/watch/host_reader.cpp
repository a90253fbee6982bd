#include "watch/host_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "util/text.h"

namespace plimsoll {

namespace {

// The number after "key" at the beginning of a line: "MemTotal:  123 kB", "pswpin 5". Lines of longer keys are passed over.
std::optional<int64_t> number_of(const std::string& text, const std::string& key) {
  for (size_t line = 0; line < text.size(); line = std::min(text.size(), text.find('\n', line)) + 1) {
    if (text.compare(line, key.size(), key) != 0) continue;
    const size_t begin = text.find_first_not_of(": \t", line + key.size());
    if (begin == std::string::npos || begin == line + key.size()) continue;
    const size_t end = std::min(text.size(), text.find_first_not_of("0123456789", begin));
    return whole_number(text.substr(begin, end - begin));
  }
  return {};
}

std::optional<Bytes> meminfo_bytes(const std::string& text, const char* key) {
  const auto n = number_of(text, key);
  return n && *n <= INT64_MAX / 1024 ? std::optional(Bytes{*n * 1024}) : std::nullopt;
}

// "some avg10=1.23 avg60=...": percent.
std::optional<double> average(const std::string& text, const std::string& line) {
  const size_t at = text.find(line + " avg10=");
  if (at == std::string::npos) return {};
  return std::clamp(std::strtod(text.c_str() + at + line.size() + 7, nullptr) / 100, 0.0, 1.0);
}

std::string kills_file(const ControlGroup& g) { return g.folder + (g.v2 ? "/memory.events" : "/memory.oom_control"); }

constexpr double kSecondsBetweenGroups = 10, kSecondsBetweenCpus = 5;

}  // namespace

void HostReader::read_meminfo(HostSample& h) const {
  const std::string text = s_.read("/proc/meminfo").value_or("");
  h.total = meminfo_bytes(text, "MemTotal");
  h.available = meminfo_bytes(text, "MemAvailable");
  h.swap_total = meminfo_bytes(text, "SwapTotal");
  if (const auto free = meminfo_bytes(text, "SwapFree"); free && h.swap_total) h.swap_used = *h.swap_total - *free;
}

void HostReader::read_group(HostSample& h, double now) {
  if (now >= next_group_) {
    next_group_ = now + kSecondsBetweenGroups;
    group_.reset();
    std::optional<Bytes> tightest;
    const std::vector<ControlGroup> groups = control_groups(s_, process_);
    own_.reset();
    for (const ControlGroup& g : groups)
      if (!own_ && s_.exists(kills_file(g))) own_ = g;
    for (const ControlGroup& g : groups)
      if (const auto limit = g.limit(s_); limit && (!tightest || *limit < *tightest)) group_ = g, tightest = limit;
  }
  if (!group_) return;
  h.limit = group_->limit(s_);
  h.limit_source = group_->limit_file();
  h.limit_used = group_->used(s_);
  if (!h.limit_used) return;
  // Files in memory are given back before anything is killed. The lists of both versions leave shared memory out.
  const std::string stat = s_.read(group_->folder + "/memory.stat").value_or("");
  for (const std::string key : {"inactive_file", "active_file"})
    if (const auto n = number_of(stat, group_->v2 ? key : "total_" + key)) *h.limit_used = std::max(Bytes{0}, *h.limit_used - Bytes{*n});
}

void HostReader::read_pressure(HostSample& h) const {
  std::string text;
  if (group_ && group_->v2) text = s_.read(group_->folder + "/memory.pressure").value_or("");
  if (text.empty()) text = s_.read("/proc/pressure/memory").value_or("");
  h.pressure_some = average(text, "some");
  h.pressure_full = average(text, "full");
}

void HostReader::read_vmstat(HostSample& h, double now) {
  const std::string text = s_.read("/proc/vmstat").value_or("");
  const int64_t in = number_of(text, "pswpin").value_or(0), out = number_of(text, "pswpout").value_or(0);
  const int64_t refaults = number_of(text, "workingset_refault_file").value_or(0) + number_of(text, "workingset_refault_anon").value_or(0);
  // Of the process's own group where it counts them: on a shared machine the kernel also ends processes of others.
  std::optional<int64_t> kills;
  if (own_) kills = number_of(s_.read(kills_file(*own_)).value_or(""), "oom_kill");
  h.oom_kills = kills ? *kills : number_of(text, "oom_kill").value_or(0);
  if (const double seconds = now - last_time_; last_in_ >= 0 && seconds > 0) {
    const double pages = static_cast<double>(sysconf(_SC_PAGESIZE)) / seconds;
    h.swap_in = static_cast<double>(std::max<int64_t>(0, in - last_in_)) * pages;
    h.swap_out = static_cast<double>(std::max<int64_t>(0, out - last_out_)) * pages;
    h.refaults = static_cast<double>(std::max<int64_t>(0, refaults - last_refaults_)) * pages;
  }
  last_in_ = in, last_out_ = out, last_refaults_ = refaults, last_time_ = now;
}

void HostReader::read_cpus(HostSample& h, double now) {
  if (now >= next_cpus_) {
    next_cpus_ = now + kSecondsBetweenCpus;
    const std::string text = s_.read("/proc/stat").value_or("");
    cpus_ = 0;
    for (size_t at = text.find("\ncpu"); at != std::string::npos; at = text.find("\ncpu", at + 1)) ++cpus_;
    int64_t idle = 0, all = 0;
    // user nice system idle iowait irq softirq steal
    const std::vector<std::string> fields = split_at(text.substr(0, text.find('\n')), ' ');
    for (size_t i = 2; i < std::min<size_t>(fields.size(), 10); ++i) {
      const int64_t n = whole_number(fields[i]).value_or(0);
      all += n;
      if (i == 5 || i == 6) idle += n;
    }
    if (last_idle_ >= 0 && all > last_all_)
      idle_cpus_ = static_cast<double>(cpus_) * static_cast<double>(idle - last_idle_) / static_cast<double>(all - last_all_);
    last_idle_ = idle, last_all_ = all;
  }
  h.idle_cpus = idle_cpus_;
  h.cpus = cpus_;
}

// A container has its own /dev/shm, which is seen through its process.
void HostReader::read_shm(HostSample& h) const {
  for (const std::string& folder : {"/proc/" + process_ + "/root/dev/shm", std::string("/dev/shm")}) {
    std::error_code error;
    const auto space = std::filesystem::space(s_.root + folder, error);
    if (error || space.capacity == 0 || space.capacity > static_cast<uint64_t>(INT64_MAX)) continue;
    h.shm_total = Bytes{static_cast<int64_t>(space.capacity)};
    h.shm_used = Bytes{static_cast<int64_t>(space.capacity - space.free)};
    return;
  }
}

HostSample HostReader::read(double now) {
  HostSample h;
  read_meminfo(h);
  read_group(h, now);
  read_pressure(h);
  read_vmstat(h, now);
  read_cpus(h, now);
  read_shm(h);
  return h;
}

}  // namespace plimsoll
