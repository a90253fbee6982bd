#include "watch/log_follower.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "diagnose/log_stream.h"
#include "diagnose/progress.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int64_t kReadBack = 64 << 10;                           // of what is there already
constexpr size_t kMostAtOnce = 1 << 20, kLongestLine = 64 << 10;  // a log that grows faster is read in part
constexpr double kWindow = 120;

bool says_oom(const std::string& line) {
  for (const char* words : {"out of memory", "Out of memory", "OutOfMemoryError", "RESOURCE_EXHAUSTED", "oom-kill"})
    if (line.find(words) != std::string::npos) return true;
  return false;
}

}  // namespace

LogFollower::LogFollower(std::string path) : path_(std::move(path)) {
  if (!open_file())
    throw Error("[watch] cannot read " + path_ + ": " + std::strerror(errno), "give the log that the run writes, or its pid",
                ExitCode::bad_input);
  struct stat info {};
  if (fstat(descriptor_, &info) == 0 && S_ISDIR(info.st_mode))
    throw Error("[watch] " + path_ + " is a directory", "give a log file, or a pid");
  offset_ = std::max<int64_t>(0, info.st_size - kReadBack);
  std::vector<std::string> ignored;
  read_rest(0, ignored);
  points_.clear();
  seen_ = rounds_ = 0;
  live_ = true;
  said_oom_ = false;
}

LogFollower::~LogFollower() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool LogFollower::open_file() {
  const int fresh = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fresh < 0) return false;
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = fresh;
  struct stat info {};
  fstat(fresh, &info);
  device_ = info.st_dev;
  inode_ = info.st_ino;
  offset_ = 0;
  partial_.clear();
  return true;
}

void LogFollower::read(double now, std::vector<std::string>& events) {
  struct stat info {};
  if (stat(path_.c_str(), &info) != 0) {
    if (!missing_) events.push_back("the log " + path_ + " is gone; waiting for it");
    missing_ = true;
    read_rest(now, events);  // what was written before it was removed
    return;
  }
  if (info.st_dev != device_ || info.st_ino != inode_) {
    read_rest(now, events);
    if (open_file()) events.push_back("the log " + path_ + (missing_ ? " is there again" : " was rotated; following the new file"));
  } else if (info.st_size < offset_) {
    events.push_back("the log " + path_ + " was cut; following from its beginning");
    offset_ = 0;
    partial_.clear();
  }
  missing_ = false;
  read_rest(now, events);
  while (!points_.empty() && points_.front().time < now - kWindow) points_.pop_front();
}

void LogFollower::read_rest(double now, std::vector<std::string>& events) {
  struct stat info {};
  if (fstat(descriptor_, &info) == 0 && info.st_size - offset_ > static_cast<int64_t>(kMostAtOnce)) {
    offset_ = info.st_size - static_cast<int64_t>(kMostAtOnce);
    partial_.clear();
  }
  char piece[16384];
  for (ssize_t n; (n = pread(descriptor_, piece, sizeof piece, offset_)) > 0; offset_ += n) {
    for (ssize_t i = 0; i < n; ++i) {
      if (piece[i] != '\n' && piece[i] != '\r') {
        if (partial_.size() < kLongestLine) partial_ += piece[i];
        continue;
      }
      if (!partial_.empty()) take_line(partial_, now, events);
      partial_.clear();
    }
  }
}

void LogFollower::take_line(const std::string& raw, double now, std::vector<std::string>& events) {
  if (!said_oom_ && says_oom(raw)) {
    said_oom_ = true;
    if (live_)
      events.push_back(fmt::format("the log says: {}; `plimsoll explain {}` explains it", printable(clean_line(raw).text, 160), path_));
  }
  const std::vector<std::string_view>& words = progress_words();
  if (std::none_of(words.begin(), words.end(), [&](std::string_view w) { return raw.find(w) != std::string::npos; })) return;
  const auto progress = read_progress(clean_line(raw).text);
  if (!progress || !progress->training || !progress->done) return;
  if (step_ && *progress->done < *step_) {  // the next epoch
    ++rounds_;
    seen_ += *progress->done;
  } else if (step_) {
    seen_ += *progress->done - *step_;
  }
  step_ = progress->done;
  if (progress->total) total_ = progress->total;
  if (points_.empty() || points_.back().seen != seen_) points_.push_back({now, seen_});
}

// Over what was logged in the window. A log that has fallen silent for three of its own intervals means that the run slows down.
std::optional<StepSample> LogFollower::steps(double now) const {
  if (!step_) return {};
  StepSample out{*step_, total_, seen_, {}, rounds_};
  if (points_.size() < 2) return out;
  const Point &first = points_.front(), &last = points_.back();
  const double gap = (last.time - first.time) / static_cast<double>(points_.size() - 1);
  const double until = now - last.time > 3 * gap ? now : last.time;
  if (until > first.time) out.rate = static_cast<double>(last.seen - first.seen) / (until - first.time);
  return out;
}

}  // namespace plimsoll
