#include "estimate/host_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>

namespace plimsoll {

namespace {

ByteRange worst(const HostEstimate& e) {
  ByteRange out = e.peak();
  for (const ByteRange* p : {&e.steady_peak, &e.save_peak, &e.load_peak}) out.high = std::max(out.high, p->high);
  return out;
}

// The size to ask for: the next power of two from 64 MiB on, as people write it.
std::string shm_size_for(Bytes need) {
  const auto wanted = static_cast<uint64_t>(std::clamp(need.count, kDockerShm.count, int64_t{1} << 60));
  const auto size = static_cast<int64_t>(std::bit_ceil(wanted));
  return size >= 1 << 30 ? fmt::format("{}g", size >> 30) : fmt::format("{}m", size >> 20);
}

using Apply = std::function<void(HostSettings&)>;

HostEstimate host_memory_with(Job job, const HostFacts& facts, const SystemReserve& system, const Apply& apply) {
  apply(job.host);
  if (job.host.workers == 0) {
    job.host.prefetch_factor.reset();
    job.host.persistent_workers = false;
  }
  if (job.host.cache == CacheKind::none) job.host.cache_item_bytes.reset();
  return host_memory(job, facts, system);
}

// The largest of 0 ... `most` for which it holds, when it holds for all below; -1: not even for 0.
int64_t largest_of(int64_t most, const std::function<bool(int64_t)>& holds) {
  int64_t best = -1;
  for (int64_t low = 0, high = most; low <= high;) {
    const int64_t middle = low + (high - low) / 2;
    if (holds(middle)) {
      best = middle;
      low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  return best;
}

// One shortage, of RAM or of /dev/shm, and what each change does to it.
class Adviser {
 public:
  Adviser(const Job& job, const HostFacts& facts, const HostFit& fit, bool shm) : job_(job), facts_(facts), fit_(fit), shm_(shm) {}

  std::vector<HostAdvice> run() {
    for (auto& [change, apply] : changes()) consider(change, apply);
    if (job_.host.workers > 0) fewer_workers("", [](HostSettings&) {});
    const auto fits = [](const HostAdvice& a) { return a.after == Verdict::fits; };
    if (std::none_of(advice_.begin(), advice_.end(), fits)) together();
    std::stable_sort(advice_.begin(), advice_.end(),
                     [&](const HostAdvice& a, const HostAdvice& b) { return fits(a) != fits(b) ? fits(a) : a.saving > b.saving; });
    return std::move(advice_);
  }

 private:
  // Every change but fewer workers that would do something to this job.
  std::vector<std::pair<std::string, Apply>> changes() const {
    const HostSettings& h = job_.host;
    std::vector<std::pair<std::string, Apply>> out;
    if (h.cache == CacheKind::ram || h.cache == CacheKind::worker)
      out.emplace_back("cache: disk", [](HostSettings& s) { s.cache = CacheKind::disk; });
    if (h.cache == CacheKind::worker)
      out.emplace_back("cache: ram, made before the workers start", [](HostSettings& s) { s.cache = CacheKind::ram; });
    if (h.save == SavePlan::cpu) out.emplace_back("save: stream", [](HostSettings& s) { s.save = SavePlan::stream; });
    if (h.load != LoadPlan::mmap) out.emplace_back("load: mmap", [](HostSettings& s) { s.load = LoadPlan::mmap; });
    if (h.workers > 0 && h.start_method == StartMethod::spawn)
      out.emplace_back("start_method: fork", [](HostSettings& s) { s.start_method = StartMethod::fork; });
    if (h.prefetch() > 1) out.emplace_back("prefetch_factor: 1", [](HostSettings& s) { s.prefetch_factor = 1; });
    if (h.pin_memory) out.emplace_back("pin_memory: false", [](HostSettings& s) { s.pin_memory = false; });
    return out;
  }

  HostEstimate with(const Apply& apply) const { return host_memory_with(job_, facts_, fit_.target.system, apply); }

  Verdict verdict_of(const HostEstimate& e) const { return shm_ ? judge(e.shm, fit_.target.shm) : judge(worst(e), fit_.target.total); }
  Bytes need_of(const HostEstimate& e) const { return shm_ ? e.shm.bytes : e.peak().bytes; }

  void consider(const std::string& change, const Apply& apply) {
    const HostEstimate e = with(apply);
    const Bytes saving = need_of(fit_.need) - need_of(e);
    const Verdict after = verdict_of(e);
    const bool worth_saying = after == Verdict::fits || saving.count >= need_of(fit_.need).count / 100;
    if (saving.count > 0 && worth_saying) advice_.push_back({change, e.peak().bytes, saving, shm_, after});
  }

  // On top of `before`, the most workers that fit, else none at all. Fewer never need more, so halving the interval finds it.
  void fewer_workers(const std::string& prefix, const Apply& before) {
    const auto set = [&before](int64_t n) {
      return [&before, n](HostSettings& s) {
        before(s);
        s.workers = n;
      };
    };
    const int64_t best =
        std::max<int64_t>(0, largest_of(job_.host.workers - 1, [&](int64_t n) { return verdict_of(with(set(n))) == Verdict::fits; }));
    consider(fmt::format("{}workers: {}", prefix, best), set(best));
  }

  // No change alone is enough: as many as it takes, largest saving first, workers last.
  void together() {
    std::vector<std::pair<std::string, Apply>> left = changes();
    std::stable_sort(left.begin(), left.end(),
                     [&](const auto& a, const auto& b) { return need_of(with(a.second)) < need_of(with(b.second)); });
    std::string name;
    std::vector<Apply> chosen;
    const Apply all = [&chosen](HostSettings& s) {
      for (const Apply& apply : chosen) apply(s);
    };
    for (const auto& [change, apply] : left) {
      const Bytes before = need_of(with(all));
      chosen.push_back(apply);
      if (need_of(with(all)) >= before) {
        chosen.pop_back();
        continue;
      }
      name += name.empty() ? change : " and " + change;
      if (verdict_of(with(all)) != Verdict::fits) continue;
      consider(name, all);
      return;
    }
    if (!chosen.empty() && job_.host.workers > 0) fewer_workers(name + " and ", all);
  }

  const Job& job_;
  const HostFacts& facts_;
  const HostFit& fit_;
  const bool shm_;
  std::vector<HostAdvice> advice_;
};

bool is_short(Verdict v) { return v == Verdict::tight || v == Verdict::does_not_fit; }

HostAdvice larger_shm(const HostEstimate& need) {
  const std::string size = shm_size_for(need.shm.high);
  return {fmt::format("docker run --shm-size={} (or --ipc=host); elsewhere: mount -o remount,size={} /dev/shm", size, size),
          need.peak().bytes, Bytes{0}, true, Verdict::fits};
}

}  // namespace

Verdict judge(const ByteRange& need, std::optional<Bytes> available) {
  if (!available) return Verdict::unknown;
  if (need.bytes > *available) return Verdict::does_not_fit;
  return need.high > *available ? Verdict::tight : Verdict::fits;
}

Verdict HostFit::overall() const {
  if (ram == Verdict::unknown) return shm;
  if (shm == Verdict::unknown) return ram;
  return std::max(ram, shm);
}

namespace {

HostRoom room_for(const Job& job, const HostFacts& facts, const HostTarget& target) {
  HostRoom room;
  if (!target.total) return room;
  // More than can be counted does not fit.
  const auto with = [&](const Apply& apply) {
    std::optional<HostEstimate> e;
    problem_in([&] { e = host_memory_with(job, facts, target.system, apply); });
    return e;
  };
  const auto verdict = [&](const std::optional<HostEstimate>& e) {
    if (!e) return Verdict::does_not_fit;
    return HostFit{target, *e, judge(worst(*e), target.total), judge(e->shm, target.shm), {}, {}}.overall();
  };
  const int64_t workers = largest_of(HostRoom::kMostWorkers,
                                     [&](int64_t n) { return verdict(with([n](HostSettings& s) { s.workers = n; })) == Verdict::fits; });
  if (workers >= 0) room.workers = workers;
  if (job.host.dataset_size > 0 && job.host.cache == CacheKind::none) {
    const std::optional<HostEstimate> cached = with([](HostSettings& s) { s.cache = CacheKind::ram; });
    room.cache = verdict(cached);
    if (cached) room.cache_bytes = cached->steady_peak.bytes - host_memory(job, facts, target.system).steady_peak.bytes;
  }
  return room;
}

}  // namespace

HostFit host_fit(const Job& job, const HostFacts& facts, const HostTarget& target) {
  HostFit v;
  v.target = target;
  v.need = host_memory(job, facts, target.system);
  v.ram = judge(worst(v.need), target.total);
  v.shm = judge(v.need.shm, target.shm);
  v.room = room_for(job, facts, target);
  std::vector<HostAdvice> advice;
  const auto append = [&](std::vector<HostAdvice> more) { advice.insert(advice.end(), more.begin(), more.end()); };
  if (is_short(v.shm)) {
    advice.push_back(larger_shm(v.need));
    append(Adviser(job, facts, v, true).run());
  }
  if (is_short(v.ram)) append(Adviser(job, facts, v, false).run());
  v.advice = std::move(advice);
  return v;
}

}  // namespace plimsoll
