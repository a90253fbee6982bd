#include "watch/process_tree.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

// What the watch may take of one core for the two things that grow with what is watched.
constexpr double kShareOfShares = 0.003, kShareOfScans = 0.002;
constexpr double kRefresh = 30;  // seconds after which parents are read anew

// What this thread has used of a core.
double used_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double ticks_per_second() {
  static const double kTicks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return kTicks;
}

// "   24681512 kB" of /proc/<pid>/status and smaps_rollup.
std::optional<Bytes> kilobytes(const std::string& text, const std::string& key) {
  size_t at = text.starts_with(key) ? 0 : text.find("\n" + key);
  if (at == std::string::npos) return {};
  at = text.find_first_not_of("\n", at) + key.size();
  at = text.find_first_of("0123456789\n", at);
  if (at == std::string::npos || text[at] == '\n') return {};
  const auto number = whole_number(text.substr(at, text.find_first_not_of("0123456789", at) - at));
  return number && *number <= INT64_MAX / 1024 ? std::optional(Bytes{*number * 1024}) : std::nullopt;
}

std::optional<Bytes> sum(std::optional<Bytes> a, std::optional<Bytes> b) { return a && b ? *a + *b : a ? a : b; }

bool contains(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* word) { return text.find(word) != std::string::npos; });
}

}  // namespace

ProcessTree::ProcessTree(const Surroundings& s, int64_t root) : s_(s), root_(root) {
  const auto stat = stat_of(root);
  if (!stat)
    throw Error(fmt::format("[watch] there is no process {}", root),
                "`ps` lists them; a process of another container is not seen from here");
  root_started_ = stat->started;
}

// "pid (name) S ppid ...": a name may hold anything, so the last parenthesis counts.
std::optional<ProcessTree::Stat> ProcessTree::stat_of(int64_t pid) const {
  const auto text = s_.read(fmt::format("/proc/{}/stat", pid));
  if (!text) return {};
  const size_t open = text->find('('), close = text->rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 >= text->size()) return {};
  const std::vector<std::string> fields = split_at(text->substr(close + 2), ' ');  // from the third on
  const auto number = [&](size_t field) { return field - 3 < fields.size() ? whole_number(fields[field - 3]).value_or(0) : 0; };
  if (fields.size() < 20) return {};
  Stat out;
  out.name = printable(text->substr(open + 1, close - open - 1), 60);
  out.state = fields[0].empty() ? '?' : fields[0][0];
  out.parent = number(4);
  out.ticks = number(14) + number(15);
  out.started = number(22);
  out.blocked_ticks = number(42);
  return out;
}

std::string ProcessTree::command_line(int64_t pid) const { return s_.read(fmt::format("/proc/{}/cmdline", pid)).value_or(""); }

// "running waiting slices": nanoseconds of the first thread.
int64_t ProcessTree::queued_ns(int64_t pid) const {
  const std::vector<std::string> fields = split_at(s_.read(fmt::format("/proc/{}/schedstat", pid)).value_or(""), ' ');
  return fields.size() == 3 ? whole_number(fields[1]).value_or(0) : 0;
}

Role ProcessTree::role_of(int64_t pid, const Stat& stat) const {
  if (pid == root_) return Role::main;
  const std::string own = command_line(pid), parent = command_line(stat.parent);
  if (own.empty()) return Role::other;
  if (stat.name == "pt_data_worker") return Role::worker;
  // The servers of Python's multiprocessing are no workers; what the fork server forks looks like the server.
  if (contains(own, {"resource_tracker"})) return Role::other;
  if (contains(own, {"forkserver"})) return contains(parent, {"forkserver"}) ? Role::worker : Role::other;
  if (own == parent || contains(own, {"multiprocessing.spawn", "--multiprocessing-fork"})) return Role::worker;
  return contains(own, {"python"}) || contains(stat.name, {"python"}) ? Role::rank : Role::other;
}

