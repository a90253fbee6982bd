#include "plan/step_time.h"

#include "job/distribution.h"
#include "program/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "plan/communication.h"
#include "plan/device_rates.h"
#include "plan/layout_time.h"
#include "step/torchtitan_checks.h"
#include "util/checked.h"

namespace plimsoll {

namespace {

// A kernel does not begin when the last one ends: launch, ramp and tail on the device.
constexpr double kKernelLatency = 3e-6;
// What Python, the dispatcher and the driver need for one kernel of forward, with the modules and views around it, and for one of backward,
// which runs without Python. A BERT-base too small to fill an A100 takes 23 ms a step with eager attention and 17 ms with sdpa
// (transformers, model_doc/bert), DistilBERT on another machine half of that for half the layers (model_doc/distilbert).
constexpr double kHostForward = 45e-6, kHostBackward = 23e-6;
// Tiles of a product wait for their first operands and write their results while nothing is multiplied: this part of the time that its
// bytes take is not hidden. Small products reach less of the peak by it. Set on published runs (docs/time.md).
constexpr double kUnhidden = 0.6;

// torch.compile fuses element-wise chains and launches what is left from C++: bytes of memory-bound kernels, launches, and the host's part.
// Calibrated on nanoGPT (250 to 135 ms) and torchtune (7075 to 8998 tokens a second).
constexpr double kCompiledBytes = 0.4, kCompiledLaunches = 0.4, kCompiledHost = 0.3;

// AdamW reads and writes 7 numbers an element in its fused form, 20 in eight passes of the foreach form (torch/optim/adamw.py), of which
// two are temporaries that the simulation sees.
constexpr double kUnfusedPasses = 18.0 / 7;
constexpr double kPasses = 8;            // kernels a tensor of the loop form
constexpr double kTensorsOfLaunch = 50;  // that one multi-tensor kernel takes, about (depth_to_max_tensors of MultiTensorApply.cuh)
// An update on the host: reads and writes of its copies by all cores of a workstation.
constexpr double kHostMemory = 30e9;
// cudaMemcpy from memory that is not pinned goes through a buffer.
constexpr double kPageable = 0.5;

// Arithmetic that need not have a rate: the angles of rotary embeddings are fp32 in every model.
constexpr double kNegligible = 0.001;

enum class OptimizerForm { fused, foreach, loop, one_kernel };

OptimizerForm form_of(const Job& job) {
  const Config& args = job.optimizer.args;
  if (args.flag({"fused"}, false)) return OptimizerForm::fused;
  const bool low_bit = job.optimizer.name.find("bit") != std::string::npos || job.optimizer.name.find("aged") != std::string::npos;
  if (low_bit) return OptimizerForm::one_kernel;
  if (args.find({"fused"}) || (args.find({"foreach"}) && !args.flag({"foreach"}, true))) return OptimizerForm::loop;
  return OptimizerForm::foreach;
}

bool is_step(const Kernel& k) { return std::string_view(k.op) == "step"; }

// Launches of one record.
double launches_of(const Kernel& k, OptimizerForm form) {
  if (is_step(k)) {
    switch (form) {
      case OptimizerForm::fused: return k.launches / kTensorsOfLaunch;
      case OptimizerForm::foreach: return kPasses * k.launches / kTensorsOfLaunch;
      case OptimizerForm::loop: return kPasses * k.launches;
      case OptimizerForm::one_kernel: return k.launches;
    }
  }
  return std::string_view(k.op).starts_with("_foreach") ? 1 / kTensorsOfLaunch : k.launches;
}

// Micro-steps of a step, how many of them were simulated, and which one of those stands for the others: the last but one, or, of
// torchtitan, where the first gathers what a pipeline keeps, the last. A pipeline's are the micro-batches of its batch there.
struct MicroSteps {
  int64_t all = 1, run = 1, repeated = 0;
};

MicroSteps micro_steps_of(const Job& job) {
  const bool titan = job.program.torchtitan.has_value();
  MicroSteps m;
  m.all = titan ? checked_mul(job.accumulation, torchtitan_micro_batches(job)) : job.accumulation;
  m.run = titan ? std::min<int64_t>(m.all, 2) : simulated_micro_steps(job);
  m.repeated = std::max<int64_t>(m.run - (titan ? 1 : 2), 0);
  return m;
}

double times(const MicroSteps& m, const Kernel& k) {
  const bool repeats = (k.phase == Phase::forward || k.phase == Phase::backward) && k.micro_step == m.repeated;
  return repeats ? static_cast<double>(m.all - m.run + 1) : 1;
}

struct KernelTime {
  double device = 0, host = 0;
};

class Clock {
 public:
  Clock(const Job& job, const DeviceSpec& device) : job_(job), rates_(device, job.program.framework), form_(form_of(job)) {}

