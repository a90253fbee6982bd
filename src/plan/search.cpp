#include "plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "util/text.h"

namespace plimsoll {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

constexpr std::pair<Objective, const char*> kObjectives[]{
    {Objective::throughput, "throughput"}, {Objective::memory, "memory"}, {Objective::batch, "batch"}, {Objective::sequence, "sequence"}};

}  // namespace

const char* to_string(Objective o) {
  for (const auto& [objective, name] : kObjectives)
    if (objective == o) return name;
  return "";
}

Objective parse_objective(const std::string& text) {
  std::vector<std::string> names;
  for (const auto& [objective, name] : kObjectives) {
    if (text == name) return objective;
    names.emplace_back(name);
  }
  throw Error(fmt::format("[plan] the goal '{}' is not known", printable(text, 60)), did_you_mean(text, names), ExitCode::usage);
}

double seconds_per_sample(const Candidate& c, size_t device) {
  if (c.needs.empty() || !c.needs[device].time) return kNever;
  return c.needs[device].time->seconds / static_cast<double>(c.global_batch());
}

Search::Search(Evaluator& evaluator, const Space& space, const Placement& placement, size_t device, Bytes limit, Objective objective)
    : evaluator_(evaluator), space_(space), placement_(placement), device_(device), limit_(limit), objective_(objective) {
  const Checkpointing& now = evaluator.job().checkpointing;
  if (!space.checkpointing || placement.blocks() == 0) {
    levels_ = {nlohmann::json(to_json(now))};
  } else {
    levels_ = {placement.level(0, false), placement.level(placement.blocks(), false)};
  }
}

// Without what the job says already, so that a change is a change.
Changes Search::at(const Changes& recipe, const Split& split, const nlohmann::json& checkpointing) const {
  const Job& job = evaluator_.job();
  Changes out = recipe;
  out.erase("checkpointing");
  if (split.batch != job.batch) out["batch"] = split.batch;
  if (split.accumulation != job.accumulation) out["accumulation"] = split.accumulation;
  if (checkpointing != nlohmann::json(to_json(job.checkpointing))) out["checkpointing"] = checkpointing;
  return out;
}

const Candidate& Search::run(const Changes& changes) {
  const Candidate& c = evaluator_.of(changes);
  if (!c.needs.empty() && (!smallest_ || c.needs[device_].device.high < smallest_->needs[device_].device.high)) smallest_ = &c;
  return c;
}

bool Search::fits(const Candidate& c) const {
  return !c.needs.empty() && c.needs[device_].verdict == Verdict::fits && c.needs[device_].device.high <= limit_;
}

std::tuple<double, size_t, int64_t> Search::cost(const Candidate& c) const {
  const double seconds = seconds_per_sample(c, device_);
  const Bytes need = c.needs[device_].device.bytes;
  // Without a time, the run with the fewest micro-steps is taken to be the fastest.
  const double speed = std::isfinite(seconds) ? seconds : 1 / static_cast<double>(c.job.batch);
  switch (objective_) {
    case Objective::throughput: return {speed, c.changes.size(), need.count};
    case Objective::memory: return {static_cast<double>(need.count), c.changes.size(), 0};
    case Objective::batch: return {-static_cast<double>(c.job.batch), c.changes.size(), need.count};
    case Objective::sequence: return {-static_cast<double>(c.job.seq), c.changes.size(), need.count};
  }
  return {};
}

bool Search::could_win(const Candidate& c) const { return !c.needs.empty() && (!best_ || cost(c) < cost(*best_)); }

// Not even at the device's peak and without recomputing anything.
bool Search::could_ever_win(const Candidate& c) const {
  const double seconds = seconds_per_sample(c, device_);
  if (!best_ || objective_ != Objective::throughput || !std::isfinite(seconds)) return true;
  return seconds * c.needs[device_].time->utilisation < std::get<0>(cost(*best_));
}

void Search::offer(const Candidate& c) {
  if (fits(c) && could_win(c)) best_ = &c;
}

std::vector<Split> Search::splits_for(const Changes& recipe) const { return splits_of(space_, with(evaluator_.job(), recipe)); }

// The fewest blocks (in the order of the placement) with which the batch fits.
void Search::fit_level(const Changes& recipe, const Split& split, bool selective) {
  const auto level = [&](size_t k) -> const Candidate& { return run(at(recipe, split, placement_.level(k, selective))); };
  size_t too_few = 0, enough = placement_.blocks();
  if (!fits(level(enough))) return;
  while (enough - too_few > 1) {
    const size_t third = std::max<size_t>(1, (enough - too_few) / 3);
    const size_t first = too_few + third, second = std::min(enough - 1, first + third);
    evaluator_.prepare({at(recipe, split, placement_.level(first, selective)), at(recipe, split, placement_.level(second, selective))});
    for (const size_t k : {first, second}) {
      if (k <= too_few || k >= enough) continue;
      if (fits(level(k))) {
        enough = k;
      } else {
        too_few = k;
      }
    }
    // More blocks only take longer.
    if (too_few > 0 && !could_win(level(too_few))) return;
  }
  offer(level(enough));
}

// As many libraries have it: the k-th block, the 2k-th, ... Of those with fewer blocks than the best has, the first that may fit.
void Search::try_every_kth(const Changes& recipe, const Split& split) {
  for (size_t k = 2; k <= placement_.blocks(); ++k) {
    const Candidate& c = run(at(recipe, split, {{"every", k}}));
    if (!could_win(c)) continue;
    offer(c);
    return;
  }
}

