// One figure over time: each look for an hour, and the least and the most of each minute for a day.
#pragma once

#include <deque>
#include <optional>
#include <vector>

namespace plimsoll {

class Series {
 public:
  struct Point {
    double time, value;
  };
  // The least and the most of a stretch of time.
  struct Block {
    double low, high;
  };

  void add(double time, double value);
  void clear();

  bool empty() const { return points_.empty(); }
  double begin() const { return minutes_.empty() ? 0 : first_; }
  const std::deque<Point>& points() const { return points_; }
  double last() const { return points_.empty() ? 0 : points_.back().value; }
  std::optional<double> mean(double from) const;  // of the looks since then; none: they do not reach back so far

  // `count` blocks of equal length that end at `until`, oldest first. Only those from the first one that is known on; none when one in
  // between has no look.
  std::vector<Block> blocks(double until, double length, int count) const;

 private:
  struct Minute {
    double time;  // its beginning
    Block block;
  };
  std::deque<Point> points_;
  std::deque<Minute> minutes_;
  double first_ = 0;
};

// A rise that is no part of a saw-tooth: of the floor under it, as steep at the end as at the beginning.
struct Growth {
  double window = 0;  // seconds that it was seen over
  double slope = 0;   // bytes a second
  double grown = 0;   // bytes in the window
};

// Looks at windows from 80 seconds to half a day; the shortest that shows a growth counts. What would be a growth but has fallen
// back in the same way before, or levels off, is none.
// `work`: what the process has used of cores since it began, where that is known: one that gets less of them also leaks more slowly.
std::optional<Growth> steady_growth(const Series& series, double now, const Series* work = nullptr);

}  // namespace plimsoll
