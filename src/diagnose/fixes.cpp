// What to change, in order: what the numbers point at, then what saves most for the least; the last resorts come last. With the run each
// saving is simulated.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "diagnose/diagnosis.h"
#include "plan/quick_what_if.h"

namespace plimsoll {

namespace {

class Fixes {
 public:
  explicit Fixes(Diagnosis& d) : d_(d), s_(*d.symptom) {}

  void find() {
    if (s_.certainty == Certainty::possible) return uncertain();
    switch (s_.memory) {
      case Memory::gpu:
      case Memory::mps:
      case Memory::tpu: return device();
      case Memory::shm: return shm();
      case Memory::host: return host();
      case Memory::none: return;
    }
  }

 private:
  void add(std::string change, std::string why, std::string flags = "") {
    d_.fixes.push_back({std::move(change), std::move(why), std::move(flags), {}, {}});
  }

  bool cause(std::string_view beginning) const {
    return std::any_of(d_.causes.begin(), d_.causes.end(), [&](const std::string& c) { return c.starts_with(beginning); });
  }

  void uncertain() {
    if (s_.kind == "triton_shared_memory")
      return add("fewer stages or smaller blocks of that kernel", "its on-chip memory is the limit; a smaller batch does not help",
                 "num_stages, BLOCK_* in the kernel's configuration");
    if (s_.kind == "xla_tpu_on_chip") return add("smaller blocks of that kernel, or another tiling", "its on-chip memory is the limit");
    add("run once with half the batch", "if the error goes away it was memory");
    add("run once with errors reported where they happen", "an earlier error on the device shows itself then", "CUDA_LAUNCH_BLOCKING=1");
    add("compare the versions of driver, CUDA and cuDNN with those the framework was built for", "a mismatch gives the same status");
  }

  void device() {
    if (s_.impossible_size)
      return add("look at the first error of the log, and at lengths and shapes that come from data", "the size is wrong, not the memory");
    if (cause("one tensor larger"))
      add("find that tensor's shape: fused attention instead of eager, a shorter sequence, a smaller batch",
          "no device of this size holds it, however empty");
    if (cause("other processes") || s_.kind == "cuda_error" || s_.kind == "cublas")
      add("end the other processes on the device, or take another one", "what they hold is not yours to use",
          "nvidia-smi; CUDA_VISIBLE_DEVICES=1");
    if (cause("a limit"))
      add("raise the fraction of the device that the process may use", "the device has more",
          "torch.cuda.set_per_process_memory_fraction(1.0)");
    if (s_.kind == "vllm")
      add("another share for the cache, a shorter maximum length, or a quantized model",
          "gpu_memory_utilization counts what other processes hold too", "--gpu-memory-utilization 0.9 --max-model-len 4096");
    if (cause("fragmentation") && !has_expandable() && !needs_more())
      add("let segments grow instead of making new ones", "memory that is reserved but in pieces becomes usable", allocator_setting());
    if (cause("CUDA graphs")) add("fewer captured batch sizes, or no CUDA graphs", "each captured graph keeps its own pool");
    if (s_.framework == "jax")
      add("give XLA more of the device", "a quarter is left out by default; leave it when another process needs it",
          "XLA_PYTHON_CLIENT_MEM_FRACTION=0.95");
    if (d_.run) {
      levers();
    } else {
      usual();
    }
    if (!cause("fragmentation") && d_.first_step == false && s_.framework == "pytorch" && !has_expandable())
      add("let segments grow instead of making new ones", "batches of changing length leave gaps", allocator_setting());
    if (d_.first_step == false)
      add("keep numbers, not tensors, from step to step: loss.item(), .detach()", "a tensor that is kept keeps its whole graph");
    if (s_.memory == Memory::mps)
      add("lift PyTorch's limit on shared memory", "the system may swap or stop responding", "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0");
    last_resorts();
  }

  // The run does not fit however its segments lie; what the setting saves stands among its changes.
  bool needs_more() const { return d_.run && d_.run->fit && d_.run->fit->verdict == Verdict::does_not_fit; }
  bool has_expandable() const { return d_.set.expandable_segments; }

  std::string allocator_setting() const {
    return std::string(s_.kind == "pytorch_hip" ? "PYTORCH_HIP_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF") + "=expandable_segments:True";
  }

  // What people change by hand, when it is not known what this run has set.
  void usual() {
    if (d_.phase == "loading") {
      if (!d_.set.four_bit)
        add("load the weights in bf16, 8 or 4 bit", "half, a quarter or an eighth of fp32's bytes",
            "torch_dtype=torch.bfloat16, load_in_4bit=True");
      add("a smaller model, or adapters on a quantized one (LoRA)", "weights come before everything else");
    } else {
      if (!d_.set.batch_of_one)
        add("a smaller batch with more accumulation", "activations fall with the batch, the effective batch stays",
            "batch / 2, gradient_accumulation_steps * 2");
      if (d_.phase == "evaluation")
        add("a smaller evaluation batch, and outputs moved to the host", "evaluation has a batch of its own",
            "per_device_eval_batch_size=1 eval_accumulation_steps=1");
      if (!d_.set.checkpointing)
        add("gradient checkpointing", "activations are computed again in backward instead of kept; about a third more time",
            "gradient_checkpointing=True");
      add("shorter sequences, smaller images, fewer frames", "activations fall with them, eager attention with their square");
      if (!d_.set.autocast) add("bf16 or fp16 with autocast", "most activations take half", "bf16=True");
      if (d_.phase == "optimizer step" || d_.phase.empty())
        add("an optimizer with smaller states (8-bit Adam, Adafactor), or LoRA", "Adam keeps two copies of the weights in fp32");
      add("a smaller model: fewer layers, a smaller width", "weights, gradients and states fall with it");
    }
  }

