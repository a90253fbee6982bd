// A process and all it started, from /proc: sizes, shares, load, and what each of them is. Reading costs little by design: shares (Pss),
// which the kernel adds up page by page, are read as seldom as their own cost asks for.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "hardware/surroundings.h"
#include "watch/sample.h"

namespace plimsoll {

class ProcessTree {
 public:
  // Throws an Error when there is no such process.
  ProcessTree(const Surroundings& s, int64_t root);

  // Those that exist now, the root first, then by pid. Appends what changed to `events`.
  std::vector<ProcessSample> read(double now, std::vector<std::string>& events);
  bool ended() const { return ended_; }

  // The root's command line, its working directory, and one of its environment variables where they may be read.
  std::vector<std::string> command() const;
  std::string directory() const;
  std::string variable(const std::string& name) const;

 private:
  struct Stat {
    int64_t parent = 0, started = 0, ticks = 0, blocked_ticks = 0;
    char state = '?';
    std::string name;
  };
  struct Known {
    int64_t started = 0, ticks = 0, blocked_ticks = 0, queued_ns = 0;
    double time = 0;
    Role role = Role::other;
    ProcessSample last;
  };
  std::optional<Stat> stat_of(int64_t pid) const;
  std::string command_line(int64_t pid) const;
  int64_t queued_ns(int64_t pid) const;
  Role role_of(int64_t pid, const Stat& stat) const;
  void find_children(double now);
  std::vector<int64_t> members(std::vector<std::string>& events);
  void read_sizes(ProcessSample& p) const;
  bool read_shares(ProcessSample& p) const;
  void name_changes(const std::vector<ProcessSample>& now, std::vector<std::string>& events);

  Surroundings s_;
  int64_t root_, root_started_ = 0;
  bool ended_ = false, shares_refused_ = false, looked_ = false;
  double next_scan_ = 0, next_refresh_ = 0, next_shares_ = 0;
  std::map<int64_t, int64_t> parents_;  // of every process seen
  std::map<int64_t, Known> known_;      // of the tree
};

// A process that has this file open for writing, the lowest pid first; none: nothing seems to write to it.
std::optional<int64_t> writer_of(const Surroundings& s, const std::string& path);

}  // namespace plimsoll
