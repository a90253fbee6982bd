#include "watch/series.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace plimsoll {

namespace {

constexpr double kHour = 3600, kDay = 86400, kMinute = 60;

using Blocks = std::vector<Series::Block>;

// Where blocks are on the axis that growth is measured along, in units of a mean block.
using Axis = std::vector<double>;

struct Line {
  double slope = 0, r2 = 0;  // the slope per unit of the axis
  double scatter = 0;        // standard deviation around it
  double memory = 0;         // how much what is off in one block is off in the next: the correlation of neighbours
};

// Least squares through the floors of blocks [from, to); the axis begins at `origin`.
Line fit(const Blocks& b, const Axis& axis, size_t origin, size_t from, size_t to) {
  const double n = static_cast<double>(to - from);
  const auto x = [&](size_t i) { return axis[i - origin]; };
  const auto y = [&](size_t i) { return b[i].low - b[from].low; };
  double sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0;
  for (size_t i = from; i < to; ++i) sx += x(i), sy += y(i), sxx += x(i) * x(i), sxy += x(i) * y(i), syy += y(i) * y(i);
  const double vx = sxx - sx * sx / n, vy = syy - sy * sy / n, c = sxy - sx * sy / n;
  if (vx <= 0 || vy <= 0) return {};
  Line line{c / vx, c * c / (vx * vy), 0, 0};
  double squares = 0, neighbours = 0, last = 0;
  for (size_t i = from; i < to; ++i) {
    const double off = y(i) - sy / n - line.slope * (x(i) - sx / n);
    squares += off * off;
    neighbours += i > from ? off * last : 0;
    last = off;
  }
  line.scatter = n > 2 ? std::sqrt(squares / (n - 2)) : 0;
  line.memory = squares > 0 ? neighbours / squares : 0;
  return line;
}

// Of all pairs of blocks, those that rise less those that fall: 1 for a rise without exception (Kendall).
double concordance(const Blocks& b, size_t from) {
  double rising = 0, pairs = 0;
  for (size_t i = from; i < b.size(); ++i)
    for (size_t j = i + 1; j < b.size(); ++j) {
      rising += b[j].low > b[i].low ? 1 : b[j].low < b[i].low ? -1 : 0;
      ++pairs;
    }
  return pairs > 0 ? rising / pairs : 0;
}

// Whether the floor climbed for at least four blocks and then fell by `drop` or more: what rises now may do the same.
bool falls_back(const Blocks& b, double drop) {
  constexpr size_t kShortest = 4;
  const double flat = 0.05 * drop;
  for (size_t i = 2; i < b.size(); ++i) {
    const size_t top = b[i - 1].low >= b[i - 2].low ? i - 1 : i - 2;
    if (b[top].low - b[i].low < drop) continue;
    size_t start = top;
    double steepest = 0;
    while (start > 0 && b[start - 1].low <= b[start].low + flat) {
      steepest = std::max(steepest, b[start].low - b[start - 1].low);
      --start;
    }
    const double height = b[top].low - b[start].low;
    if (top - start >= kShortest && height >= 0.5 * drop && steepest <= 0.6 * height) return true;
  }
  return false;
}

// What was done in each block, as the height of its step in the series `work`; empty: not known.
std::vector<double> work_of(const Series* work, double now, double length, size_t count) {
  std::vector<double> out;
  if (!work) return out;
  const Blocks b = work->blocks(now, length, static_cast<int>(count) + 1);
  if (b.size() < count) return out;
  for (size_t i = b.size() - count; i < b.size(); ++i) out.push_back(i == 0 ? b[0].high - b[0].low : b[i].high - b[i - 1].high);
  return out;
}

// How much more was done in blocks [a, b) than in [b, c): what a rise of the latter is to be multiplied with. Within reason.
double slower(const std::vector<double>& work, size_t a, size_t b, size_t c) {
  if (work.empty()) return 1;
  const auto sum = [&](size_t from, size_t to) {
    return std::accumulate(work.begin() + static_cast<long>(from), work.begin() + static_cast<long>(to), 0.0);
  };
  const double before = sum(a, b), after = sum(b, c);
  return before > 0 && after > 0 ? std::clamp(before / after, 0.5, 2.0) : 1;
}

// Whether the last third of what is known rose by less than the third before it: a cache that fills, a heap that fragments. The first third
// is that of the start, where anything may happen. `noise`: by which the last third may be off.
bool levels_off(const Blocks& b, const std::vector<double>& work, double still, double noise) {
  const size_t third = b.size() / 3, n = b.size();
  const auto level = [&](size_t end) { return (b[end - 1].low + b[end - 2].low) / 2; };
  const double last = level(b.size()) - level(b.size() - third), before = level(b.size() - third) - level(b.size() - 2 * third);
  return last * slower(work, n - 2 * third, n - third, n) + noise < still * before;
}

// How many blocks before the last `count` were above this level: what rises to where it was before is no new growth.
size_t above(const Blocks& b, size_t count, double level) {
  return static_cast<size_t>(
      std::count_if(b.begin(), b.end() - static_cast<long>(count), [&](const Series::Block& x) { return x.low > level; }));
}

// The figures decide between a leak and a healthy run; tools/watch_shapes.py measures them.
constexpr size_t kBlocks = 12;
constexpr size_t kHistory = 45 * kBlocks;  // blocks that are looked back for a fall: all that is known
constexpr double kLeastGrowth = 8 << 20;   // bytes in a window
constexpr double kLeastShare = 0.005;      // of the level
constexpr double kStillGrowing = 0.7;      // slope of the second half over that of the first
constexpr double kNotLevelling = 0.75;
constexpr double kOfSawTooth = 0.5;  // growth over the height of the saw-tooth in a block
constexpr double kFallBack = 0.5;
constexpr double kAtTheEnd = 0.4;  // rise of the last block over that of the line; of the last two: half
constexpr double kShortest = 80;   // seconds

// How straight a rise has to be. `jump`: of the growth, in one block: a few large allocations are no leak.
struct Straightness {
  double r2, rising, jump;
  bool noisy;
};
constexpr Straightness kClear{0.9, 0.8, 0.36, false};
// Looks that meet a quick saw-tooth anywhere scatter around a line. That is told from a curve and from noise that wanders by its having no
// memory; what is asked of the halves and the end is asked within its error.
constexpr Straightness kScattered{0.8, 0.6, 0.45, true};
constexpr double kNoMemory = 0.2;

// The blocks of a window, and what is known of the time before it.
struct Window {
  const Blocks& all;
  size_t from;               // its first block
  double length;             // seconds of a block
  std::vector<double> work;  // of each block; empty: not known
  bool shortest;
};

// Whether it really goes up and down on its way: what only ever rises, in steps, is no line with noise around it.
bool scatters(const Window& w, double slope) {
  int falls = 0;
  double deepest = 0;
  for (size_t i = w.from + 1; i < w.all.size(); ++i) {
    const double fall = w.all[i - 1].low - w.all[i].low;
    falls += fall > 0 ? 1 : 0;
    deepest = std::max(deepest, fall);
  }
  return falls >= 2 && deepest >= slope / 2;
}

// The largest rise from one block to the next; where blocks scatter, from two to the next two.
double largest_jump(const Window& w, bool noisy) {
  double jump = 0;
  for (size_t i = w.from + 1; i < w.all.size(); ++i) {
    if (!noisy) jump = std::max(jump, w.all[i].low - w.all[i - 1].low);
    if (noisy && i >= w.from + 2 && i + 1 < w.all.size())
      jump = std::max(jump, (w.all[i].low + w.all[i + 1].low - w.all[i - 1].low - w.all[i - 2].low) / 2);
  }
  return jump;
}

std::optional<Growth> growth_along(const Window& w, const Axis& axis, const Straightness& wanted, bool by_work) {
  const Blocks& all = w.all;
  const size_t n = all.size(), half = w.from + kBlocks / 2;
  const Line line = fit(all, axis, w.from, w.from, n);
  const double grown = line.slope * static_cast<double>(kBlocks - 1), level = all.back().low;
  if (grown < std::max(kLeastGrowth, kLeastShare * level) || line.r2 < wanted.r2 || concordance(all, w.from) < wanted.rising) return {};
  if (wanted.noisy && (line.memory > kNoMemory || !scatters(w, line.slope))) return {};
  std::vector<double> heights;
  for (size_t i = w.from; i < n; ++i) heights.push_back(all[i].high - all[i].low);
  std::nth_element(heights.begin(), heights.begin() + kBlocks / 2, heights.end());
  if (grown < kOfSawTooth * (heights[kBlocks / 2] - line.slope)) return {};  // what a block grows by itself is no saw-tooth
  if (largest_jump(w, wanted.noisy) > wanted.jump * grown) return {};
  const double noise = wanted.noisy ? line.scatter : 0;
  // A long window may have stopped to grow a while ago; in the shortest, steps of twenty seconds have no rise in every block.
  const double end = all[n - 1].low - all[n - 2].low, before_end = all[n - 2].low - all[n - 3].low;
  if (!w.shortest && (end + noise < kAtTheEnd * line.slope || end + before_end + noise < line.slope)) return {};
  const double first = fit(all, axis, w.from, w.from, half).slope, second = fit(all, axis, w.from, half, n).slope;
  constexpr double kHalf = kBlocks / 2;
  const double slope_error = noise / std::sqrt(kHalf * (kHalf * kHalf - 1) / 12);  // of a line through half of them
  const double faster = by_work ? 1 : slower(w.work, w.from, half, n);
  if (second * faster + slope_error < kStillGrowing * first || levels_off(all, w.work, kNotLevelling, noise)) return {};
  if (falls_back(all, kFallBack * grown) || above(all, kBlocks, level - grown / 2) > kBlocks / 3) return {};
  return Growth{w.length * static_cast<double>(kBlocks), line.slope / w.length, grown};
}

// By what was done instead of time: the middle of each block, in units of a mean one. Empty: not known, or next to nothing was done.
Axis axis_of_work(const Window& w) {
  Axis axis;
  if (w.work.empty()) return axis;
  double done = 0;
  for (size_t i = w.from; i < w.all.size(); ++i) {
    axis.push_back(done + w.work[i] / 2);
    done += w.work[i];
  }
  const double span = axis.back() - axis.front();
  if (span <= 0) return {};
  for (double& x : axis) x *= static_cast<double>(kBlocks - 1) / span;
  return axis;
}

std::optional<Growth> growth_in(const Series& series, double now, double window, const Series* done) {
  const double length = window / static_cast<double>(kBlocks);
  const Blocks all = series.blocks(now, length, static_cast<int>(kHistory));
  if (all.size() < kBlocks) return {};
  const Window w{all, all.size() - kBlocks, length, work_of(done, now, length, all.size()), window <= kShortest};
  Axis time(kBlocks);
  std::iota(time.begin(), time.end(), 0.0);
  const Axis work = axis_of_work(w);
  for (const Straightness& wanted : {kClear, kScattered}) {
    if (const auto growth = growth_along(w, time, wanted, false)) return growth;
    if (work.empty()) continue;
    if (const auto growth = growth_along(w, work, wanted, true)) return growth;
  }
  return {};
}

}  // namespace