void Search::explore_batch(const Changes& recipe, const Split& split) {
  if (levels_.size() == 1) return;
  fit_level(recipe, split, false);
  if (const Candidate& all = run(at(recipe, split, placement_.level(placement_.blocks(), true))); fits(all)) fit_level(recipe, split, true);
  try_every_kth(recipe, split);
}

void Search::explore(const Changes& recipe, const std::vector<Split>& splits) {
  // The largest micro-batch that fits when everything is checkpointed.
  size_t fitting = 0, beyond = splits.size();
  const Candidate& least = run(at(recipe, splits[0], full()));
  if (!fits(least) || !could_ever_win(least)) return;
  for (size_t step = 1; fitting + 1 < beyond; step *= 2) {  // doubling, then halving
    const size_t next = beyond == splits.size() ? std::min(fitting + step, beyond - 1) : (fitting + beyond) / 2;
    if (fits(run(at(recipe, splits[next], full())))) {
      fitting = next;
    } else {
      beyond = next;
    }
  }
  if (objective_ == Objective::memory || objective_ == Objective::sequence) {
    offer(run(at(recipe, splits[0], full())));
    return;
  }
  if (objective_ == Objective::batch) {
    offer(run(at(recipe, splits[fitting], full())));
    return;
  }
  for (size_t i = fitting + 1; i-- > 0;) {
    const Candidate& plain = run(at(recipe, splits[i], levels_.front()));
    if (!could_win(plain)) return;  // nor does anything with fewer samples
    if (fits(plain)) {
      offer(plain);
      return;
    }
    explore_batch(recipe, splits[i]);
  }
}

// Weights lie on the device whatever else is done: a bound that needs no execution.
Bytes Search::weights_of(const Changes& recipe) const {
  const Job job = with(evaluator_.job(), recipe);
  if (job.tuning.adapter || job.tuning.quantization || job.framework != Framework::pytorch) return {};
  const bool half = job.precision == Precision::bf16 || job.precision == Precision::fp16;
  return Bytes{checked_mul(evaluator_.of(no_changes()).parameters, half ? 2 : 4)};
}

const Candidate* Search::best(LeverKind kind, const Candidate* than) {
  best_ = than;
  // The smallest corners of every group: everything checkpointed, the last way to compute the loss. A group whose corners are well above
  // the limit is left out: no other is a tenth smaller.
  struct Group {
    const Choice* choice;
    std::vector<Changes> corners;
  };
  std::vector<Group> groups;
  std::vector<Changes> corners;
  for (const Choice& group : space_.groups) {
    if (group.kind > kind || weights_of(merged(space_.free, group.changes)) > limit_) continue;
    groups.push_back({&group, {}});
    for (const Choice& offload : space_.offloads) {
      const Changes recipe = recipe_of(group, space_.losses.back(), offload, space_.lengths.back());
      groups.back().corners.push_back(at(recipe, splits_for(recipe)[0], full()));
      corners.push_back(groups.back().corners.back());
    }
  }
  evaluator_.prepare(corners);
  const auto is_near = [&](const Changes& corner) {
    const Candidate& c = run(corner);
    return !c.needs.empty() && static_cast<double>(c.needs[device_].device.high.count) * 0.9 <= static_cast<double>(limit_.count);
  };
  std::erase_if(groups, [&](const Group& g) { return std::none_of(g.corners.begin(), g.corners.end(), is_near); });

  // The fastest first, so that the others need not be looked at closely.
  struct Recipe {
    Changes changes;
    double seconds;
  };
  std::vector<Recipe> recipes;
  for (const Group& g : groups)
    for (size_t o = 0; o < space_.offloads.size(); ++o)
      for (const Choice& loss : space_.losses)
        for (const Choice& length : space_.lengths) {
          const Choice& offload = space_.offloads[o];
          if (std::max({g.choice->kind, offload.kind, loss.kind, length.kind}) == kind)
            recipes.push_back({recipe_of(*g.choice, loss, offload, length), seconds_per_sample(run(g.corners[o]), device_)});
        }
  std::stable_sort(recipes.begin(), recipes.end(), [](const Recipe& a, const Recipe& b) { return a.seconds < b.seconds; });
  for (const Recipe& r : recipes) explore(r.changes, splits_for(r.changes));
  if (best_ == than) return nullptr;
  simplify();
  return best_;
}

Changes Search::recipe_of(const Choice& group, const Choice& loss, const Choice& offload, const Choice& length) const {
  return merged(merged(merged(merged(space_.free, group.changes), loss.changes), offload.changes), length.changes);
}

// Takes back what is not needed, one change after the other.
void Search::simplify() {
  const Changes changes = best_->changes;
  for (const auto& [key, value] : changes.items()) {
    if (key == "batch" || key == "accumulation") continue;
    Changes fewer = best_->changes;
    fewer.erase(key);
    const Candidate& c = run(fewer);
    if (fits(c) && std::get<0>(cost(c)) <= std::get<0>(cost(*best_))) best_ = &c;
  }
}

std::vector<const Candidate*> pareto_front(const std::vector<const Candidate*>& candidates, size_t device) {
  std::vector<const Candidate*> sorted;
  for (const Candidate* c : candidates)
    if (std::isfinite(seconds_per_sample(*c, device))) sorted.push_back(c);
  const auto key = [&](const Candidate* c) {
    return std::tuple(c->needs[device].device.bytes.count, seconds_per_sample(*c, device), c->changes.size());
  };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Candidate* a, const Candidate* b) { return key(a) < key(b); });
  std::vector<const Candidate*> front;
  for (const Candidate* c : sorted)
    if (front.empty() || seconds_per_sample(*c, device) < seconds_per_sample(*front.back(), device)) front.push_back(c);
  return front;
}

}  // namespace plimsoll
