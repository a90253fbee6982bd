#include "plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <limits>
#include <map>

#include "job/distribution.h"
#include "plan/lower_bound.h"
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
  const Job& job = evaluator.job();
  whole_parameters_ = whole_parameters(job, evaluator.evaluate(Patch()).parameters);
  const Checkpointing& now = job.checkpointing;
  if (space.checkpointing && job.program.megatron) {
    levels_ = {false, true};  // its own recomputation, of every layer
  } else if (!space.checkpointing || placement.blocks() == 0) {
    levels_ = {nlohmann::json(to_json(now))};
  } else {
    levels_ = {placement.level(0, false), placement.level(placement.blocks(), false)};
  }
}

// Without what the job says already, so that a change is a change.
Patch Search::recipe_at(const Patch& recipe, const Split& split, const nlohmann::json& checkpointing) const {
  const Job& job = evaluator_.job();
  Patch out = recipe;
  out.erase("checkpointing");
  if (split.batch != job.batch) out.set("batch", split.batch);
  if (split.accumulation != job.accumulation) out.set("accumulation", split.accumulation);
  if (checkpointing != nlohmann::json(to_json(job.checkpointing))) out.set("checkpointing", checkpointing);
  return out;
}

const Candidate& Search::run(const Patch& changes) {
  const Candidate& c = evaluator_.evaluate(changes);
  if (!c.needs.empty() && (!smallest_ || c.needs[device_].device.high < smallest_->needs[device_].device.high)) smallest_ = &c;
  return c;
}

bool Search::fits(const Candidate& c) const { return !c.needs.empty() && plimsoll::fits(c.needs[device_], limit_); }

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

// The least time a sample that a recipe can reach with any batch and no recomputation, from the corner that all recipes have in common:
// its own arithmetic there, less what larger batches took off the arithmetic of the first recipe with that loss, and less a fifth because
// small kernels do not all gain alike.
bool Search::could_ever_win(const Patch& recipe, const StepTime& corner, double shrinking) const {
  if (!best_ || objective_ != Objective::throughput || shrinking == 0) return true;
  const Job job = patched(evaluator_.job(), corner_of(recipe), "plan");
  double least = (corner.forward + corner.backward) * shrinking;
  if (space_.global) least += corner.optimizer + corner.communication;  // of a step, whatever its micro-batches
  if (job.offload_activations == Offload::none && space_.global) least += corner.transfers;
  const int64_t samples = checked_mul(checked_mul(job.batch, job.accumulation), replica_count(job));
  return 0.8 * least / static_cast<double>(samples) < std::get<0>(cost(*best_));
}

void Search::offer(const Candidate& c) {
  if (fits(c) && could_win(c)) best_ = &c;
}

std::vector<Split> Search::splits_for(const Patch& recipe) const { return splits_of(space_, patched(evaluator_.job(), recipe, "plan")); }

