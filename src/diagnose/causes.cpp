// Why memory ran out, in the order of what the numbers say. Each cause is one sentence with its evidence.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "diagnose/diagnosis.h"

namespace plimsoll {

namespace {

constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;
// A CUDA context and its kernels: PyTorch before lazy loading had up to 1.6 GB a process.
constexpr int64_t kContext = 2 * kGiB;
// A request that is a quarter of the device is a matter of its shape.
constexpr int64_t kLargeRequest = 4;
// Where more is free than was asked for, the messages of tests/data/oom have either under 1 % of the device left, which is full then (page
// tables, the driver's granularity), or above 40 %.
constexpr double kRoomLeft = 0.05;

std::string size(int64_t bytes) { return to_string(Bytes{bytes}); }

class Causes {
 public:
  explicit Causes(Diagnosis& d) : d_(d), s_(*d.symptom) {}

  void find() {
    if (s_.certainty == Certainty::possible) return uncertain();
    switch (s_.memory) {
      case Memory::gpu: return gpu();
      case Memory::mps: return mps();
      case Memory::tpu: return tpu();
      case Memory::shm: return shm();
      case Memory::host: return host();
      case Memory::none: return;
    }
  }

 private:
  void add(std::string cause) { d_.causes.push_back(std::move(cause)); }

  void uncertain() {
    if (s_.kind == "triton_shared_memory")
      return add("a kernel's block is too large for this device: " + s_.note + "; the device's memory (and the batch) has no part in it");
    if (s_.kind == "xla_tpu_on_chip")
      return add("an operation is too large for the chip's own memory (" + s_.note + "); the device's memory has no part in it");
    add("not certain: this status also comes from versions that do not fit together, and from an earlier error on the device");
    add("it may be memory: libraries report it when they have no room for a handle or a workspace");
  }

  void gpu() {
    if (s_.impossible_size)
      return add(
          "a size beyond an exbibyte was asked for: a negative or corrupted size (often after a failed collective), no lack of memory");
    if (s_.tried && s_.total && *s_.tried > *s_.total)
      add(fmt::format(
          "one tensor larger than the device: {} was asked for at once, the device has {}; a quadratic attention, a sequence that is too "
          "long, or a wrong shape",
          size(*s_.tried), size(*s_.total)));
    else if (s_.tried && s_.total && *s_.tried > *s_.total / kLargeRequest)
      add(fmt::format(
          "one large tensor: {} was asked for at once, {:.0f} % of the device; attention without a fused kernel, logits of a long "
          "sequence, or a wrong shape",
          size(*s_.tried), percent(*s_.tried, *s_.total)));
    limit();
    other_processes();
    fragmentation();
    full_device();
    outside_the_allocator();
    if (has_room())
      add(fmt::format(
          "the driver refused {} although it reports {} free: another process took it in between, a limit on single allocations, or "
          "the host's own memory (page file, control group)",
          size(*s_.tried), size(*s_.free)));
    need();
  }

  void limit() {
    if (s_.allowed && (!s_.total || *s_.allowed < *s_.total))
      add(fmt::format("a limit: the process may use {}{} (set_per_process_memory_fraction)", size(*s_.allowed),
                      s_.total ? " of the device's " + size(*s_.total) : ""));
  }

  void other_processes() {
    if (!d_.others || !s_.total) return;
    const bool exact = s_.process.has_value();
    if (d_.others->count < (exact ? kGiB / 4 : kContext)) return;
    add(fmt::format("other processes use the device: {} of {}{}", size(d_.others->count), size(*s_.total),
                    exact ? largest_others() : " is neither free nor this process's (its CUDA context included)"));
  }

  // " (process 450 has 7.69 GiB, 453 has 1.28 GiB)", three at most.
  std::string largest_others() const {
    std::vector<ProcessOnDevice> all = s_.processes;
    std::stable_sort(all.begin(), all.end(), [](const ProcessOnDevice& a, const ProcessOnDevice& b) { return a.bytes > b.bytes; });
    std::string out;
    for (size_t i = 0; i < std::min<size_t>(3, all.size()); ++i)
      out += fmt::format("{}{} has {}", i == 0 ? " (process " : ", ", all[i].pid, size(all[i].bytes));
    return out.empty() ? out : out + ")";
  }

