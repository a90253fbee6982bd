// torchsde's BrownianInterval without Levy area: random increments of a path, made when they are asked for and halved and halved again
// as shorter ones are. Its memory is that of the newest 45 increments and of the whole path's.
#pragma once

#include <deque>
#include <unordered_map>

#include "tensor/tape.h"

namespace plimsoll {

class BrownianInterval {
 public:
  BrownianInterval(Tape& tape, double t0, double t1, const Dims& size, DType dtype);
  BrownianInterval(const BrownianInterval&) = delete;
  BrownianInterval& operator=(const BrownianInterval&) = delete;

  Tensor operator()(double ta, double tb);  // the increment over [ta, tb]

 private:
  // A node of the binary tree of intervals that have been asked for.
  struct Interval {
    double start, end;
    Interval* parent;
    bool is_left;
    Interval *left = nullptr, *right = nullptr;  // both or none: they meet at left->end
  };

  void locate(Interval* from, double ta, double tb, std::vector<Interval*>& out);
  void split(Interval& interval, double midway);
  void refine(Interval& interval, double piece);
  void adapt(double dt);
  Tensor increment(Interval& interval);
  Tensor halved(const Interval& interval, const Tensor& whole);
  void remember(const Interval& interval, const Tensor& increment);
  Tensor noise();

  Tape& tape_;
  Dims size_;
  DType dtype_;
  std::deque<Interval> intervals_;  // the first is the whole path
  Interval* last_;
  Tensor whole_, area_;  // the latter is made and never read
  std::unordered_map<const Interval*, Tensor> cache_;
  std::deque<const Interval*> cached_;  // oldest first
  // The steps asked for so far, from which the tree is laid out anew.
  double average_dt_ = 0, tree_dt_;
  int64_t evaluations_ = -100;  // a period in which nothing is learned
};

}  // namespace plimsoll
