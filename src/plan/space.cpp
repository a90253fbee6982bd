#include "plan/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "job/distribution.h"
#include "trace/captured_trace.h"
#include "util/text.h"

namespace plimsoll {

namespace {

bool names_one_of(const Patch& patch, const std::set<std::string>& keys) {
  return std::any_of(patch.begin(), patch.end(), [&](const auto& setting) { return keys.contains(setting.first); });
}

bool may_turn(const Lever& l, const std::set<std::string>& keep, const std::set<std::string>& allow, const std::set<std::string>& without) {
  const auto& all = knobs();
  const auto knob = std::find_if(all.begin(), all.end(), [&](const Knob& k) { return l.knob == k.name; });
  if (knob == all.end() || keep.contains(l.knob) || (knob->asked_for && !allow.contains(l.knob))) return false;
  return !names_one_of(l.settings, without) && !without.contains(l.name);
}

LeverKind worse(LeverKind a, LeverKind b) { return std::max(a, b); }

std::vector<Choice> product(const std::vector<Choice>& a, const std::vector<Choice>& b) {
  std::vector<Choice> out;
  for (const Choice& x : a)
    for (const Choice& y : b) out.push_back({merged(x.changes, y.changes), worse(x.kind, y.kind)});
  return out;
}

class Levers {
 public:
  Levers(const Job& job, const Constraints& constraints, const TargetDevice& device) {
    for (const Lever& l : levers_for(job, device))
      if (l.searched && may_turn(l, constraints.keep, constraints.allow, constraints.without)) levers_.push_back(l);
  }

  std::vector<Patch> costless() const {
    std::vector<Patch> out;
    for (const Lever& l : levers_)
      if (l.free) out.push_back(l.settings);
    return out;
  }

  // As it is, or one of the knob's levers.
  std::vector<Choice> of(const std::string& knob) const {
    std::vector<Choice> out{Choice{}};
    for (const Lever& l : levers_)
      if (l.knob == knob && !l.free) out.push_back({l.settings, l.kind});
    return out;
  }

