#include "estimate/insights.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "job/distribution.h"

namespace plimsoll {

namespace {

// Shares of the peak from which something is worth a line.
constexpr double kNotable = 0.03, kLarge = 0.25, kDominant = 0.4;

// The estimate, and what is alive at its peak.
class Scene {
 public:
  Scene(const Estimate& estimate, const Run& run) : e(estimate), job(estimate.job), trace(run.trace()) {
    const Timeline timeline = ideal_timeline(trace);
    const StepPeak& peak = timeline.steps.at(std::min(e.worst, timeline.steps.size() - 1));
    at_ = peak.at_event;
    alive_ = alive_at(trace, at_);
  }

  using Test = std::function<bool(const StorageRecord&, Category)>;
  Bytes alive(const Test& test) const {
    int64_t bytes = 0;
    for (const LiveStorage& l : alive_)
      if (const StorageRecord& s = trace.storages[l.id]; test(s, l.category)) bytes += s.bytes;
    return {bytes};
  }
  Bytes alive(Category category) const {
    return alive([&](const StorageRecord&, Category c) { return c == category; });
  }
  const std::string& op(const StorageRecord& s) const { return trace.names[s.op]; }
  bool in_attention(const StorageRecord& s) const {
    const std::string path = trace.scope_path(s.scope);
    return path.find("attn") != std::string::npos || path.find("attention") != std::string::npos;
  }
  // Activations that no backward to come will free: of passes that are over, so that only the output still holds them.
  Bytes kept_by_output(const Test& test) const {
    const bool between = e.peak_phase == Phase::optimizer || e.peak_phase == Phase::ema;
    std::vector<bool> in_use(trace.storages.size());
    for (int64_t i = at_; i >= 0 && !between; --i) {
      const Event& event = trace.events[static_cast<size_t>(i)];
      if (event.kind == Event::Kind::phase && static_cast<Phase>(event.value) == Phase::forward) break;
      if (event.kind == Event::Kind::alloc) in_use[event.storage] = true;
    }
    int64_t bytes = 0;
    for (const LiveStorage& l : alive_)
      if (const StorageRecord& s = trace.storages[l.id]; !in_use[l.id] && l.category == Category::activation && test(s, l.category))
        bytes += s.bytes;
    return {bytes};
  }
  bool at_least(Bytes bytes, double share) const {
    return bytes.count > 0 && static_cast<double>(bytes.count) >= share * static_cast<double>(e.peak.count);
  }
  // bitsandbytes and the settings of the caching allocator are for these.
  bool on_cuda() const { return e.vendor.empty() || e.vendor == "NVIDIA" || e.vendor == "AMD"; }
  bool plain_pytorch() const { return !job.program.megatron && !job.program.torchtitan && job.program.framework == Framework::pytorch; }

  const Estimate& e;
  const Job& job;
  const Trace& trace;

