#include "estimate/host_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "allocator/timeline.h"
#include "estimate/loader.h"

namespace plimsoll {

namespace {

constexpr int64_t kMiB = 1 << 20;

ByteRange mib(int64_t bytes, int64_t low, int64_t high) { return {{bytes * kMiB}, {low * kMiB}, {high * kMiB}}; }

// Published resident sizes of a process that used CUDA: 438632 kB (2.2, RTX 3090, one tensor) and 2056600 kB (the same with every
// kernel loaded), pytorch#113326; 1.3 GB, pytorch#31767; 1872.7 MiB after a convolution, pytorch#12873; 2271.3 MiB, pytorch#106511.
// The estimate is their median.
const ByteRange kMainProcess = mib(1873, 428, 2271);

// Measured with tools/measure_loader.py, PyTorch 2.14 and Python 3.14, transformers and torchvision imported. A forked worker has
// 8 to 10 MiB of its own, 120 once a full garbage collection has written to every object, and at most what a fresh process has.
const ByteRange kForkedWorker = mib(120, 8, 293);
// A fresh process: 158 MiB with torch alone, 293 with transformers and torchvision; 420 resident in all.
const ByteRange kFreshWorker = mib(293, 158, 420);
const ByteRange kForkServer = mib(293, 156, 416);

class HostCalculation {
 public:
  HostCalculation(const Job& job, const HostFacts& facts, const SystemReserve& system)
      : job_(job), host_(job.host), facts_(facts), system_(system), loader_(loader_memory(job)) {}

  HostEstimate run() {
    base();
    e_.loading = e_.steady;
    workers();
    batches();
    cache();
    saving();
    loading();
    e_.steady_peak = sum(e_.steady);
    e_.save_peak = e_.steady_peak + sum(e_.saving);
    e_.load_peak = sum(e_.loading);
    return std::move(e_);
  }

 private:
  static ByteRange sum(const std::vector<HostRow>& rows) {
    ByteRange total;
    for (const HostRow& r : rows) total += r.size;
    return total;
  }

  // `size` is one process's.
  ByteRange all_ranks(const ByteRange& size) const { return times(host_.ranks_per_host, size); }

  void add(std::vector<HostRow>& rows, const char* name, const ByteRange& of_one, std::string source) {
    if (of_one.high.count == 0) return;
    if (host_.ranks_per_host > 1) source += fmt::format("; x {} processes", host_.ranks_per_host);
    rows.push_back({name, all_ranks(of_one), std::move(source)});
  }

  void base() {
    if (system_.size.high.count > 0) e_.steady.push_back({"system", system_.size, system_.source});
    add(e_.steady, "main process", kMainProcess, "Python, torch and CUDA's libraries: median and range of five published figures");
    if (host_.dataset_bytes.count > 0) add(e_.steady, "dataset object", ByteRange::exact(host_.dataset_bytes), "dataset_bytes");
    add(e_.steady, "swapped blocks", ByteRange::exact(facts_.weights),
        "frozen weights that are not on the device at the moment: swap_blocks");
    add(e_.steady, job_.offload_optimizer ? "offloaded optimizer" : "optimizer states", ByteRange::exact(facts_.optimizer),
        job_.offload_optimizer ? "pinned copies of weights and gradients, powers of two each, and states: CPUOffloadOptimizer"
                               : job_.optimizer.name + " keeps them in RAM and brings them to the device for the update");
    if (facts_.activations.count > 0)
      add(e_.steady, "offloaded activations", ByteRange::exact(facts_.activations),
          fmt::format("copies in {} memory between forward and backward: save_on_cpu", to_string(job_.offload_activations)));
    add(e_.steady, "EMA", ByteRange::exact(facts_.host_ema), "the average of the weights, on the host");
    add(e_.steady, "EMA update", {facts_.ema_transfer, Bytes{0}, facts_.ema_transfer}, "weights on their way into it");
    add(e_.steady, "paged states", {Bytes{0}, Bytes{0}, facts_.managed}, "CUDA managed memory: here only what the device has no room for");
  }

  bool forks() const { return host_.start_method == StartMethod::fork; }

  void workers() {
    if (host_.workers == 0) return;
    const int64_t n = host_.workers;
    if (host_.start_method == StartMethod::forkserver)
      add(e_.steady, "fork server", kForkServer, "a process that imports the script and forks the workers");
    const bool fresh = host_.start_method == StartMethod::spawn;
    add(e_.steady, "workers", times(n, fresh ? kFreshWorker : kForkedWorker),
        fmt::format("{} x {}", n,
                    fresh ? "a fresh Python that imports the script: 158 MiB with torch, 293 with transformers"
                          : "what is not shared: 8 MiB, 120 after a garbage collection (measured)"));
    dataset_copies();
  }

  // Reference counts live beside Python objects, so reading a list of them copies its pages; one array or Arrow table stays shared.
  void dataset_copies() {
    const Bytes copies = times(host_.workers, host_.dataset_bytes);
    add(e_.steady, "dataset in workers", {copies, Bytes{0}, copies},
        forks() ? "each worker's copy, page by page as reference counts are written; none if it is one array or Arrow table"
                : "pickled into each worker; none if it is tensors, which go to /dev/shm once");
  }