void ProcessTree::find_children(double now) {
  if (now < next_scan_) return;
  const double begin = used_seconds();
  const bool refresh = now >= next_refresh_;
  std::map<int64_t, int64_t> parents;
  for (const std::string& name : s_.list("/proc")) {
    const auto pid = whole_number(name);
    if (!pid) continue;
    const auto known = parents_.find(*pid);
    if (known != parents_.end() && !refresh) {
      parents.insert(*known);
    } else if (const auto stat = stat_of(*pid)) {
      parents[*pid] = stat->parent;
    }
  }
  parents_ = std::move(parents);
  const double cost = used_seconds() - begin;
  next_scan_ = now + std::max(0.5, refresh ? 0 : cost / kShareOfScans);
  if (refresh) next_refresh_ = now + std::max(kRefresh, cost / kShareOfScans);
}

// The root and what descends from it. A child whose parent ended belongs to init, so it is kept once it is known.
std::vector<int64_t> ProcessTree::members(std::vector<std::string>& events) {
  std::vector<int64_t> out;
  const auto root = stat_of(root_);
  if (!root || root->started != root_started_ || root->state == 'Z') {
    if (!ended_)
      events.push_back(root && root->started != root_started_
                           ? fmt::format("process {} ended; its pid is now another process ({})", root_, root->name)
                           : fmt::format("process {} ended", root_));
    ended_ = true;
    return out;
  }
  std::set<int64_t> in{root_};
  for (bool more = true; more;) {
    more = false;
    for (const auto& [pid, parent] : parents_)
      if (in.contains(parent) && in.insert(pid).second) more = true;
  }
  for (const auto& [pid, known] : known_)
    if (parents_.contains(pid)) in.insert(pid);
  out.push_back(root_);
  for (const int64_t pid : in)
    if (pid != root_ && pid != getpid()) out.push_back(pid);
  return out;
}

void ProcessTree::read_sizes(ProcessSample& p) const {
  const auto text = s_.read(fmt::format("/proc/{}/status", p.pid));
  if (!text) return;
  p.rss = kilobytes(*text, "VmRSS:");
  p.anonymous = kilobytes(*text, "RssAnon:");
  p.shmem = kilobytes(*text, "RssShmem:");
  p.swap = kilobytes(*text, "VmSwap:");
  p.pinned = sum(kilobytes(*text, "VmPin:"), kilobytes(*text, "VmLck:"));
}

bool ProcessTree::read_shares(ProcessSample& p) const {
  const auto text = s_.read(fmt::format("/proc/{}/smaps_rollup", p.pid));
  if (!text || text->empty()) return false;
  p.pss = kilobytes(*text, "Pss:");
  p.shared = sum(kilobytes(*text, "Shared_Clean:"), kilobytes(*text, "Shared_Dirty:"));
  p.own = sum(kilobytes(*text, "Private_Clean:"), kilobytes(*text, "Private_Dirty:"));
  return p.pss.has_value();
}

std::vector<ProcessSample> ProcessTree::read(double now, std::vector<std::string>& events) {
  std::vector<ProcessSample> out;
  if (ended_) return out;
  find_children(now);
  const bool shares = now >= next_shares_;
  double cost = 0;
  for (const int64_t pid : members(events)) {
    const auto stat = stat_of(pid);
    if (!stat || stat->state == 'Z' || stat->state == 'X') continue;
    const int64_t queued = queued_ns(pid);
    auto known = known_.find(pid);
    const bool fresh = known == known_.end() || known->second.started != stat->started;
    if (fresh)
      known =
          known_.insert_or_assign(pid, Known{stat->started, stat->ticks, stat->blocked_ticks, queued, now, role_of(pid, *stat), {}}).first;
    Known& k = known->second;
    if (pid != root_ && k.role == Role::other && stat->name != k.last.name) k.role = role_of(pid, *stat);  // it may have called exec since
    ProcessSample p;
    p.pid = pid;
    p.parent = stat->parent;
    p.started = stat->started;
    p.role = k.role;
    p.name = stat->name;
    p.state = stat->state;
    if (const double seconds = now - k.time; seconds > 0) {
      p.cpu = static_cast<double>(stat->ticks - k.ticks) / ticks_per_second() / seconds;
      p.blocked = std::clamp(static_cast<double>(stat->blocked_ticks - k.blocked_ticks) / ticks_per_second() / seconds, 0.0, 1.0);
      p.queued = std::clamp(static_cast<double>(queued - k.queued_ns) * 1e-9 / seconds, 0.0, 1.0);
    }
    k.ticks = stat->ticks;
    k.queued_ns = queued;
    k.blocked_ticks = stat->blocked_ticks;
    k.time = now;
    read_sizes(p);
    p.pss = k.last.pss, p.shared = k.last.shared, p.own = k.last.own;
    if (shares || fresh) {
      const double begin = used_seconds();
      if (!read_shares(p) && p.rss && !shares_refused_) {
        shares_refused_ = true;
        events.push_back(
            fmt::format("shares (Pss) of process {} may not be read: sizes are resident sizes; run as its user, or as root", pid));
      }
      cost += used_seconds() - begin;
    }
    k.last = p;
    out.push_back(std::move(p));
  }
  if (shares) next_shares_ = now + std::max(0.5, cost / kShareOfShares);
  name_changes(out, events);
  return out;
}