  void fragmentation() {
    if (!d_.fragmented()) return;
    const int64_t idle = *s_.reserved - *s_.allocated;
    add(fmt::format(
        "fragmentation: {} is reserved but not allocated, {:.0f} % of what is reserved and enough for the {} that was asked for, "
        "but in no single piece",
        size(idle), percent(idle, *s_.reserved), size(*s_.tried)));
  }

  static double percent(int64_t part, int64_t all) { return 100 * static_cast<double>(part) / static_cast<double>(all); }

  // By what is left when neither others nor pieces explain it: the run's own tensors.
  void full_device() {
    if (!s_.allocated || !s_.total || d_.fragmented()) return;
    const int64_t limit = s_.allowed ? std::min(*s_.allowed, *s_.total) : *s_.total;
    if (*s_.allocated < limit / 2) return;
    const std::string last = is_segment() ? fmt::format("; the {} is only what was asked for last, {}", size(*s_.tried), segment()) : "";
    add(fmt::format("the device is full: tensors of this run hold {} of {} ({:.0f} %){}", size(*s_.allocated), size(limit),
                    percent(*s_.allocated, limit), last));
    said_full_ = true;
  }

  // What PyTorch asks the driver for when a small tensor finds no room (kSmallBuffer and kLargeBuffer of its caching allocator).
  bool is_segment() const { return s_.tried && s_.framework == "pytorch" && (*s_.tried == 2 * kMiB || *s_.tried == 20 * kMiB); }
  std::string segment() const {
    return fmt::format("a segment for a small tensor ({})", *s_.tried == 2 * kMiB ? "1 MiB at most" : "1 to 10 MiB");
  }

  bool has_room() const {
    if (!s_.tried || !s_.free || s_.allowed || d_.fragmented()) return false;
    const int64_t left = *s_.free - *s_.tried;
    return left > 0 && (!s_.total || static_cast<double>(left) > kRoomLeft * static_cast<double>(*s_.total));
  }

  void outside_the_allocator() {
    if (s_.private_pools && s_.tried && *s_.private_pools >= *s_.tried)
      add(fmt::format("CUDA graphs keep {} in pools of their own", size(*s_.private_pools)));
    if (s_.kind == "nccl") add("NCCL's buffers are outside the framework's pool, which had taken the device already");
    if (s_.kind == "cublas")
      add("no room for cuBLAS's handle and workspace, which are outside the framework's pool: the device was full before");
    if (s_.kind == "cudnn") add("no room for cuDNN's handle or workspace: the device was full before");
    if (s_.kind == "cuda_error")
      add("the driver had nothing left for something outside the framework's pool: a context, kernels, a graph; often other processes, or "
          "a pool "
          "that takes all");
    if (s_.kind == "bitsandbytes") add("bitsandbytes asked the driver for pages of its own, beside a pool that had the device already");
    if (s_.kind == "vllm") add("weights, activations and the share given by gpu_memory_utilization leave too little for the cache");
    if (s_.framework == "jax" || s_.kind == "xla_gpu")
      add("XLA plans a whole step ahead: weights, states, activations and temporaries of the compiled program together exceed the pool (75 "
          "% of the "
          "device unless set otherwise)");
  }

  // What the run itself wants, by when it failed.
  void need() {
    if (is_segment() && !said_full_) add(fmt::format("the device was full before: {} is {}", size(*s_.tried), segment()));
    if (d_.phase == "loading") {
      add("the model does not fit: it ran out while weights were being loaded or moved, before any training");
    } else if (d_.phase == "optimizer step") {
      add("optimizer states: they are made in the first step (two more copies of the weights with Adam), with temporaries of the update "
          "beside them");
    } else if (d_.phase == "evaluation" || d_.phase == "generation") {
      add("evaluation: its batch, its outputs that are kept, or generation beside the training's memory");
    } else if (d_.phase == "saving") {
      add("saving a checkpoint: the gathered or copied state needs room beside the training's memory");
    } else {
      add("the batch is too large for the device: activations grow with it" +
          std::string(d_.phase == "backward" ? "; in backward gradients come on top" : ""));
      add("the sequence, image or clip is too large: activations grow with it, attention without a fused kernel with its square");
    }
    if (d_.first_step == false)
      add(fmt::format(
          "memory grew after it had fitted{}: a longer batch, something kept from step to step (a loss with its graph, logged tensors), "
          "evaluation, or fragmentation",
          d_.progress && d_.progress->done && *d_.progress->done > 0 ? fmt::format(" for {} steps", *d_.progress->done) : ""));
    if (d_.phase != "loading" && d_.phase != "saving")
      add("the model is too large for the device: weights, gradients and optimizer states come before any activation");
  }