void Series::add(double time, double value) {
  if (points_.empty()) first_ = time;
  points_.push_back({time, value});
  while (points_.front().time < time - kHour) points_.pop_front();
  const double minute = std::floor(time / kMinute) * kMinute;
  if (minutes_.empty() || minutes_.back().time != minute) minutes_.push_back({minute, {value, value}});
  Block& b = minutes_.back().block;
  b.low = std::min(b.low, value);
  b.high = std::max(b.high, value);
  while (minutes_.front().time < time - kDay) minutes_.pop_front();
}

void Series::clear() {
  points_.clear();
  minutes_.clear();
}

std::optional<double> Series::mean(double from) const {
  if (points_.empty() || points_.front().time > from) return {};
  double sum = 0;
  int n = 0;
  for (auto it = points_.rbegin(); it != points_.rend() && it->time >= from; ++it) sum += it->value, ++n;
  return n > 0 ? std::optional(sum / n) : std::nullopt;
}

std::vector<Series::Block> Series::blocks(double until, double length, int count) const {
  const double begin = until - length * count;
  std::vector<std::optional<Block>> found(static_cast<size_t>(count));
  const auto take = [&](double time, const Block& b) {
    const double place = (time - begin) / length;
    if (place < 0 || place >= count) return;
    std::optional<Block>& into = found[static_cast<size_t>(place)];
    into = into ? Block{std::min(into->low, b.low), std::max(into->high, b.high)} : b;
  };
  // Minutes only where a block holds several of them.
  const bool coarse = length >= 5 * kMinute;
  if (coarse) {
    for (const Minute& m : minutes_) take(m.time + kMinute / 2, m.block);
  } else {
    for (auto it = points_.rbegin(); it != points_.rend() && it->time >= begin; ++it) take(it->time, {it->value, it->value});
  }
  std::vector<Block> out;
  for (const auto& b : found) {
    if (b)
      out.push_back(*b);
    else if (!out.empty())
      return {};
  }
  // The first one may be of a part of its time only.
  if (!out.empty() && out.size() < found.size()) out.erase(out.begin());
  return out;
}

std::optional<Growth> steady_growth(const Series& series, double now, const Series* work) {
  for (const double window : {kShortest, 300.0, 900.0, kHour, 12 * kHour})
    if (const auto growth = growth_in(series, now, window, work)) return growth;
  return {};
}

}  // namespace plimsoll
