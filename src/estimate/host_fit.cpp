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

class Adviser {
 public:
  Adviser(const Job& job, const HostFacts& facts, HostFit& v) : job_(job), facts_(facts), v_(v) {}

  void run() {
    const bool ram_short = is_short(v_.ram), shm_short = is_short(v_.shm);
    if (shm_short) {
      v_.advice.push_back({fmt::format("docker run --shm-size={} (or --ipc=host); elsewhere: mount -o remount,size={} /dev/shm",
                                       shm_size_for(v_.need.shm.high), shm_size_for(v_.need.shm.high)),
                           v_.need.peak().bytes, Bytes{0}, true, Verdict::fits});
      shm_ = true;
      changes();
    }
    if (ram_short) {
      shm_ = false;
      changes();
    }
    std::stable_sort(v_.advice.begin(), v_.advice.end(), [](const HostAdvice& a, const HostAdvice& b) {
      const bool fits_a = a.after == Verdict::fits, fits_b = b.after == Verdict::fits;
      return fits_a != fits_b ? fits_a : a.saving > b.saving;
    });
  }

 private:
  static bool is_short(Verdict v) { return v == Verdict::tight || v == Verdict::does_not_fit; }

  void changes() {
    const HostSettings& h = job_.host;
    if (h.workers > 0) fewer_workers();
    if (h.prefetch() > 1) consider("prefetch_factor 1", [](HostSettings& s) { s.prefetch_factor = 1; });
    if (h.cache == CacheKind::ram || h.cache == CacheKind::worker)
      consider("cache: disk", [](HostSettings& s) { s.cache = CacheKind::disk; });
    if (h.cache == CacheKind::worker)
      consider("cache: ram, made before the workers start", [](HostSettings& s) { s.cache = CacheKind::ram; });
    if (h.pin_memory) consider("no pin_memory", [](HostSettings& s) { s.pin_memory = false; });
    if (h.workers > 0 && h.start_method == StartMethod::spawn)
      consider("start_method fork", [](HostSettings& s) { s.start_method = StartMethod::fork; });
    if (h.load != LoadPlan::mmap) consider("load: mmap", [](HostSettings& s) { s.load = LoadPlan::mmap; });
    if (h.save == SavePlan::cpu) consider("save: stream", [](HostSettings& s) { s.save = SavePlan::stream; });
  }

  HostEstimate with(const std::function<void(HostSettings&)>& change) const {
    Job job = job_;
    change(job.host);
    if (job.host.workers == 0) {
      job.host.prefetch_factor.reset();
      job.host.persistent_workers = false;
    }
    return host_memory(job, facts_, v_.target.system);
  }

  Verdict verdict_of(const HostEstimate& e) const { return shm_ ? judge(e.shm, v_.target.shm) : judge(worst(e), v_.target.total); }

  void consider(std::string change, const std::function<void(HostSettings&)>& apply) {
    const HostEstimate e = with(apply);
    const Bytes saving = shm_ ? v_.need.shm.bytes - e.shm.bytes : v_.need.peak().bytes - e.peak().bytes;
    if (saving.count > 0) v_.advice.push_back({std::move(change), e.peak().bytes, saving, shm_, verdict_of(e)});
  }

  // The most workers that fit, else none at all. Fewer workers never need more, so halving the interval finds it.
  void fewer_workers() {
    const auto fits = [&](int64_t n) { return verdict_of(with([n](HostSettings& s) { s.workers = n; })) == Verdict::fits; };
    int64_t best = 0;
    for (int64_t low = 1, high = job_.host.workers - 1; low <= high;) {
      const int64_t middle = low + (high - low) / 2;
      if (fits(middle)) {
        best = middle;
        low = middle + 1;
      } else {
        high = middle - 1;
      }
    }
    consider(fmt::format("workers {}", best), [best](HostSettings& s) { s.workers = best; });
  }

  const Job& job_;
  const HostFacts& facts_;
  HostFit& v_;
  bool shm_ = false;  // which shortage is being looked at
};

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

HostFit host_fit(const Job& job, const HostFacts& facts, const HostTarget& target) {
  HostFit v;
  v.target = target;
  v.need = host_memory(job, facts, target.system);
  v.ram = judge(worst(v.need), target.total);
  v.shm = judge(v.need.shm, target.shm);
  Adviser(job, facts, v).run();
  return v;
}

}  // namespace plimsoll