  const DeviceRates& rates() const { return rates_; }
  double launches(const Kernel& k) const {
    const double n = launches_of(k, form_);
    return compiled(k) && k.unit == Unit::memory ? n * kCompiledLaunches : n;
  }

  bool knows(const Kernel& k) const { return k.flops == 0 || rates_.flops(k.unit, k.dtype); }

  // Arithmetic whose rate is not known takes no time.
  KernelTime time(const Kernel& k) const {
    double arithmetic = 0, bytes = static_cast<double>(k.bytes);
    if (k.flops > 0 && knows(k)) arithmetic = k.flops / *rates_.flops(k.unit, k.dtype);
    if (compiled(k) && k.unit == Unit::memory) bytes *= kCompiledBytes;
    if (is_step(k) && (form_ == OptimizerForm::foreach || form_ == OptimizerForm::loop)) bytes *= kUnfusedPasses;
    const double n = launches(k);
    KernelTime t;
    const double memory = bytes / *rates_.memory();
    t.device = std::max(arithmetic + (arithmetic > 0 ? kUnhidden * memory : 0), memory) + n * kKernelLatency;
    const bool python = k.phase == Phase::forward || k.recomputed;
    t.host = n * (python ? kHostForward : kHostBackward) * (compiled(k) ? kCompiledHost : 1);
    return t;
  }

 private:
  // XLA compiles the whole step, as torch.compile does forward and backward.
  bool compiled(const Kernel& k) const {
    if (job_.program.framework == Framework::jax) return true;
    return job_.compile && (k.phase == Phase::forward || k.phase == Phase::backward);
  }