  void levers() {
    const KnownRun& run = *d_.run;
    const bool judged = !run.what_if.target.empty();
    for (const LeverEffect& e : run.what_if.effects) {
      if (e.outcome != LeverOutcome::saves) continue;
      const bool by_short = std::find(run.by_short.begin(), run.by_short.end(), e.lever.name) != run.by_short.end();
      d_.fixes.push_back({e.lever.name, "time: " + e.lever.cost + (by_short ? "; what it saves is seen from shorter sequences" : ""),
                          e.lever.settings.flags(), e.saving, judged ? std::optional(e.verdict) : std::nullopt});
    }
  }

  void last_resorts() {
    if (s_.memory == Memory::gpu && !d_.run)
      add("offload optimizer states or weights to the host", "the last thing on one device: every step waits for the bus",
          "DeepSpeed ZeRO-Offload, FSDP cpu_offload");
    add("a device with more memory, here or rented; or several with the weights sharded (FSDP, ZeRO-3)",
        "nothing else changes; " + gpus_hint(), "plimsoll list gpus");
    if (s_.memory == Memory::gpu)
      add("train on the CPU", "its memory is larger and it is very slow: for a small model or to find an error",
          "CUDA_VISIBLE_DEVICES= python train.py ...");
    add("train on part of the data at a time, or on shorter pieces of it", "helps when lengths or what is kept of the data are the cause");
    add("try the changed run for a few steps and watch the memory",
        "most runs have their peak in the first steps, with evaluation after it",
        s_.memory == Memory::gpu ? "plimsoll watch -- python train.py ...; or watch -n 1 nvidia-smi"
                                 : "plimsoll watch -- python train.py ...");
  }

  std::string gpus_hint() const {
    return d_.run ? fmt::format("this run takes {}", to_string(d_.run->what_if.device)) : std::string("ask with --gpu which one fits");
  }

  void shm() {
    add("more shared memory for the container", "Docker gives 64 MiB unless told otherwise",
        "docker run --shm-size=8g (or --ipc=host); an emptyDir with medium: Memory on /dev/shm");
    add("fewer workers, less prefetching", "each worker keeps prefetch_factor batches there", "num_workers=2 prefetch_factor=2");
    add("pass tensors through files", "no shared memory is needed then", "torch.multiprocessing.set_sharing_strategy('file_system')");
    add("a smaller batch", "what is passed is smaller");
    add("ask what the loader needs", "workers, prefetching and pinned copies are part of the estimate",
        "plimsoll estimate RUN --workers 4 --shm 64MiB");
  }

  void host() {
    if (s_.kind == "slurm_oom") add("ask for more memory", "the step's limit is what was requested, not the node's", "#SBATCH --mem=64G");
    if (s_.kind == "kubernetes_oom" || s_.kind == "cgroup_oom" || s_.kind == "kubernetes_evicted")
      add("raise the container's memory limit and request", "the limit ends the process, however much the node has",
          "resources.limits.memory: 64Gi; docker run --memory 64g");
    if (s_.kind == "pbs") add("ask for more memory", "the limit is what was requested, not the node's", "#PBS -l mem=64gb");
    if (s_.kind == "lsf")
      add("ask for more memory", "the limit is what was requested, not the node's", "#BSUB -M 64GB -R \"rusage[mem=64GB]\"");
    if (s_.kind == "yarn") add("raise the container's memory", "its limit counts, not the node's", "spark.executor.memoryOverhead=8g");
    if (s_.kind == "ray")
      add("fewer tasks at once on a node", "each asks for more CPUs then, so that fewer run together",
          "@ray.remote(num_cpus=4, memory=8*2**30)");
    if (s_.kind == "cuda_pinned") {
      add("offload without page-locked memory", "ordinary memory may be paged out; copies to the device are slower then",
          "DeepSpeed: offload_optimizer.pin_memory=false offload_param.pin_memory=false; DataLoader(pin_memory=False)");
      add("raise the limit on locked memory", "the limit counts, not what is free",
          "ulimit -l unlimited; docker run --ulimit memlock=-1; WSL: memory= in .wslconfig");
      add("look whether the device is full", "the CUDA context of the process that pins lies there", "nvidia-smi");
    }
    if (s_.kind == "windows_commit") {
      add("a larger page file", "it is only a promise: hardly any of it is ever written",
          "System > Advanced > Performance > Virtual memory");
      add("fewer DataLoader workers", "each loads the CUDA libraries again", "num_workers=0");
    }
    if (s_.kind == "java_heap") add("a larger heap", "its limit counts, not the machine's memory", "java -Xmx16g");
    if (s_.kind == "node_heap")
      add("a larger heap", "its limit counts, not the machine's memory", "NODE_OPTIONS=--max-old-space-size=8192");
    if (s_.kind == "sigkill" || s_.kind == "dataloader_exited" || s_.kind == "dataloader_killed")
      add("look whether the kernel says so", "it names the process and its size", "dmesg -T | grep -i -E 'killed process|oom'");
    if (d_.phase == "loading") {
      add("load the weights once and in their own precision", "a copy in fp32 for each process is the usual peak",
          "low_cpu_mem_usage=True torch_dtype=\"auto\"");
    } else {
      add("fewer DataLoader workers, less prefetching", "each has its own copy and batches ahead; 0 shows whether it is them",
          "num_workers=2 prefetch_factor=2");
      add("keep the dataset in arrays or memory-mapped files, not in Python objects",
          "objects are copied into every worker as they are touched");
    }
    if (s_.kind == "numpy" || s_.kind == "python_memory")
      add("work on pieces, or in a smaller type",
          s_.shape.empty() ? "the whole was made at once" : "the array " + s_.shape + " was made at once");
    add("less on the host: no offload, smaller caches, fewer processes", "offloaded optimizer states take 12 bytes a parameter there");
    add("train on part of the data at a time", "what is loaded is smaller");
    add("ask what the host needs", "workers, pinned memory and loading are part of the estimate",
        "plimsoll estimate RUN --workers 4 --host-memory 64GiB");
  }