void ProcessTree::name_changes(const std::vector<ProcessSample>& now, std::vector<std::string>& events) {
  std::set<int64_t> pids;
  for (const ProcessSample& p : now) pids.insert(p.pid);
  std::vector<std::string> gone;
  for (auto it = known_.begin(); it != known_.end();) {
    if (pids.contains(it->first)) {
      ++it;
      continue;
    }
    if (it->first != root_) gone.push_back(fmt::format("{} {}", to_string(it->second.role), it->first));
    it = known_.erase(it);
  }
  if (!gone.empty() && !ended_) events.push_back(join(gone, ", ") + (gone.size() == 1 ? " is gone" : " are gone"));
  looked_ = true;
}

std::vector<std::string> ProcessTree::command() const {
  std::vector<std::string> words = split_at(command_line(root_), '\0');
  while (!words.empty() && words.back().empty()) words.pop_back();
  return words;
}

std::string ProcessTree::directory() const {
  std::error_code error;
  const fs::path path = fs::read_symlink(s_.root + fmt::format("/proc/{}/cwd", root_), error);
  return error ? "" : path.string();
}

std::string ProcessTree::variable(const std::string& name) const {
  for (const std::string& word : split_at(s_.read(fmt::format("/proc/{}/environ", root_)).value_or(""), '\0'))
    if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
  return "";
}

namespace {

// Processes that have it open for writing, the oldest first. `what` as links in /proc/PID/fd tell it: a path, or "pipe:[4711]".
std::vector<int64_t> writers(const Surroundings& s, const fs::path& what) {
  std::vector<int64_t> pids, out;
  for (const std::string& name : s.list("/proc"))
    if (const auto pid = whole_number(name)) pids.push_back(*pid);
  std::sort(pids.begin(), pids.end());
  for (const int64_t pid : pids) {
    const std::string folder = fmt::format("/proc/{}/", pid);
    for (const std::string& fd : s.list(folder + "fd")) {
      std::error_code error;
      if (fs::read_symlink(s.root + folder + "fd/" + fd, error) != what || error) continue;
      const auto info = key_values(s.read(folder + "fdinfo/" + fd).value_or(""), ':');  // "flags:\t0100001": octal
      const auto flags = info.find("flags");
      if (flags == info.end() || (flags->second.back() != '1' && flags->second.back() != '2') || pid == getpid()) continue;
      out.push_back(pid);
      break;
    }
  }
  return out;
}

Bytes resident(const Surroundings& s, int64_t pid) {
  return kilobytes(s.read(fmt::format("/proc/{}/status", pid)).value_or(""), "VmRSS:").value_or(Bytes{0});
}

}  // namespace

std::optional<int64_t> writer_of(const Surroundings& s, const std::string& path) {
  std::error_code error;
  fs::path what = fs::canonical(path, error);
  if (error) return {};
  std::vector<int64_t> found = writers(s, what);
  // `python train.py | tee log`: who writes the log only passes on, and is smaller than who it reads from.
  constexpr int kLongestPipe = 4;
  for (int i = 0; i < kLongestPipe && !found.empty(); ++i) {
    what = fs::read_symlink(s.root + fmt::format("/proc/{}/fd/0", found.front()), error);
    if (error || !what.string().starts_with("pipe:")) break;
    const std::vector<int64_t> before = writers(s, what);
    const Bytes here = resident(s, found.front());
    if (std::none_of(before.begin(), before.end(), [&](int64_t pid) { return resident(s, pid) > here; })) break;
    found = before;
  }
  return found.empty() ? std::nullopt : std::optional(found.front());
}

}  // namespace plimsoll
