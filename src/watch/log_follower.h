// The end of a log while it is written: how far the run is, how fast, and whether it said that memory ran out. Rotation and truncation are
// followed.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "watch/sample.h"

namespace plimsoll {

class LogFollower {
 public:
  // Throws an Error when the file cannot be opened. What is in it already tells the step, but no rate.
  explicit LogFollower(std::string path);
  ~LogFollower();
  LogFollower(const LogFollower&) = delete;
  LogFollower& operator=(const LogFollower&) = delete;

  // Reads what came since. Appends to `events`.
  void read(double now, std::vector<std::string>& events);
  std::optional<StepSample> steps(double now) const;

 private:
  bool open_file();
  void read_rest(double now, std::vector<std::string>& events);
  void take_line(const std::string& line, double now, std::vector<std::string>& events);

  std::string path_, partial_;
  int descriptor_ = -1;
  uint64_t device_ = 0, inode_ = 0;
  int64_t offset_ = 0;
  bool live_ = false, missing_ = false, said_oom_ = false;
  struct Point {
    double time;
    int64_t seen;
  };
  std::deque<Point> points_;  // of the last two minutes
  std::optional<int64_t> step_, total_;
  int64_t seen_ = 0, rounds_ = 0;
};

}  // namespace plimsoll