  Diagnosis& d_;
  const Symptom& s_;
};

// PyTorch prints two decimals of MiB up to 1 GiB and of GiB above: what may be off by that.
int64_t printed_precision(int64_t bytes) { return bytes > (1 << 30) ? (1 << 30) / 200 + 1 : (1 << 20) / 200 + 1; }

// Sizes are asked for in multiples of 2 MiB from 10 MiB on.
std::vector<std::string> tensors_of_size(const Estimate& e, int64_t tried) {
  constexpr int64_t kStep = 2 << 20, kLarge = 10 << 20;
  std::vector<std::string> out;
  if (tried < kLarge + kStep) return out;
  for (const LiveTensor& t : e.top) {
    const int64_t each = t.bytes.count / std::max<int64_t>(1, t.count);
    if (each < kLarge || std::llabs((each + kStep - 1) / kStep * kStep - tried) > printed_precision(tried)) continue;
    out.push_back(fmt::format("{} {}{}", t.module.empty() ? "the model" : t.module, t.op, t.shape.empty() ? "" : " " + t.shape));
    if (out.size() == 3) break;
  }
  return out;
}

std::optional<TargetDevice> device_of(const Diagnosis& d) {
  const Symptom& s = *d.symptom;
  if (s.memory != Memory::gpu || !s.total) return {};
  TargetDevice target;
  target.spec.vendor = s.kind == "pytorch_hip" ? "AMD" : "NVIDIA";
  target.name = "the device of the log";
  const Bytes total{s.allowed ? std::min(*s.allowed, *s.total) : *s.total};
  target.capacity = Capacity{total, total, total, "as the error says"};
  if (d.others && s.process) target.others = *d.others;  // without it a CUDA context would be counted twice
  return target;
}

}  // namespace

void find_fixes(Diagnosis& d) {
  d.fixes.clear();
  if (d.symptom) Fixes(d).find();
}

bool add_run(Diagnosis& d, const Job& job, const std::optional<TargetDevice>& asked, const OnProgress& progress) {
  if (!d.symptom) return true;
  const auto target = asked ? asked : device_of(d);
  KnownRun run;
  Runs runs;
  run.estimate = estimate(runs, job, 2000, target ? std::optional(target->spec) : std::nullopt);
  if (target) run.fit = Fitting(runs, job).replay_on(*target);
  QuickWhatIf changes = quick_what_if(runs, job, target, kShownFixes, progress);
  run.what_if = std::move(changes.all);
  run.by_short = std::move(changes.by_short);
  run.unfinished = changes.unfinished;
  if (d.symptom->tried) run.matches = tensors_of_size(run.estimate, *d.symptom->tried);
  d.set.expandable_segments |= job.alloc_conf.find("expandable_segments:True") != std::string::npos;
  d.run = std::move(run);
  find_causes(d);
  if (!d.run->matches.empty())
    d.causes.insert(d.causes.begin(), fmt::format("what was asked for has the size of {}", d.run->matches.front()));
  if (d.run->fit && d.run->fit->verdict == Verdict::does_not_fit && target->capacity)
    d.causes.insert(d.causes.begin(), fmt::format("the run needs more than the device has: {} of {}, {} of it tensors, peak in {}",
                                                  to_string(d.run->what_if.device), to_string(target->capacity->bytes),
                                                  to_string(d.run->estimate.peak), phase_name(d.run->estimate.peak_phase)));
  find_fixes(d);
  return !d.run->unfinished;
}

}  // namespace plimsoll