  void mps() {
    if (d_.others && d_.others->count > kGiB)
      add(fmt::format("other allocations hold {} of the memory that CPU and GPU share", size(d_.others->count)));
    if (s_.total)
      add(fmt::format("PyTorch stops at {}, a multiple of what Metal recommends; memory is shared with the system", size(*s_.total)));
    need();
  }

  void tpu() {
    if (s_.tried && s_.total)
      add(fmt::format("the compiled program needs {} and the device has {}: {} too much", size(*s_.tried), size(*s_.total),
                      size(*s_.tried - *s_.total)));
    if (s_.tried && s_.free)
      add(fmt::format("{} was asked for, {} is free: buffers that live already fill the device", size(*s_.tried), size(*s_.free)));
    add("batch and sequence: activations that the backward pass keeps; tensors whose last dimensions are no multiples of 8 x 128 are "
        "padded");
    add("weights and optimizer states that are replicated on every device instead of sharded");
  }

  void shm() {
    add("shared memory (/dev/shm) is full: DataLoader workers and NCCL pass batches through it, and containers have 64 MiB unless told "
        "otherwise");
    add("too many workers, too much prefetching, or batches that are too large");
  }

  // Whoever runs it gave it less than the machine has.
  bool limited_job() const {
    static constexpr const char* kKinds[] = {"cgroup_oom", "slurm_oom", "kubernetes_oom", "pbs", "lsf", "yarn", "ray", "dask"};
    return std::any_of(std::begin(kKinds), std::end(kKinds), [&](const char* k) { return s_.kind == k; });
  }

  void host() {
    if (limited_job())
      add(fmt::format("the host memory that the job was given was used up{}: its limit counts, not the machine's memory",
                      s_.allocated && s_.total ? fmt::format(" ({} of {})", size(*s_.allocated), size(*s_.total)) : ""));
    if (s_.kind == "kernel_oom")
      add(fmt::format("the machine's memory was used up and the kernel ended {}{}", s_.note.empty() ? "a process" : s_.note,
                      s_.allocated ? ", which had " + size(*s_.allocated) : ""));
    if (s_.kind == "windows_commit")
      add("Windows could promise no more memory (RAM and page file together): every process that loads CUDA's libraries takes gigabytes of "
          "that promise, workers of a DataLoader included");
    if (s_.kind == "cuda_pinned") {
      add("page-locked memory of the host was refused (cudaHostAlloc), not memory of the device: the RAM, a limit on locked memory "
          "(ulimit -l, WSL's share of it, a container) or the driver's");
      return add("where the process had not used the device before, pinning makes its CUDA context first, and that may not have fitted");
    }
    if (s_.kind == "systemd_oomd") add("systemd-oomd ended the session for memory pressure: it acts before the memory is used up");
    if (s_.kind == "java_heap" || s_.kind == "node_heap")
      add("the heap that the virtual machine was given is used up, not the machine's memory");
    if (s_.kind == "notebook") add("the notebook's machine had no memory left, and its session was ended");
    if (s_.kind == "kubernetes_evicted") add("the node's memory was used up, and this pod used more than it had requested");
    if (s_.kind == "sigkill")
      add("SIGKILL without a message: nearly always the kernel or a scheduler ending the process for the host's memory (dmesg tells)");
    if (s_.kind == "dataloader_killed") add("a DataLoader worker was ended from outside: nearly always for the host's memory");
    if (s_.kind == "dataloader_exited")
      add("a DataLoader worker went away without an exception: the host's memory, or a crash in a library it uses");
    if (s_.tried)
      add(fmt::format("{} of host memory was asked for at once{}", size(*s_.tried), s_.shape.empty() ? "" : " for " + s_.shape));
    if (d_.phase == "loading" || d_.phase == "saving") {
      add("weights in host memory: every process loads a copy, often in fp32 and beside the file itself");
    } else {
      add("DataLoader workers: each has a copy of the dataset's Python objects and keeps batches ahead");
      add("a dataset, cache or offloaded optimizer state held in memory");
    }
    if (d_.first_step == false) add("memory that grows over time: lists of results, caches without a limit, a leak in a loader");
  }

  Diagnosis& d_;
  const Symptom& s_;
  bool said_full_ = false;
};

}  // namespace

void find_causes(Diagnosis& d) {
  d.causes.clear();
  if (d.symptom) Causes(d).find();
}

}  // namespace plimsoll
