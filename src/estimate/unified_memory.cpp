#include "estimate/unified_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "estimate/host_fit.h"
#include "estimate/overheads.h"
#include "program/run.h"

namespace plimsoll {

namespace {

constexpr int64_t kLargestBatch = 1 << 20;

// The context of one process: its row of data/overheads.csv; nothing where the table has none.
Overhead context_of(const Job& job, const UnifiedPool& pool) {
  const std::vector<Overhead> rows = overheads({pool.device, job.platform.torch});
  if (rows.empty()) return {"device context", {}, "not established for such devices"};
  Overhead out = rows.front();
  if (!pool.device) out.source = "an allowance, no device was named: " + out.source;
  return out;
}

// A straight line through two simulated points: what does not depend on the batch, and what one more sample takes.
struct Line {
  Bytes fixed, slope;
  static Line through(int64_t b1, Bytes y1, int64_t b2, Bytes y2) {
    const Bytes slope{(y2.count - y1.count) / (b2 - b1)};
    return {y2 - times(b2, slope), slope};
  }
};

class PoolCalculation {
 public:
  PoolCalculation(const Job& job, const HostFacts& facts, const UnifiedPool& pool)
      : job_(job), facts_(facts), pool_(pool), available_(pool.total - pool.system.size.bytes) {
    margin_ = Bytes{std::max<int64_t>(0, static_cast<int64_t>(pool.margin * static_cast<double>(available_.count)))};
  }

  UnifiedEstimate run() {
    e_.pool = pool_;
    e_.max_batch = largest_batch();
    e_.at_bound = e_.max_batch == kLargestBatch;
    steps();
    own_batch();
    loading();
    for (const auto& [batch, point] : points_)
      if (point) e_.simulated.push_back(*point);
    return std::move(e_);
  }

 private:
  // Nothing when the sizes at that batch do not fit in 63 bits.
  const std::optional<UnifiedPoint>& at(int64_t batch) {
    const auto added = points_.try_emplace(batch);
    std::optional<UnifiedPoint>& point = added.first->second;
    if (added.second) {
      const std::optional<Problem> problem = problem_in([&] { point = executed_at(batch); });
      if (problem && batch == job_.batch) require_none({*problem});
    }
    return point;
  }

  UnifiedPoint executed_at(int64_t batch) const {
    Job job = job_;
    job.batch = batch;
    const std::shared_ptr<const Run> run = execute(job);
    const CudaTimeline& cuda = run->cuda();
    const Bytes device{cuda.oom ? ideal_timeline(run->simulation.trace).peak().rounded : cuda.reserved_peak};
    return {batch, times(job.host.ranks_per_host, device), host_memory(job, facts_, reserve_of({}, "")).steady_peak.bytes};
  }

  Bytes context() const { return times(job_.host.ranks_per_host, context_of(job_, pool_).range.bytes); }
  Bytes taken(const UnifiedPoint& p) const { return p.device + p.host + context(); }

  bool fits(int64_t batch) {
    const auto& p = at(batch);
    return p && taken(*p) <= available_ - margin_ && (!pool_.device_limit || p->device + context() <= *pool_.device_limit);
  }

  int64_t largest_batch() {
    if (!fits(1)) return 0;
    int64_t low = 1;  // fits
    while (low < kLargestBatch && fits(low * 2)) low *= 2;
    if (low >= kLargestBatch) return kLargestBatch;
    for (int64_t high = low * 2; high - low > 1;) {
      const int64_t middle = low + (high - low) / 2;
      (fits(middle) ? low : high) = middle;
    }
    return low;
  }

  void step(std::string name, Bytes bytes, std::string source) {
    e_.steps.push_back({std::move(name), bytes, std::nullopt, std::move(source)});
  }

  void steps() {
    const int64_t b2 = std::max<int64_t>(2, e_.max_batch), b1 = (b2 + 1) / 2;
    const auto &p1 = at(b1), &p2 = at(b2);
    step("total", pool_.total, pool_.source);
    step("reserved for the system", pool_.system.size.bytes, pool_.system.source);
    step("available", available_, "total less the system");
    step("safety margin", margin_, fmt::format("{:g} % of it: fragmentation, page cache, what is not known", pool_.margin * 100));
    if (p1 && p2) samples(b1, *p1, b2, *p2);
    if (pool_.device_limit) step("limit of the device", *pool_.device_limit, pool_.device_limit_source);
    e_.steps.push_back({"maximum batch, simulated", std::nullopt, e_.max_batch, found_by()});
  }

