#include "plan/space.h"

#include <fmt/format.h>

#include <algorithm>

#include "job/distribution.h"
#include "util/text.h"

namespace plimsoll {

namespace {

Recipe changes_of(const Lever& lever) {
  Recipe out = no_changes();
  for (const auto& [key, value] : lever.settings) out[key] = value;
  return out;
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
  Levers(const Job& job, const Wishes& wishes, const TargetDevice& device) {
    for (const Lever& l : levers_for(job, device)) {
      const auto& all = knobs();
      const auto knob = std::find_if(all.begin(), all.end(), [&](const Knob& k) { return l.knob == k.name; });
      if (knob == all.end() || wishes.keep.contains(l.knob) || (knob->asked_for && !wishes.allow.contains(l.knob))) continue;
      const bool sayable =
          std::none_of(l.settings.begin(), l.settings.end(), [&](const auto& s) { return wishes.without.contains(s.first); });
      if (l.searched && sayable && !wishes.without.contains(l.name)) levers_.push_back(l);
    }
  }

  std::vector<Recipe> costless() const {
    std::vector<Recipe> out;
    for (const Lever& l : levers_)
      if (l.free) out.push_back(changes_of(l));
    return out;
  }

  // As it is, or one of the knob's levers.
  std::vector<Choice> of(const std::string& knob) const {
    std::vector<Choice> out{Choice{}};
    for (const Lever& l : levers_)
      if (l.knob == knob && !l.free) out.push_back({changes_of(l), l.kind});
    return out;
  }

 private:
  std::vector<Lever> levers_;
};

Choice ddp_on(int64_t world, bool zero1) {
  Choice c;
  if (zero1) c.changes["zero1"] = {{"world", world}, {"ddp", true}};
  c.changes["ddp"] = {{"world", world}, {"bucket_view", true}};
  return c;
}

// Whole weights in the forward pass, or gathered again for backward.
Choice fsdp_on(int64_t world, bool reshard) {
  Choice c;
  c.changes["fsdp"] = {{"world", world}};
  if (!reshard) c.changes["fsdp"]["reshard"] = false;
  return c;
}

Choice deepspeed_on(int64_t world, int64_t stage) {
  Choice c;
  c.changes["zero"] = {{"world", world}, {"stage", stage}};
  return c;
}

// One device, or all of them in one of the ways that the answer has a word for.
std::vector<Choice> spreads_on(const Wishes& wishes) {
  const int64_t n = wishes.gpus;
  std::vector<Choice> out{Choice{},          ddp_on(n, false),   ddp_on(n, true),    fsdp_on(n, true),
                          fsdp_on(n, false), deepspeed_on(n, 1), deepspeed_on(n, 2), deepspeed_on(n, 3)};
  std::erase_if(out, [&](const Choice& c) {
    return std::any_of(wishes.without.begin(), wishes.without.end(), [&](const std::string& s) { return c.changes.contains(s); });
  });
  return out;
}

}  // namespace

const std::vector<Knob>& knobs() {
  static const std::vector<Knob> kKnobs{
      {"batch", "micro-batch and accumulation; the global batch is kept", false},
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

void check(const Wishes& wishes) {
  std::vector<std::string> names;
  for (const Knob& k : knobs()) names.emplace_back(k.name);
  for (const auto* set : {&wishes.keep, &wishes.allow})
    for (const std::string& name : *set)
      if (std::find(names.begin(), names.end(), name) == names.end())
        throw Error(fmt::format("[plan] '{}' is nothing that a plan turns", printable(name, 60)), did_you_mean(name, names),
                    ExitCode::usage);
  for (const std::string& name : wishes.keep)
    if (wishes.allow.contains(name))
      throw Error(fmt::format("[plan] '{}' is both kept and allowed", name), "leave one of the two out", ExitCode::usage);
}

Space space_of(const Job& job, const Wishes& wishes, const TargetDevice& device) {
  check(wishes);
  const Levers levers(job, wishes, device);
  Space s;
  s.costless = levers.costless();
  for (const Recipe& c : s.costless) s.free = merged(s.free, c);
  s.groups = {Choice{}};
  for (const char* knob : {"precision", "optimizer", "update"}) s.groups = product(s.groups, levers.of(knob));
  // Adapters have so few states that neither optimizer nor its place matters.
  const std::vector<Choice> adapters = levers.of("adapter"), precisions = levers.of("precision");
  for (size_t i = 1; i < adapters.size(); ++i)
    for (const Choice& c : product(precisions, {adapters[i]})) s.groups.push_back(c);
  for (const char* knob : {"quantization", "ema", "swap", "ddp"}) s.groups = product(s.groups, levers.of(knob));
  if (wishes.gpus > 1 && !is_distributed(job) && !wishes.keep.contains("ddp")) s.groups = product(s.groups, spreads_on(wishes));
  // A loss that never makes the logits has none to drop.
  s.losses = levers.of("output");
  const std::vector<Choice> losses = levers.of("loss");
  s.losses.insert(s.losses.end(), losses.begin() + 1, losses.end());
  s.offloads = levers.of("offload");
  s.lengths = product(levers.of("seq"), levers.of("model"));
  s.checkpointing = !wishes.keep.contains("checkpointing") && !wishes.without.contains("checkpointing");
  s.placements = wishes.placements;
  s.batch = !wishes.keep.contains("batch") && !wishes.without.contains("batch") && !wishes.without.contains("accumulation");
  s.accumulation = wishes.global_batch && !wishes.without.contains("accumulation");
  s.keep = wishes.keep;
  const bool given = job.origin.contains("batch") || job.origin.contains("accumulation") || job.origin.contains("global_batch");
  if (wishes.global_batch) {
    s.global = wishes.global_batch;
  } else if (given) {
    s.global = checked_mul(checked_mul(job.batch, job.accumulation), replica_count(job));
  }
  return s;
}

std::vector<Split> splits_of(const Space& space, const Job& job) {
  // A micro-batch that stays comes as near to the total as it can: 3 x 21 on 4 devices make 252 of 256.
  if (!space.batch && space.global && space.accumulation && job.program.framework == Framework::pytorch)
    return {nearest_split(*space.global, replica_count(job), job.batch)};
  if (!space.batch) return {{job.batch, job.accumulation}};
  // jit and pmap have no accumulation: the batch itself is smaller.
  if (job.program.framework == Framework::jax) {
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