 private:
  std::vector<Lever> levers_;
};

Choice ddp_on(int64_t world, bool zero1) {
  Choice c;
  if (zero1) c.changes.set("zero1", {{"world", world}, {"ddp", true}});
  c.changes.set("ddp", {{"world", world}, {"bucket_view", true}});
  return c;
}

// Whole weights in the forward pass, or gathered again for backward.
Choice fsdp_on(int64_t world, bool reshard) {
  Choice c;
  c.changes.set("fsdp", {{"world", world}});
  if (!reshard) c.changes.set("fsdp", "reshard", false);
  return c;
}

Choice deepspeed_on(int64_t world, int64_t stage) {
  Choice c;
  c.changes.set("zero", {{"world", world}, {"stage", stage}});
  return c;
}

// One device, or all of them in one of the ways that the answer has a word for.
std::vector<Choice> spreads_on(const Constraints& constraints) {
  const int64_t n = constraints.gpus;
  std::vector<Choice> out{Choice{},          ddp_on(n, false),   ddp_on(n, true),    fsdp_on(n, true),
                          fsdp_on(n, false), deepspeed_on(n, 1), deepspeed_on(n, 2), deepspeed_on(n, 3)};
  std::erase_if(out, [&](const Choice& c) { return names_one_of(c.changes, constraints.without); });
  return out;
}

}  // namespace

const std::vector<Knob>& knobs() {
  static const std::vector<Knob> kKnobs{
      {"batch", "micro-batch and accumulation; the global batch is kept", false},
      {"evaluation", "the batch of an evaluation", false},
      {"precision", "fp32, autocast, or everything in bf16", false},
      {"checkpointing", "which blocks are run again in backward", false},
      {"attention", "eager or fused attention", false},
      {"loss", "cross-entropy whole, or fused with the output layer", false},
      {"output", "whether the logits are kept until the next step", false},
      {"optimizer", "AdamW fused, in 8 bits, Adafactor, Lion", false},
      {"update", "the update in backward, or on the host", false},
      {"offload", "activations on the host", false},
      {"adapter", "LoRA and QLoRA in place of full training", false},
      {"quantization", "the frozen base of an adapter in 4 bits", false},
      {"swap", "frozen blocks on the host in turns", false},
      {"ema", "the moving average on the host, or none", false},
      {"allocator", "expandable segments", false},
      {"donate", "jax: new parameters written over the old ones", false},
      {"ddp", "several devices: DDP, ZeRO-1 to -3, FSDP2", false},
      {"seq", "shorter sequences or smaller images", true},
      {"model", "fewer layers, frames, or keys of the model itself", true},
  };
  return kKnobs;
}

void check(const Constraints& constraints) {
  std::vector<std::string> names;
  std::vector<std::string> asked_for;
  for (const Knob& k : knobs()) {
    names.emplace_back(k.name);
    if (k.asked_for) asked_for.emplace_back(k.name);
  }
  for (const auto* set : {&constraints.keep, &constraints.allow})
    for (const std::string& name : *set)
      if (std::find(names.begin(), names.end(), name) == names.end())
        throw Error(fmt::format("[plan] '{}' is nothing that a plan turns", printable(name, 60)), did_you_mean(name, names),
                    ExitCode::usage);
  for (const Knob& k : knobs())
    if (!k.asked_for && constraints.allow.contains(k.name))
      throw Error(fmt::format("[plan] '{}' needs no --allow: a plan turns it unless --keep names it", k.name),
                  "--allow is for " + join(asked_for, " and "), ExitCode::usage);
  for (const std::string& name : constraints.keep)
    if (constraints.allow.contains(name))
      throw Error(fmt::format("[plan] '{}' is both kept and allowed", name), "leave one of the two out", ExitCode::usage);
}

Space space_of(const Job& job, const Constraints& constraints, const TargetDevice& device) {
  check(constraints);
  const Levers levers(job, constraints, device);
  Space s;
  s.costless = levers.costless();
  for (const Patch& c : s.costless) s.free = merged(s.free, c);
  s.groups = {Choice{}};
  for (const char* knob : {"precision", "optimizer", "update"}) s.groups = product(s.groups, levers.of(knob));
  // Adapters have so few states that neither optimizer nor its place matters.
  const std::vector<Choice> adapters = levers.of("adapter"), precisions = levers.of("precision");
  for (size_t i = 1; i < adapters.size(); ++i)
    for (const Choice& c : product(precisions, {adapters[i]})) s.groups.push_back(c);
  for (const char* knob : {"quantization", "ema", "swap", "ddp"}) s.groups = product(s.groups, levers.of(knob));
  if (constraints.gpus > 1 && !job.captured && !is_distributed(job) && !constraints.keep.contains("ddp"))
    s.groups = product(s.groups, spreads_on(constraints));
  // A loss that never makes the logits has none to drop.
  s.losses = levers.of("output");
  const std::vector<Choice> losses = levers.of("loss");
  s.losses.insert(s.losses.end(), losses.begin() + 1, losses.end());
  s.offloads = levers.of("offload");
  s.lengths = product(levers.of("seq"), levers.of("model"));
  s.checkpointing = !job.captured && !constraints.keep.contains("checkpointing") && !constraints.without.contains("checkpointing");
  s.placements = constraints.placements;
  s.batch = (!job.captured || job.captured->find_symbol("batch")) && !constraints.keep.contains("batch") &&
            !constraints.without.contains("batch") && !constraints.without.contains("accumulation");
  s.accumulation = constraints.global_batch && !constraints.without.contains("accumulation");
  s.keep = constraints.keep;
  s.allow = constraints.allow;
  s.without = constraints.without;
  const bool given = job.origin.contains("batch") || job.origin.contains("accumulation") || job.origin.contains("global_batch");
  if (constraints.global_batch) {
    s.global = constraints.global_batch;
  } else if (given) {
    s.global = checked_mul(checked_mul(job.batch, job.accumulation), replica_count(job));
  }
  return s;
}

bool Space::excludes(const Lever& lever) const {
  return keep.contains(lever.knob) || names_one_of(lever.settings, without) || without.contains(lever.name);
}

bool Space::turns(const Lever& lever) const { return may_turn(lever, keep, allow, without); }

std::vector<Split> splits_of(const Space& space, const Job& job) {
  // A micro-batch that stays comes as near to the total as it can: 3 x 21 on 4 devices make 252 of 256.
  if (!space.batch && space.global && space.accumulation && job.program.framework == Framework::pytorch)
    return {nearest_split(*space.global, replica_count(job), job.batch)};
  if (!space.batch) return {{job.batch, job.accumulation}};
  // jit and pmap have no accumulation, a captured program has the one of its script: the batch itself is smaller.
  if (job.program.framework == Framework::jax || job.captured) {
    std::vector<Split> out = free_splits(1);
    if (!space.global) return out;
    const int64_t most = std::max<int64_t>(1, *space.global / replica_count(job));
    std::erase_if(out, [&](const Split& s) { return s.batch >= most; });
    out.push_back({most, 1});
    return out;
  }
  return space.global ? splits_of(*space.global, replica_count(job)) : free_splits(job.accumulation);
}

}  // namespace plimsoll