// The fewest blocks (in the order of the placement) with which the batch fits.
void Search::fit_level(const Patch& recipe, const Split& split, bool selective) {
  const auto level = [&](size_t k) -> const Candidate& { return run(recipe_at(recipe, split, placement_.level(k, selective))); };
  size_t too_few = 0, enough = placement_.blocks();
  if (!fits(level(enough))) return;
  while (enough - too_few > 1) {
    const size_t third = std::max<size_t>(1, (enough - too_few) / 3);
    const size_t first = too_few + third, second = std::min(enough - 1, first + third);
    evaluator_.prepare(
        {recipe_at(recipe, split, placement_.level(first, selective)), recipe_at(recipe, split, placement_.level(second, selective))});
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
void Search::try_every_kth(const Patch& recipe, const Split& split) {
  for (size_t k = 2; k <= placement_.blocks(); ++k) {
    const Candidate& c = run(recipe_at(recipe, split, {{"every", k}}));
    if (!could_win(c)) continue;
    offer(c);
    return;
  }
}

void Search::explore_batch(const Patch& recipe, const Split& split) {
  if (levels_.size() == 1) return;
  if (!space_.placements || placement_.blocks() == 0) return offer(run(recipe_at(recipe, split, full())));
  evaluator_.prepare({recipe_at(recipe, split, placement_.level(placement_.blocks(), true)), recipe_at(recipe, split, {{"every", 2}})});
  fit_level(recipe, split, false);
  if (const Candidate& all = run(recipe_at(recipe, split, placement_.level(placement_.blocks(), true))); fits(all))
    fit_level(recipe, split, true);
  try_every_kth(recipe, split);
}

// Gradients of an accumulation live on through the next forward pass: the whole batch at once may fit where no part of it does. Nor can
// all be accumulated: not what leaves for the host.
void Search::explore(const Patch& recipe, const std::vector<Split>& splits, double& shrinking) {
  const Candidate& corner = run(recipe_at(recipe, splits[0], full()));
  if (!corner.needs.empty())
    if (const auto& time = corner.needs[device_].time; time && !could_ever_win(recipe, *time, shrinking)) return;
  const bool whole = splits.size() > 1 && splits.back().accumulation == 1 && splits[splits.size() - 2].accumulation > 1;
  double of_one = 1;  // nothing to find by one batch
  if (whole) explore_splits(recipe, {splits.back()}, of_one);
  if (fits(corner)) explore_splits(recipe, {splits.begin(), splits.end() - (whole ? 1 : 0)}, shrinking);
}

void Search::explore_splits(const Patch& recipe, const std::vector<Split>& splits, double& shrinking) {
  // The largest micro-batch that fits when everything is checkpointed.
  size_t fitting = 0, beyond = splits.size();
  const Candidate& least = run(recipe_at(recipe, splits[0], full()));
  if (!fits(least)) return;
  if (objective_ == Objective::memory || objective_ == Objective::sequence) return offer(least);
  for (size_t step = 1; fitting + 1 < beyond; step *= 2) {  // doubling, then halving
    const size_t next = beyond == splits.size() ? std::min(fitting + step, beyond - 1) : (fitting + beyond) / 2;
    if (fits(run(recipe_at(recipe, splits[next], full())))) {
      fitting = next;
    } else {
      beyond = next;
    }
  }
  if (objective_ == Objective::batch) {
    offer(run(recipe_at(recipe, splits[fitting], full())));
    return;
  }
  // What a checkpoint drops need not travel to the host: there it makes the step faster.
  if (evaluator_.evaluate(recipe_at(recipe, splits[0], full())).job.offload_activations != Offload::none) {
    std::vector<Patch> all;
    for (const nlohmann::json& level : levels_) all.push_back(recipe_at(recipe, splits[fitting], level));
    evaluator_.prepare(all);
    for (const Patch& c : all) offer(run(c));
    return;
  }
  if (shrinking == 0) {
    const Candidate& large = run(recipe_at(recipe, splits[std::min(fitting + 2, splits.size() - 1)], levels_.front()));
    const auto arithmetic = [&](const Candidate& c) {
      const StepTime& t = *c.needs[device_].time;
      return (t.forward + t.backward) / static_cast<double>(c.global_batch());
    };
    if (std::isfinite(seconds_per_sample(large, device_)) && std::isfinite(seconds_per_sample(least, device_)))
      shrinking = arithmetic(large) / arithmetic(least);
  }
  for (size_t i = fitting + 1; i-- > 0;) {
    const Candidate& plain = run(recipe_at(recipe, splits[i], levels_.front()));
    if (!could_win(plain)) return;  // nor does anything with fewer samples
    if (fits(plain)) {
      offer(plain);
      return;
    }
    explore_batch(recipe, splits[i]);
  }
}

// Of weights, gradients and states: what activations take depends on what is searched.
Bytes Search::least_of(const Patch& recipe) const {
  Job job = patched(evaluator_.job(), recipe, "plan");
  job.offload_activations = Offload::pinned;
  return lower_bound(job, whole_parameters_);
}

// Nothing is worth a search: what comes nearest is executed all the same, to say by how much it misses.
void Search::run_smallest(LeverKind kind) {
  const Choice* nearest = nullptr;
  for (const Choice& g : space_.groups)
    if (g.kind <= kind && (!nearest || least_of(merged(space_.free, g.changes)) < least_of(merged(space_.free, nearest->changes))))
      nearest = &g;
  for (const Choice& offload : space_.offloads) {
    const Patch recipe = recipe_of(*nearest, space_.losses.back(), offload, space_.lengths.back());
    const std::vector<Split> splits = splits_for(recipe);
    for (const Split& split : {splits.front(), splits.back()})
      if (split == splits.front() || split.accumulation == 1) run(recipe_at(recipe, split, full()));
  }
}

std::vector<Search::Combination> Search::combinations(LeverKind kind) const {
  const auto class_of = [](const Patch& changes) {
    return changes.without({"optimizer", "optimizer_args", "optimizer_in_backward", "offload_optimizer"});
  };
  std::map<Patch, const Choice*> classes;
  std::vector<Combination> out;
  for (const Choice& g : space_.groups) {
    if (g.kind > kind || least_of(merged(space_.free, g.changes)) > limit_) continue;
    const Choice* like = classes.try_emplace(class_of(g.changes), &g).first->second;
    for (const Choice& offload : space_.offloads)
      for (size_t loss = 0; loss < space_.losses.size(); ++loss)
        for (const Choice& length : space_.lengths)
          if (std::max({g.kind, offload.kind, space_.losses[loss].kind, length.kind}) == kind)
            out.push_back({&g, like, loss, &offload, &length});
  }
  return out;
}

// Its own without the rest, that of its class with the rest, and without.
std::array<Patch, 3> Search::probes_of(const Combination& c) const {
  const auto plain = [&](const Choice& group) { return recipe_of(group, space_.losses[0], space_.offloads[0], space_.lengths[0]); };
  return {corner_of(plain(*c.group)), corner_of(recipe_of(*c.like, space_.losses[c.loss], *c.offload, *c.length)),
          corner_of(plain(*c.like))};
}

std::optional<StepTime> Search::corner_time(const Combination& c) {
  std::vector<StepTime> times;
  for (const Patch& probe : probes_of(c)) {
    const Candidate& p = run(probe);
    if (p.needs.empty() || !p.needs[device_].time) return std::nullopt;
    times.push_back(*p.needs[device_].time);
  }
  StepTime& own = times[0];
  for (double StepTime::*part :
       {&StepTime::seconds, &StepTime::forward, &StepTime::backward, &StepTime::optimizer, &StepTime::communication, &StepTime::transfers})
    own.*part = std::max(0.0, own.*part + times[1].*part - times[2].*part);
  return own;
}

std::vector<Search::Ranked> Search::ranked(LeverKind kind) {
  const std::vector<Combination> all = combinations(kind);
  std::vector<Patch> probes;
  for (const Combination& c : all)
    for (const Patch& probe : probes_of(c)) probes.push_back(probe);
  evaluator_.prepare(probes);
  std::vector<Ranked> out;
  for (const Combination& c : all) {
    Ranked& r = out.emplace_back(Ranked{recipe_of(*c.group, space_.losses[c.loss], *c.offload, *c.length), c.loss, corner_time(c), kNever});
    if (!r.corner) continue;
    const Job job = patched(evaluator_.job(), corner_of(r.changes), "plan");
    r.seconds = r.corner->seconds / static_cast<double>(checked_mul(checked_mul(job.batch, job.accumulation), replica_count(job)));
  }
  // The fastest first, so that the others need not be looked at closely.
  std::stable_sort(out.begin(), out.end(), [](const Ranked& a, const Ranked& b) { return a.seconds < b.seconds; });
  return out;
}

const Candidate* Search::best(LeverKind kind, const Candidate* than) {
  best_ = than;
  std::vector<Ranked> recipes = ranked(kind);
  if (recipes.empty() && smallest_ == nullptr) run_smallest(kind);
  // Two at a time, each against the best of those before both: what is executed does not depend on who is quicker.
  std::vector<double> shrinking(space_.losses.size());  // 0: not known yet
  const auto hopeless = [&](const Ranked& r) { return r.corner && !could_ever_win(r.changes, *r.corner, shrinking[r.loss]); };
  for (size_t i = 0; i < recipes.size();) {
    std::vector<const Ranked*> two;
    for (; two.size() < 2 && i < recipes.size(); ++i)
      if (!hopeless(recipes[i])) two.push_back(&recipes[i]);
    std::vector<Search> pair(two.size(), *this);
    std::vector<double> found;
    for (const Ranked* r : two) found.push_back(shrinking[r->loss]);
    const auto explore_one = [&](size_t k) { pair[k].explore(two[k]->changes, splits_for(two[k]->changes), found[k]); };
    std::future<void> other;
    if (pair.size() == 2) other = std::async(std::launch::async, explore_one, 1);
    if (!pair.empty()) explore_one(0);
    if (other.valid()) other.get();
    for (size_t k = 0; k < pair.size(); ++k) {
      if (pair[k].best_ && pair[k].best_ != best_) offer(*pair[k].best_);
      if (pair[k].smallest_) run(pair[k].smallest_->changes);
      if (shrinking[two[k]->loss] == 0) shrinking[two[k]->loss] = found[k];
    }
  }
  if (best_ == than) return nullptr;
  simplify();
  return best_;
}

Patch Search::recipe_of(const Choice& group, const Choice& loss, const Choice& offload, const Choice& length) const {
  Patch free = space_.free;
  if (group.changes.contains("offload_optimizer")) free.erase("optimizer_args");  // an update on the host is fused there
  return merged(merged(merged(merged(free, group.changes), loss.changes), offload.changes), length.changes);
}

// Takes back what was on from the start and is not needed, one change after the other. The rest was chosen against doing without it.
void Search::simplify() {
  for (const auto& [key, value] : space_.free) {
    const nlohmann::json* chosen = best_->changes.find(key);
    if (!chosen || *chosen != value) continue;
    const Candidate& c = run(best_->changes.without({key.c_str()}));
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