  void samples(int64_t b1, const UnifiedPoint& p1, int64_t b2, const UnifiedPoint& p2) {
    const Line device = Line::through(b1, p1.device, b2, p2.device), host = Line::through(b1, p1.host, b2, p2.host);
    step("device context", context(), context_of(job_, pool_).source);
    step("host, fixed", host.fixed, "main process and workers: what --host lists, at batch 0 of the line below");
    step("model, fixed", device.fixed, "device memory at batch 0 of the line below: " + model_parts());
    const Bytes left = available_ - margin_ - context() - host.fixed - device.fixed;
    const Bytes sample = device.slope + host.slope;
    step("left for samples", left, "available less margin and all that is fixed");
    step("per sample", sample,
         fmt::format("{} device + {} host: the line through batches {} and {}, both simulated", to_string(device.slope),
                     to_string(host.slope), b1, b2));
    if (sample.count > 0)
      e_.steps.push_back({"maximum batch, divided", std::nullopt, std::max<int64_t>(0, left.count / sample.count), "left / per sample"});
  }

  std::string model_parts() const {
    std::string out = "weights " + to_string(facts_.model());
    if (facts_.optimizer_states.count > 0) out += ", optimizer states " + to_string(facts_.optimizer_states);
    if (facts_.ema.count > 0) out += ", EMA " + to_string(facts_.ema);
    return out + ", gradients and temporaries";
  }

  std::string found_by() {
    if (e_.at_bound) return "the search ends here; more may fit";
    if (e_.max_batch == 0) return "one sample needs more than there is";
    return fmt::format("{} was simulated and fits, {} was and does not", e_.max_batch, e_.max_batch + 1);
  }

  void own_batch() {
    const UnifiedPoint& own = *at(job_.batch);
    e_.need = taken(own) + pool_.system.size.bytes;
    const bool in_limit = !pool_.device_limit || own.device + context() <= *pool_.device_limit;
    e_.verdict = !in_limit || taken(own) > available_ ? Verdict::does_not_fit : fits(job_.batch) ? Verdict::fits : Verdict::tight;
  }

  // A module moves tensor by tensor and frees each behind it, so that alone needs one tensor more, not a second model; a state
  // dict that is still held, and a file that was read into the page cache, do need it.
  void loading() {
    HostEstimate host = host_memory(job_, facts_, pool_.system);
    e_.loading = std::move(host.loading);
    const auto add = [&](const char* name, ByteRange size, const char* source) {
      e_.loading.push_back({name, times(job_.host.ranks_per_host, size), source});
    };
    const Bytes model = facts_.model();
    add("device context", ByteRange::exact(context_of(job_, pool_).range.bytes), "as above");
    switch (job_.host.load) {
      case LoadPlan::cpu: add("tensor on the device", ByteRange::exact(facts_.largest), "the CPU's copy goes as the device's comes"); break;
      case LoadPlan::state_dict:
        add("tensor on the device", ByteRange::exact(facts_.largest), "as above, while the state dict stays");
        break;
      case LoadPlan::resume:
        add("state on the device", ByteRange::exact(facts_.checkpoint()), "the whole checkpoint is there twice");
        break;
      case LoadPlan::mmap: add("model on the device", ByteRange::exact(model), "the only copy of its own"); break;
    }
    const Bytes file = job_.host.load == LoadPlan::resume ? facts_.checkpoint() : model;
    // Once for the machine: all processes map the same file.
    e_.loading.push_back({"page cache of the file",
                          {Bytes{0}, Bytes{0}, file},
                          "the kernel gives it back, but cudaMemGetInfo does not count it as free (vllm#35313): drop_caches"});
    for (const HostRow& r : e_.loading) e_.load_peak += r.size;
    e_.load_verdict = judge(e_.load_peak, pool_.total);
  }

  const Job& job_;
  const HostFacts& facts_;
  const UnifiedPool& pool_;
  const Bytes available_;
  Bytes margin_;
  std::map<int64_t, std::optional<UnifiedPoint>> points_;
  UnifiedEstimate e_;
};

}  // namespace

UnifiedEstimate unified_memory(const Job& job, const HostFacts& facts, const UnifiedPool& pool) {
  return PoolCalculation(job, facts, pool).run();
}

}  // namespace plimsoll
