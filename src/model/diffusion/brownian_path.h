// torchsde's BrownianInterval without Levy area: random increments of a path, made when they are asked for and halved and halved again
// as shorter ones are. Its memory is that of the newest 45 increments and of the whole path's. What a value is, is left open: the
// simulation has tensors without data, real training those of libtorch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace plimsoll {

template <class Value>
class BrownianPath {
 public:
  BrownianPath(const BrownianPath&) = delete;
  BrownianPath& operator=(const BrownianPath&) = delete;
  virtual ~BrownianPath() = default;

  Value operator()(double ta, double tb) {  // the increment over [ta, tb]
    adapt(tb - ta);
    std::vector<Interval*> found;
    locate(last_, ta, tb, found);
    last_ = found.back();
    Value w = increment(*found.front());
    for (size_t i = 1; i < found.size(); ++i) {
      const Value next = increment(*found[i]);
      w = sum(w, next);
    }
    return w;
  }

 protected:
  // A node of the binary tree of intervals that have been asked for.
  struct Interval {
    double start, end;
    Interval* parent;
    bool is_left;
    uint64_t number;                             // of the noise that halves it
    Interval *left = nullptr, *right = nullptr;  // both or none: they meet at left->end
  };

  BrownianPath(double t0, double t1) : tree_dt_(t1 - t0) { last_ = &intervals_.emplace_back(Interval{t0, t1, nullptr, false, 2}); }
  // `area` is kept and never read.
  void begin(Value whole, Value area) {
    whole_ = std::move(whole);
    area_ = std::move(area);
  }
  // The increment of a half, given that of its parent.
  virtual Value halved(const Interval& half, const Value& whole) = 0;
  virtual Value sum(const Value& a, const Value& b) = 0;

 private:
  static constexpr size_t kCacheSize = 45;

  // Steps that turn out much shorter than the tree's leaves make a finer tree, whose leaves hold as many steps as the cache.
  void adapt(double dt) {
    if (++evaluations_ <= 0) return;
    average_dt_ = (dt + average_dt_ * static_cast<double>(evaluations_ - 1)) / static_cast<double>(evaluations_);
    if (average_dt_ >= 0.5 * tree_dt_) return;
    tree_dt_ = std::min(tree_dt_, dt);
    refine(intervals_.front(), tree_dt_ * static_cast<double>(kCacheSize) * 0.8);
  }

  void refine(Interval& interval, double piece) {
    if (interval.end - interval.start <= piece) return;
    std::vector<Interval*> unused;
    locate(&interval, interval.start, (interval.end + interval.start) / 2, unused);
    refine(*interval.left, piece);
    refine(*interval.right, piece);
  }

  // The intervals that make up [ta, tb], in order; those that do not exist yet are split off.
  void locate(Interval* at, double ta, double tb, std::vector<Interval*>& out) {
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

  void split(Interval& interval, double midway) {
    const uint64_t number = interval.number * 2862933555777941757u + 3037000493u;
    interval.left = &intervals_.emplace_back(Interval{interval.start, midway, &interval, true, number});
    interval.right = &intervals_.emplace_back(Interval{midway, interval.end, &interval, false, number + 1});
  }

  Value increment(Interval& wanted) {
    std::vector<Interval*> missing;
    Value w;
    for (Interval* at = &wanted;; at = at->parent) {
      const auto known = cache_.find(at);
      if (!at->parent || known != cache_.end()) {
        w = at->parent ? known->second : whole_;
        break;
      }
      missing.push_back(at);
    }
    for (; !missing.empty(); missing.pop_back()) {
      w = halved(*missing.back(), w);
      remember(*missing.back(), w);
    }
    return w;
  }

  // A dictionary that forgets its oldest entry.
  void remember(const Interval& interval, const Value& increment) {
    if (cached_.size() >= kCacheSize) {
      cache_.erase(cached_.front());
      cached_.pop_front();
    }
    cache_.emplace(&interval, increment);
    cached_.push_back(&interval);
  }

  std::deque<Interval> intervals_;  // the first is the whole path
  Interval* last_;
  Value whole_, area_;
  std::unordered_map<const Interval*, Value> cache_;
  std::deque<const Interval*> cached_;  // oldest first
  // The steps asked for so far, from which the tree is laid out anew.
  double average_dt_ = 0, tree_dt_;
  int64_t evaluations_ = -100;  // a period in which nothing is learned
};

}  // namespace plimsoll