  void batches() {
    const HostSettings& h = host_;
    add(e_.steady, "batch being made", loader_.held,
        h.pin_memory ? "2 batches: the items, and the batch they become" : "3 batches: the one in use, the items of the next, and it");
    if (h.workers > 0) {
      add(e_.steady, "items being collated", loader_.building,
          fmt::format("each of {} workers holds the items of its batch of {} until it is put together", h.workers,
                      to_string(loader_.batch)));
      add(e_.steady, "batches in /dev/shm", loader_.shm,
          h.pin_memory
              ? fmt::format("one a worker; up to {} when pinning is slower than loading", loader_.ahead)
              : fmt::format("{} ahead (workers x prefetch_factor) and the one in use; for a moment the one before it too", loader_.ahead));
    }
    const int64_t sets = h.workers > 0 ? loader_.ahead + 1 : 2;
    add(e_.steady, "pinned batches", loader_.pinned,
        fmt::format("{} batches, each tensor rounded up to a power of two ({} as {}), cached for ever", sets, to_string(loader_.batch),
                    to_string(loader_.pinned_batch)));
    e_.shm = all_ranks(loader_.shm);
  }

  void cache() {
    if (host_.cache == CacheKind::none) return;
    const Bytes item = host_.cache_item_bytes.value_or(host_.item_bytes.value_or(Bytes{loader_.batch.count / job_.batch}));
    const Bytes all = times(host_.dataset_size, item);
    const std::string formula = fmt::format("{} items x {}", with_commas(host_.dataset_size), to_string(item));
    if (host_.cache == CacheKind::disk) {
      e_.disk = all;
      e_.notes.push_back(
          fmt::format("cache on disk: {} ({}); RAM has only pages that the kernel takes back when it needs them", to_string(all), formula));
    } else if (host_.cache == CacheKind::worker && host_.workers > 0) {
      cache_of_workers(all, formula);
    } else {
      cache_in_ram(all, formula);
    }
  }

  void cache_in_ram(Bytes all, const std::string& formula) {
    if (forks() || host_.workers == 0) {
      add(e_.steady, "cache", ByteRange::exact(all), formula + (host_.workers ? ", shared with the workers as long as nobody writes" : ""));
      return;
    }
    add(e_.steady, "cache", {all, all, times(host_.workers + 1, all)},
        formula + ": tensors move to /dev/shm and are shared, anything else is pickled into each worker");
    e_.shm += all_ranks({all, Bytes{0}, all});
  }

  // A worker is asked for dataset_size / workers items an epoch, others each time.
  void cache_of_workers(Bytes all, const std::string& formula) {
    if (host_.persistent_workers) {
      add(e_.steady, "caches of workers", {times(host_.workers, all), all, times(host_.workers, all)},
          formula + fmt::format(" x {} workers, once each has met every item; once in all after the first epoch", host_.workers));
    } else {
      add(e_.steady, "caches of workers", ByteRange::exact(all), formula + ", spread over workers that forget it after each epoch");
    }
  }

  // One process writes; torch.save takes a storage at a time to the CPU.
  void saving() {
    const bool whole = host_.save == SavePlan::cpu;
    e_.saving.push_back({"state on the CPU", ByteRange::exact(whole ? facts_.checkpoint() : facts_.largest),
                         whole ? "weights, optimizer states and EMA, copied before they are written"
                               : "torch.save copies one storage at a time: the largest"});
  }

  void loading() {
    const auto row = [&](const char* name, Bytes bytes, const char* source) { add(e_.loading, name, ByteRange::exact(bytes), source); };
    switch (host_.load) {
      case LoadPlan::cpu: row("model on the CPU", facts_.model(), "built or loaded there, then moved tensor by tensor"); break;
      case LoadPlan::state_dict:
        row("model on the CPU", facts_.model(), "built there");
        row("state dict", facts_.model(), "loaded beside it, and alive as long as its name is");
        break;
      case LoadPlan::resume: row("checkpoint on the CPU", facts_.checkpoint(), "torch.load: weights, optimizer states and EMA"); break;
      case LoadPlan::mmap: row("tensor on its way", facts_.largest, "mapped from the file and sent one by one: the largest"); break;
    }
  }

  const Job& job_;
  const HostSettings& host_;
  const HostFacts& facts_;
  const SystemReserve& system_;
  const LoaderMemory loader_;
  HostEstimate e_;
};

}  // namespace

HostFacts host_facts(const Trace& trace) {
  HostFacts f;
  for (const LiveStorage& l : alive_at(trace, static_cast<int64_t>(trace.events.size()) - 1)) {
    const Bytes bytes{trace.storages[l.id].bytes};
    switch (l.category) {
      case Category::parameter: f.parameters += bytes; break;
      case Category::buffer: f.buffers += bytes; break;
      case Category::optimizer_state: f.optimizer_states += bytes; break;
      case Category::ema: f.ema += bytes; break;
      default: continue;
    }
    f.largest = std::max(f.largest, bytes);
  }
  return f;
}

// Memory in use before a run starts: 1503 MiB on a virtual server without a desktop, not quite idle (free -m); 8.63 GiB of 121.69 on an
// idle DGX Spark (nvtop#449), "about 117 GiB available" on another with its page cache dropped. Between: Ubuntu asks for 4 GB for its
// desktop.
SystemReserve default_reserve() {
  return {mib(4096, 1503, 8837), "kernel, services, desktop: 1.5 GiB seen on a server, 8.6 on an idle DGX Spark"};
}

SystemReserve reserve_of(Bytes size, std::string source) { return {ByteRange::exact(size), std::move(source)}; }

const ByteRange& HostEstimate::peak() const {
  const ByteRange* peaks[] = {&steady_peak, &save_peak, &load_peak};
  return **std::max_element(std::begin(peaks), std::end(peaks), [](auto* a, auto* b) { return a->bytes < b->bytes; });
}

HostEstimate host_memory(const Job& job, const HostFacts& facts, const SystemReserve& system) {
  Problems problems;
  check(job.host, problems);
  require_none(problems);
  return HostCalculation(job, facts, system).run();
}

}  // namespace plimsoll
