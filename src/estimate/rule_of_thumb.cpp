#include "estimate/rule_of_thumb.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {

namespace {

struct Cap {
  int64_t resolution, initial, largest;
};
constexpr Cap kCaps[] = {{512, 16, 32}, {768, 8, 16}, {1024, 4, 8}, {1536, 4, 8}, {INT64_MAX, 2, 4}};

double gib(Bytes b) { return static_cast<double>(b.count) / (1 << 30); }

}  // namespace

RuleAnswer rule_of_thumb(const RuleOfThumb& r) {
  RuleAnswer a;
  a.workers = static_cast<double>(r.workers) * r.per_worker;
  a.reserved = r.weights + r.optimizer + r.ema + a.workers + r.system;
  a.available = std::max(0.0, r.total - a.reserved) * r.safety;
  if (r.resolution == 0) return a;
  const double side = static_cast<double>(r.resolution);
  a.per_sample = side * side / (1024 * 1024) * r.per_megapixel;
  a.divided = static_cast<int64_t>(std::floor(a.available / *a.per_sample));
  const Cap& cap = *std::find_if(std::begin(kCaps), std::end(kCaps), [&](const Cap& c) { return r.resolution <= c.resolution; });
  a.cap = cap.initial;
  a.batch = std::clamp<int64_t>(*a.divided, 1, cap.initial);
  a.largest = a.available > 0 ? std::min(cap.largest, 2 * *a.batch) : 1;
  return a;
}

RuleOfThumb rule_for(const Job& job, const HostFacts& facts, Bytes total) {
  RuleOfThumb r;
  r.total = gib(total);
  r.weights = gib(facts.parameters);
  r.optimizer = 2 * r.weights;
  r.ema = job.ema ? r.weights : 0;
  r.workers = job.host.workers;
  r.resolution = job.inputs == InputKind::image ? job.seq : 0;
  return r;
}

}  // namespace plimsoll