 private:
  int64_t at_ = -1;
  std::vector<LiveStorage> alive_;
};

using Found = std::optional<Insight>;

// `sentence` has the size in the place of "{}".
Insight insight(const char* name, const std::string& sentence, Bytes bytes, std::string flags) {
  return {name, fmt::format(fmt::runtime(sentence), to_string(bytes)), bytes, std::move(flags)};
}

bool is_adam(const Job& job) { return job.optimizer.name == "AdamW" || job.optimizer.name == "Adam"; }
bool has_fp32_weights(const Job& job) {
  return job.precision == Precision::fp32 || job.precision == Precision::amp || job.precision == Precision::amp_fp16;
}

// Of what others say better, an activation is a part that is kept for backward; the rest is backward's own.
enum class Which : uint8_t { all, kept };
bool counts(Category c, Which which) { return c == Category::activation || (which == Which::all && c == Category::backward); }

// The scores and what softmax makes of them; backward's are there while the last layers run.
Bytes math_matrices(const Scene& s, Which which = Which::all) {
  std::set<ScopeId> scopes;
  for (const StorageRecord& r : s.trace.storages)
    if (s.op(r) == "_safe_softmax") scopes.insert(r.scope);
  return s.alive([&](const StorageRecord& r, Category c) {
    const std::string& op = s.op(r);
    return counts(c, which) && scopes.contains(r.scope) &&
           (op == "_safe_softmax" || op == "_softmax_backward_data" || op == "bmm" || op == "native_dropout");
  });
}

// Without autocast fp32 inputs reach the op, which has no fused kernel for them where heads share keys.
Found math_attention(const Scene& s) {
  const Bytes bytes = math_matrices(s);
  if (!s.at_least(bytes, kNotable)) return {};
  const Job& j = s.job;
  const bool wide = j.precision == Precision::fp32 || (j.tuning.quantization && !j.autocast && !has_fp32_weights(j));
  const char* flags = j.attention == AttentionKernel::math ? "--attention auto"
                      : j.precision == Precision::fp32     ? "--precision amp"
                      : wide                               ? "--autocast"
                                                           : "--attention efficient";
  return insight("math_attention", "attention runs in fp32 with the math kernel: its score matrices hold {}", bytes, flags);
}

Bytes eager_matrices(const Scene& s, Which which = Which::all) {
  if (s.job.attention != AttentionKernel::eager) return {};
  return s.alive([&](const StorageRecord& r, Category c) {
    const std::string& op = s.op(r);
    return counts(c, which) && s.in_attention(r) &&
           (op == "_softmax" || op == "_softmax_backward_data" || op == "native_dropout" || op == "native_dropout_backward");
  });
}

Found eager_attention(const Scene& s) {
  const Bytes bytes = eager_matrices(s);
  if (!s.at_least(bytes, kNotable)) return {};
  return insight("eager_attention", "eager attention keeps matrices of tokens x tokens: {}", bytes, "--attention auto");
}

Found fp32_weights_under_adapter(const Scene& s) {
  if (!s.job.tuning.adapter || s.job.tuning.quantization || !has_fp32_weights(s.job) || s.e.xla) return {};
  const Bytes bytes = s.alive(Category::parameter) - Bytes{4 * s.e.trainable};
  if (!s.at_least(bytes, kNotable)) return {};
  return insight("fp32_weights_under_adapter", "the frozen weights under the adapter are in fp32 and hold {}; in bf16, half of it", bytes,
                 "--precision bf16");
}

// The model's own cross-entropy: logits, their copy in fp32, and what its backward makes.
Bytes loss_tensors(const Scene& s, Which which = Which::all) {
  if (s.job.inputs != InputKind::lm || s.job.loss != Loss::model || s.job.loss_settings.kernel != LossKernel::model || !s.plain_pytorch())
    return {};
  return s.alive([&](const StorageRecord& r, Category c) {
    return counts(c, which) && r.scope == 0 && r.phase != Phase::optimizer && r.phase != Phase::ema;
  });
}

Found fp32_logits(const Scene& s) {
  const Bytes bytes = loss_tensors(s);
  if (!s.at_least(bytes, kNotable)) return {};
  return insight("fp32_logits", "the loss works on all logits at once, in fp32: {}", bytes,
                 "--loss-kernel liger, or --loss-kernel chunked");
}

Found foreach_temporaries(const Scene& s) {
  const Bytes bytes =
      s.alive([&](const StorageRecord& r, Category c) { return c == Category::optimizer && s.op(r).starts_with("_foreach"); });
  if (!s.at_least(bytes, kNotable)) return {};
  return insight("foreach_temporaries", s.job.optimizer.name + "'s foreach update makes temporaries of {}", bytes,
                 is_adam(s.job) ? "--optimizer-args fused=true" : "--optimizer-args foreach=false");
}

// 8-bit AdamW has two states of a byte.
Found optimizer_state(const Scene& s) {
  const Bytes bytes = s.alive(Category::optimizer_state);
  if (!is_adam(s.job) || s.job.master_weights || !s.plain_pytorch() || !s.on_cuda() || !s.at_least(bytes, kLarge)) return {};
  const int64_t part = has_fp32_weights(s.job) || s.job.parallel.deepspeed ? 4 : 2;
  return insight("optimizer_state",
                 s.job.optimizer.name + "'s state holds {}; that of 8-bit AdamW " + (part == 4 ? "a quarter" : "half") + " of it", bytes,
                 "--optimizer AdamW8bit");
}

Found key_value_cache(const Scene& s) {
  if (s.job.checkpointing.on || s.e.xla) return {};
  const Bytes bytes = s.kept_by_output([&](const StorageRecord& r, Category) { return r.phase == Phase::forward && s.in_attention(r); });
  if (!s.at_least(bytes, kNotable)) return {};
  return insight("key_value_cache", "the model keeps a key-value cache of {} in training (use_cache)", bytes, "--config use_cache=false");
}

// What a step beside the training steps holds more than they do.
Found decided_elsewhere(const Scene& s) {
  const std::string& name = s.e.steps[s.e.worst].name;
  const bool evaluation = name == "evaluation", sampling = name == "sampling", longest = name == "longest sample";
  if (!evaluation && !sampling && !longest) return {};
  Bytes training;
  for (const StepEstimate& step : s.e.steps)
    if (step.name.starts_with("step ")) training = std::max(training, step.peak);
  const Bytes bytes = s.e.peak - training;
  if (!s.at_least(bytes, kNotable)) return {};
  if (evaluation)
    return insight("peak_outside_training", fmt::format("evaluation in batch {} needs {{}} more than training", s.job.eval_batch), bytes,
                   s.job.eval_batch > 1 ? "--eval-batch 1" : "--eval-batch 0");
  if (sampling) return insight("peak_outside_training", "generating text needs {} more than training", bytes, "--sample-tokens 0");
  return insight("peak_outside_training", fmt::format("the longest sample ({} tokens) needs {{}} more than the usual ones", s.job.longest),
                 bytes, fmt::format("--longest {}", s.job.seq));
}

Found uneven_ranks(const Scene& s) {
  if (s.e.ranks.size() < 2) return {};
  const auto [least, most] =
      std::minmax_element(s.e.ranks.begin(), s.e.ranks.end(), [](const RankPeak& a, const RankPeak& b) { return a.peak < b.peak; });
  const Bytes bytes = most->peak - least->peak;
  if (!s.at_least(bytes, kNotable)) return {};
  return insight("uneven_ranks", fmt::format("{} decides: it holds {{}} more than {}", most->name, least->name), bytes, "");
}

Found gradients_in_forward(const Scene& s) {
  const Bytes bytes = s.alive(Category::gradient);
  const bool kept = s.job.accumulation > 1 || s.job.zero_grad != ZeroGrad::after_step;
  if (!kept || s.e.xla || (s.e.peak_phase != Phase::forward && s.e.peak_phase != Phase::backward) || !s.at_least(bytes, kNotable))
    return {};
  if (s.job.accumulation == 1)
    return insight("gradients_in_forward", "gradients of the last step hold {} while activations are at their most", bytes,
                   "--zero-grad after-step");
  return insight("gradients_in_forward", "gradients of earlier micro-batches hold {} while activations are at their most", bytes,
                 "--accumulation 1");
}

// Without what the rows above say better.
Found activations(const Scene& s) {
  if (s.job.checkpointing.on || s.job.offload_activations != Offload::none) return {};
  Bytes bytes = s.alive(Category::activation);
  for (const Bytes part : {math_matrices(s, Which::kept), eager_matrices(s, Which::kept), loss_tensors(s, Which::kept)})
    bytes -= std::min(bytes, part);
  if (!s.at_least(bytes, kDominant)) return {};
  return insight("activations", "activations that are kept for backward hold {}", bytes, "--checkpointing");
}

Found fragmentation(const Scene& s) {
  if (!s.e.memory || s.e.xla || !s.on_cuda() || s.job.compile || s.job.alloc_conf.find("expandable_segments") != std::string::npos)
    return {};
  const Bytes reserved = s.e.memory->reserved.bytes, bytes = reserved - s.e.memory->allocated.bytes;
  if (static_cast<double>(bytes.count) < 0.1 * static_cast<double>(reserved.count) || bytes.count < int64_t{512} << 20) return {};
  return insight("fragmentation", "fragmentation: the allocator reserves {} more than it has allocated", bytes,
                 "--alloc-conf expandable_segments:True");
}

Found ema_on_device(const Scene& s) {
  const Bytes bytes = s.alive(Category::ema);
  if (!s.at_least(bytes, kNotable)) return {};
  return insight("ema_on_device", "the moving average of the weights holds {} of the device", bytes, "--ema-place host");
}

// Copies are made under the names of their weights, as parameters that became states.
Found master_weights(const Scene& s) {
  if (!s.job.master_weights) return {};
  const Bytes bytes =
      s.alive([](const StorageRecord& r, Category c) { return r.born_as == Category::parameter && c == Category::optimizer_state; });
  if (!s.at_least(bytes, kNotable)) return {};
  return insight("master_weights", "fp32 master weights hold {}", bytes, "--master-weights none");
}

// The base of an adapter, or parts of which nothing is trained.
Found frozen_weights(const Scene& s) {
  if (s.e.trainable >= s.e.parameters || s.job.tuning.quantization || s.e.xla) return {};
  if (s.job.tuning.adapter && has_fp32_weights(s.job)) return {};  // said better above
  const Bytes trained{s.e.trainable * (has_fp32_weights(s.job) || s.job.tuning.adapter ? 4 : 2)};
  const Bytes bytes = s.alive(Category::parameter) - std::min(trained, s.alive(Category::parameter));
  if (!s.at_least(bytes, kLarge)) return {};
  const bool language = s.on_cuda() && s.job.tuning.adapter && (s.job.inputs == InputKind::lm || s.job.inputs == InputKind::cls);
  return insight("frozen_weights", "frozen weights hold {}", bytes,
                 language               ? "--quantization nf4"
                 : s.job.tuning.adapter ? "--swap-blocks 4"
                                        : "");
}

Found not_donated(const Scene& s) {
  if (!s.e.xla || s.job.program.jax.donate) return {};
  const Bytes bytes{s.e.xla->program.outputs - s.e.xla->program.aliased};
  if (!s.at_least(bytes, kNotable)) return {};
  return insight("state_not_donated", "the new train state takes {} beside the old one, which is not donated", bytes, "--donate");
}

struct Detector {
  const char* name;
  Found (*find)(const Scene&);
};

// Those that look at the trace alone; what its script decides no flag changes.
Found of_captured(const Detector& d, const Scene& s) {
  static const std::set<std::string_view> kOfTraces{"activations", "fragmentation", "ema_on_device"};
  if (!kOfTraces.contains(d.name)) return {};
  Found out = d.find(s);
  if (out && !out->flags.starts_with("--alloc-conf")) out->flags.clear();
  return out;
}

constexpr Detector kDetectors[]{{"math_attention", math_attention},
                                {"eager_attention", eager_attention},
                                {"fp32_weights_under_adapter", fp32_weights_under_adapter},
                                {"fp32_logits", fp32_logits},
                                {"foreach_temporaries", foreach_temporaries},
                                {"optimizer_state", optimizer_state},
                                {"key_value_cache", key_value_cache},
                                {"peak_outside_training", decided_elsewhere},
                                {"uneven_ranks", uneven_ranks},
                                {"gradients_in_forward", gradients_in_forward},
                                {"activations", activations},
                                {"fragmentation", fragmentation},
                                {"ema_on_device", ema_on_device},
                                {"master_weights", master_weights},
                                {"frozen_weights", frozen_weights},
                                {"state_not_donated", not_donated}};

}  // namespace

std::vector<Insight> insights(const Estimate& e, const Run& run) {
  const Scene scene(e, run);
  std::vector<Insight> out;
  for (const Detector& d : kDetectors)
    if (Found found = e.job.captured ? of_captured(d, scene) : d.find(scene)) out.push_back(std::move(*found));
  std::stable_sort(out.begin(), out.end(), [](const Insight& a, const Insight& b) { return a.bytes > b.bytes; });
  return out;
}

std::vector<std::string> insight_names() {
  std::vector<std::string> out;
  for (const Detector& d : kDetectors) out.emplace_back(d.name);
  return out;
}

}  // namespace plimsoll
