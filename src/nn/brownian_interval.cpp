#include "nn/brownian_interval.h"

#include <algorithm>

#include "ops/pointwise.h"

namespace plimsoll {

namespace {
constexpr size_t kCacheSize = 45;
}  // namespace

BrownianInterval::BrownianInterval(Tape& tape, double t0, double t1, const Dims& size, DType dtype)
    : tape_(tape), size_(size), dtype_(dtype), tree_dt_(t1 - t0) {
  last_ = &intervals_.emplace_back(Interval{t0, t1, nullptr, false});
  whole_ = mul_scalar(noise());
  area_ = mul_scalar(noise());
}

Tensor BrownianInterval::noise() { return filled(tape_, "randn", size_, dtype_); }

Tensor BrownianInterval::operator()(double ta, double tb) {
  adapt(tb - ta);
  std::vector<Interval*> found;
  locate(last_, ta, tb, found);
  last_ = found.back();
  Tensor w = increment(*found.front());
  for (size_t i = 1; i < found.size(); ++i) {
    const Tensor next = increment(*found[i]);
    w = add(w, next);
  }
  return w;
}

// Steps that turn out much shorter than the tree's leaves make a finer tree, whose leaves hold as many steps as the cache.
void BrownianInterval::adapt(double dt) {
  if (++evaluations_ <= 0) return;
  average_dt_ = (dt + average_dt_ * static_cast<double>(evaluations_ - 1)) / static_cast<double>(evaluations_);
  if (average_dt_ >= 0.5 * tree_dt_) return;
  tree_dt_ = std::min(tree_dt_, dt);
  refine(intervals_.front(), tree_dt_ * static_cast<double>(kCacheSize) * 0.8);
}

void BrownianInterval::refine(Interval& interval, double piece) {
  if (interval.end - interval.start <= piece) return;
  std::vector<Interval*> unused;
  locate(&interval, interval.start, (interval.end + interval.start) / 2, unused);
  refine(*interval.left, piece);
  refine(*interval.right, piece);
}

// The intervals that make up [ta, tb], in order; those that do not exist yet are split off.
void BrownianInterval::locate(Interval* at, double ta, double tb, std::vector<Interval*>& out) {
  while (ta < at->start || tb > at->end) at = at->parent;
  while (ta != at->start || tb != at->end) {
    if (!at->left) split(*at, ta == at->start ? tb : ta);
    const double midway = at->left->end;
    if (ta < midway && midway < tb) {
      locate(at->left, ta, midway, out);
      ta = midway;
    }
    at = tb <= midway ? at->left : at->right;
  }
  out.push_back(at);
}

void BrownianInterval::split(Interval& interval, double midway) {
  interval.left = &intervals_.emplace_back(Interval{interval.start, midway, &interval, true});
  interval.right = &intervals_.emplace_back(Interval{midway, interval.end, &interval, false});
}

Tensor BrownianInterval::increment(Interval& wanted) {
  std::vector<Interval*> missing;
  Tensor w;
  for (Interval* at = &wanted; !w; at = at->parent) {
    const auto known = cache_.find(at);
    if (!at->parent)
      w = whole_;
    else if (known != cache_.end())
      w = known->second;
    else
      missing.push_back(at);
  }
  for (; !missing.empty(); missing.pop_back()) {
    w = halved(*missing.back(), w);
    remember(*missing.back(), w);
  }
  return w;
}

// The increment of a half, given that of the whole.
Tensor BrownianInterval::halved(const Interval& half, const Tensor& whole) {
  Tensor mean = mul_scalar(whole);
  mean = mul_scalar(mean);
  const Tensor random = noise();
  Tensor left = mul_scalar(random);
  left = add(mean, left);
  return half.is_left ? left : sub(whole, left);
}

// A dictionary that forgets its oldest entry.
void BrownianInterval::remember(const Interval& interval, const Tensor& increment) {
  if (cached_.size() >= kCacheSize) {
    cache_.erase(cached_.front());
    cached_.pop_front();
  }
  cache_.emplace(&interval, increment);
  cached_.push_back(&interval);
}

}  // namespace plimsoll