  const Job& job_;
  DeviceRates rates_;
  OptimizerForm form_;
};

double& part_of(StepTime& t, const Kernel& k) {
  if (k.phase == Phase::forward) return t.forward;
  if (k.phase == Phase::backward) return k.recomputed ? t.recompute : t.backward;
  return t.optimizer;
}

struct Transfers {
  double activations = 0, other = 0;  // bytes
};

// save_on_cpu waits for each copy; the average of the weights is moved between steps. Gradients on their way to an update on the host hide
// behind backward, and the next blocks of a swapped model behind those that compute.
double transfer_seconds(const Job& job, const Simulation& s, const Transfers& moved, const StepTime& t, double link) {
  const double pace = job.offload_activations == Offload::pageable ? link * kPageable : link;
  double seconds = moved.activations / pace;
  if (job.offload_optimizer) {
    const double out = moved.other / 2 / link, back = moved.other / 2 / link;
    seconds += std::max(0.0, out - t.backward) + back + 2 * static_cast<double>(s.host.optimizer.count) / kHostMemory;
  } else {
    seconds += moved.other / link;
  }
  if (s.host.weights.count > 0) {  // in forward and again in backward
    const double swapped = 2 * static_cast<double>(s.host.weights.count) * static_cast<double>(job.accumulation) / link;
    seconds += std::max(0.0, swapped - t.forward - t.recompute - t.backward);
  }
  return seconds;
}

bool is_text(InputKind k) { return k == InputKind::lm || k == InputKind::cls || k == InputKind::pair; }

void scale(StepTime& t, double factor) {
  for (double* part :
       {&t.seconds, &t.forward, &t.recompute, &t.backward, &t.optimizer, &t.transfers, &t.communication, &t.bubble, &t.launch, &t.host})
    *part *= factor;
}

std::string missing_rate(const DeviceSpec& d, const Kernel& k) {
  return fmt::format("no rate of {} arithmetic is established for the {}", dtype_name(k.dtype), d.name);
}

// Bytes made inside a block that are alive when the forward pass has ended.
int64_t kept_by(const Trace& trace, const BlockRun& run) {
  int64_t alive = 0;
  for (size_t i = run.first_event; i < trace.events.size() && trace.events[i].kind != Event::Kind::phase; ++i) {
    const Event& e = trace.events[i];
    const bool of_storage = e.kind == Event::Kind::alloc || e.kind == Event::Kind::free;
    if (!of_storage || e.storage < run.first_storage || e.storage >= run.last_storage) continue;
    const int64_t bytes = trace.storages[e.storage].bytes;
    alive += e.kind == Event::Kind::alloc ? bytes : -bytes;
  }
  return alive;
}

}  // namespace

StepTimeAnswer step_time(const Job& job, const Simulation& simulation, const DeviceSpec& device, const Calibration& calibration,
                         const Cluster& cluster) {
  if (!device.bandwidth_gbs) return {{}, fmt::format("the memory bandwidth of the {} is not established", device.name)};
  if (simulation.work.kernels.empty()) return {{}, "the simulation counted no work"};
  const Clock clock(job, device);
  const MicroSteps micro_steps = micro_steps_of(job);
  StepTime t;
  Transfers moved;
  double host = 0, kernels = 0;
  Kernel largest_unknown;
  double unknown = 0;   // operations at a rate that is not established
  double in_peaks = 0;  // seconds that the arithmetic would take at the vendor's peak
  for (const Kernel& k : simulation.work.kernels) {
    const double n = times(micro_steps, k);
    if (k.unit == Unit::transfer) {
      (k.phase == Phase::forward || k.phase == Phase::backward ? moved.activations : moved.other) += n * static_cast<double>(k.bytes);
      continue;
    }
    const KernelTime time = clock.time(k);
    part_of(t, k) += n * time.device;
    host += n * time.host;
    kernels += n * clock.launches(k);
    t.flops += n * k.flops;
    t.bytes += n * static_cast<double>(k.bytes);
    if (k.flops == 0 || k.recomputed) continue;
    t.model_flops += n * k.flops;
    if (clock.knows(k))
      in_peaks += n * k.flops / *clock.rates().peak(k.unit, k.dtype);
    else
      unknown += n * k.flops;
    if (!clock.knows(k) && k.flops > largest_unknown.flops) largest_unknown = k;
  }
  if (unknown > kNegligible * t.model_flops) return {{}, missing_rate(device, largest_unknown)};
  t.kernels = static_cast<int64_t>(kernels);
  t.host = host;
  t.launch = std::max(0.0, host - (t.forward + t.recompute + t.backward + t.optimizer));
  t.transfers = transfer_seconds(job, simulation, moved, t, clock.rates().host_link());
  const Interconnect links(clock.rates().ring(), cluster);
  t.communication = communication_seconds(job, simulation, t, links);
  if (job.program.has_stages()) {
    const auto layout_time = job.program.megatron ? megatron_time : torchtitan_time;
    const LayoutTime layout = layout_time(job, simulation, t, links);
    t.communication = layout.communication;
    t.bubble = layout.bubble;
  }
  t.seconds = t.forward + t.recompute + t.backward + t.optimizer + t.transfers + t.communication + t.bubble + t.launch;
  scale(t, calibration.factor);
  t.utilisation = in_peaks / t.seconds;
  const int64_t replicas = replica_count(job);
  t.samples_per_second = static_cast<double>(job.batch * job.accumulation * replicas) / t.seconds;
  if (is_text(job.inputs)) t.tokens_per_second = t.samples_per_second * static_cast<double>(job.seq);
  const bool uses_link = t.transfers > 0 || (t.communication > 0 && !device.interconnect_gbs);
  for (const std::string& a : clock.rates().assumptions())
    if (uses_link || a.find("link") == std::string::npos) t.assumptions.push_back(a);
  return {std::move(t), ""};
}

StepTimeAnswer step_time(const Job& job, const DeviceSpec& device, const Calibration& calibration, const Cluster& cluster) {
  return step_time(job, execute(timed_job(job), {}, kTimed)->simulation, device, calibration, cluster);
}

// The derivative and the update that XLA compiles compute what autograd and the optimizer do.
Job timed_job(const Job& job) {
  Job twin = job;
  if (job.program.framework == Framework::pytorch) return twin;
  twin.program.framework = Framework::pytorch;
  twin.program.jax = {};
  twin.steps = 1;
  return twin;
}

Calibration calibrate(const Job& job, const DeviceSpec& device, double measured, const Cluster& cluster) {
  if (!(measured > 0)) throw Error(fmt::format("[step time] {} s is no time of a step", measured), "give seconds of one optimizer step");
  const StepTimeAnswer predicted = step_time(job, device, {}, cluster);
  if (!predicted.time) throw Error("[step time] " + predicted.unknown, "leave the measured time out");
  return {measured / predicted.time->seconds,
          fmt::format("{:.3g} s measured, {:.3g} s predicted on the {}", measured, predicted.time->seconds, device.name)};
}

std::vector<BlockCost> block_costs(const Job& job, const DeviceSpec& device) {
  Job plain = job;
  plain.checkpointing = {};
  const Attempt tried = attempt(plain, {}, kTimed);
  if (tried.problem) return {};
  const Simulation& s = tried.run->simulation;
  const Clock clock(plain, device);
  std::vector<BlockCost> blocks;
  for (const BlockRun& run : s.work.blocks) {
    BlockCost& b = blocks.emplace_back();
    b.module = s.trace.scope_path(run.scope);
    b.result = Bytes{run.result_bytes};
    b.kept = Bytes{kept_by(s.trace, run) - run.result_bytes};
  }
  for (const Kernel& k : s.work.kernels) {
    if (k.block == 0 || k.unit == Unit::transfer) continue;
    BlockCost& b = blocks[k.block - 1];
    b.flops += k.flops;
    b.bytes += static_cast<double>(k.bytes);
    if (!device.bandwidth_gbs) continue;
    b.seconds += clock.time(k).device;
  }
  std::vector<BlockCost> first;  // those of the first micro-step
  for (size_t i = 0; i < blocks.size(); ++i)
    if (s.work.blocks[i].micro_step == 0) first.push_back(std::move(blocks[i]));
  return first;
}

}  // namespace plimsoll
