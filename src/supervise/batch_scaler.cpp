#include "supervise/batch_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "job/config.h"
#include "util/bytes.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr int64_t kMostParts = 1 << 20;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
// How much more than at the failure has to be free before a size that failed is tried again: above what other processes come and go with.
constexpr double kMoreMemory = 1.05;

[[noreturn]] void wrong(const std::string& what, const std::string& hint) { throw Error("[scaler] " + what, hint); }

void check_fraction(const char* name, double value, double most) {
  if (!(value > 0 && value <= most)) wrong(fmt::format("{} {} is not above 0 and at most {}", name, value, most), "e.g. 0.25");
}

ScalerSettings checked(ScalerSettings s) {
  for (const auto& [name, value] : {std::pair("batch", s.batch), std::pair("minimum", s.minimum), std::pair("ranks", s.ranks),
                                    std::pair("most_failures", s.most_failures), std::pair("slow_steps", s.slow_steps)})
    if (value < 1) wrong(fmt::format("{} {} is below 1", name, value), "give a whole number from 1 on");
  for (const auto& [name, value] : {std::pair("global_batch", s.global_batch), std::pair("maximum", s.maximum),
                                    std::pair("evaluation_batch", s.evaluation_batch), std::pair("warmup_steps", s.warmup_steps)})
    if (value < 0) wrong(fmt::format("{} {} is below 0", name, value), "give a whole number from 0 on");
  check_fraction("shrink", s.shrink, 0.9);
  check_fraction("grow", s.grow, 10);
  check_fraction("room", s.room, 1);
  if (!(s.slow > 1)) wrong(fmt::format("slow {} is not above 1", s.slow), "how many times as long a thrashing step takes, e.g. 5");
  if (s.global_batch == 0) s.global_batch = checked_mul(s.batch, s.ranks);
  if (s.global_batch % s.ranks != 0)
    wrong(fmt::format("a global batch of {} is not the same on each of {} ranks", s.global_batch, s.ranks), "ranks take equal shares");
  const int64_t share = s.global_batch / s.ranks;
  if (s.maximum == 0 || s.maximum > share) s.maximum = share;
  if (s.minimum > s.maximum)
    wrong(fmt::format("minimum {} is above {}, the most that a micro-batch can be", s.minimum, s.maximum),
          "the smaller of maximum and global_batch / ranks");
  if (share / s.minimum > kMostParts)
    wrong(fmt::format("a step of {} samples could be {} micro-batches", share, share / s.minimum), "give a larger minimum");
  if (s.equal_parts) {  // only divisors are sizes
    if (share > kMostParts)
      wrong(fmt::format("{} samples in equal micro-batches are more than {}", share, kMostParts), "give a smaller global_batch");
    while (share % s.minimum != 0) ++s.minimum;
    while (share % s.maximum != 0) --s.maximum;
    if (s.minimum > s.maximum)
      wrong(fmt::format("{} samples cannot be divided into equal micro-batches of such a size", share),
            "leave more room between minimum and maximum");
  }
  s.batch = std::clamp(s.batch, s.minimum, s.maximum);
  if (s.evaluation_batch == 0) s.evaluation_batch = s.batch;
  return s;
}

std::string less(const std::optional<int64_t>& failed) { return failed ? fmt::format("; {} failed before", *failed) : ""; }

}  // namespace

const char* to_string(ScalerState state) {
  switch (state) {
    case ScalerState::settling: return "settling";
    case ScalerState::steady: return "steady";
    case ScalerState::trial: return "trial";
    case ScalerState::stopped: return "stopped";
  }
  return "";
}

const char* to_string(ScalerAction action) {
  switch (action) {
    case ScalerAction::go_on: return "go_on";
    case ScalerAction::resize: return "resize";
    case ScalerAction::replay: return "replay";
    case ScalerAction::give_up: return "give_up";
  }
  return "";
}

std::vector<int64_t> parts_of(int64_t share, int64_t size, int64_t minimum, bool equal) {
  int64_t count = (share + size - 1) / size;
  if (equal) {
    while (share % count != 0) ++count;
    return std::vector<int64_t>(static_cast<size_t>(count), share / count);
  }
  if ((share + count - 1) / count < minimum) {
    std::vector<int64_t> parts(static_cast<size_t>(count), minimum);
    parts.back() = share - minimum * (count - 1);
    return parts;
  }
  std::vector<int64_t> parts(static_cast<size_t>(count), share / count);
  for (int64_t i = 0; i < share % count; ++i) ++parts[static_cast<size_t>(i)];
  return parts;
}

// What the ranks know together: any failure is everybody's, the least room counts.
struct BatchScaler::Merged {
  bool out_of_memory = false, told = false;
  std::optional<int64_t> peak, limit, predicted;
  int64_t retries = 0;
  std::optional<double> seconds;
};

BatchScaler::BatchScaler(const ScalerSettings& settings) : settings_(checked(settings)), evaluation_size_(settings_.evaluation_batch) {
  set_size(settings_.batch);
}

void BatchScaler::agree_with(std::shared_ptr<Agreement> agreement) {
  if (agreement->ranks() != settings_.ranks)
    wrong(fmt::format("an agreement of {} ranks for {}", agreement->ranks(), settings_.ranks), "give the scaler the same number");
  agreement_ = std::move(agreement);
}

int64_t BatchScaler::largest_part(int64_t size) const { return parts_of(share(), size, settings_.minimum, settings_.equal_parts).front(); }

void BatchScaler::set_size(int64_t size) {
  step_.clear();
  for (const int64_t part : parts_of(share(), size, settings_.minimum, settings_.equal_parts))
    step_.push_back({part, static_cast<double>(part) / static_cast<double>(share())});
  size_ = step_.front().size;
  whole_steps_ = slow_ = 0;
}

BatchScaler::Merged BatchScaler::merge(const StepReport& report) {
  std::optional<int64_t> predicted;
  if (report.out_of_memory && predict_)
    if (const int64_t fits = predict_(size_, report.limit); fits > 0) predicted = fits;
  // In an order where the least is what counts; what a rank does not know, nobody knows.
  std::vector<int64_t> numbers = {report.out_of_memory ? 0 : 1,
                                  told_ ? 0 : 1,
                                  report.peak ? -*report.peak : -kMost,
                                  report.limit.value_or(-1),
                                  predicted.value_or(kMost),
                                  -report.retries,
                                  report.seconds ? -std::llround(std::min(*report.seconds, 1e9) * 1e6) : 0};
  if (agreement_) numbers = agreement_->least(numbers);
  told_ = false;
  Merged m;
  m.out_of_memory = numbers[0] == 0;
  m.told = numbers[1] == 0;
  if (numbers[2] != -kMost) m.peak = -numbers[2];
  if (numbers[3] >= 0) m.limit = numbers[3];
  if (numbers[4] != kMost) m.predicted = numbers[4];
  m.retries = -numbers[5];
  if (numbers[6] < 0) m.seconds = static_cast<double>(-numbers[6]) / 1e6;
  return m;
}

ScalerDecision BatchScaler::report(const StepReport& report) {
  if (report.phase == ScalerPhase::evaluation) return evaluate(report);
  const Merged merged = merge(report);
  if (state_ == ScalerState::stopped) return {ScalerAction::give_up, size_, size_, stopped_because_};
  return train(merged);
}

ScalerDecision BatchScaler::train(const Merged& m) {
  const bool freed =
      failed_ && m.limit && failed_limit_ && static_cast<double>(*m.limit) > static_cast<double>(*failed_limit_) * kMoreMemory;
  if (!m.out_of_memory && (m.told || freed)) failed_.reset(), failed_limit_.reset();
  if (m.told) peaks_.clear();  // of other settings, perhaps
  if (m.out_of_memory) {
    if (++failures_ >= settings_.most_failures)
      return stop(fmt::format("out of memory {} times without a whole step, at last with a micro-batch of {}", failures_, size_));
    return shrink(m, fmt::format("out of memory with a micro-batch of {}", size_), ScalerAction::replay);
  }
  if (const std::string why = thrashing(m); !why.empty()) return shrink(m, why, ScalerAction::resize);
  failures_ = 0;
  ++whole_steps_;
  proven_ = std::max(proven_, size_);
  if (m.peak) peaks_[size_] = std::max(peaks_[size_], *m.peak);
  if (whole_steps_ < settings_.warmup_steps) return {ScalerAction::go_on, size_, size_, ""};
  state_ = ScalerState::steady;
  return grow(m);
}

// The step was whole, so its time counts; the quickest is of calm steps only.
std::string BatchScaler::thrashing(const Merged& m) {
  const double per_sample = m.seconds ? *m.seconds / static_cast<double>(share()) : 0;
  const bool crawling = quickest_ && m.seconds && per_sample > *quickest_ * settings_.slow;
  // A loader that stalls is slow, too: where the memory is known, it has to be nearly full.
  const bool full = !m.peak || !m.limit || static_cast<double>(*m.peak) >= static_cast<double>(*m.limit) * settings_.room;
  const bool slow = m.retries > 0 || (crawling && full);
  if (!slow) {
    slow_ = 0;
    if (m.seconds && (!quickest_ || per_sample < *quickest_)) quickest_ = per_sample;
    return "";
  }
  if (++slow_ < settings_.slow_steps) return "";
  return fmt::format("thrashing with a micro-batch of {}: {} steps in a row {}", size_, slow_,
                     m.retries > 0
                         ? fmt::format("in which the allocator gave its cache back and asked again, {} times in the last", m.retries)
                         : fmt::format("{:.1f} times as slow as the quickest", per_sample / *quickest_));
}

ScalerDecision BatchScaler::shrink(const Merged& m, const std::string& why, ScalerAction action) {
  failed_ = failed_ ? std::min(*failed_, size_) : size_;
  failed_limit_ = m.limit;
  if (proven_ >= size_) proven_ = 0;  // no longer
  if (size_ <= settings_.minimum) return stop(fmt::format("{}, and {} is the minimum", why, settings_.minimum));
  int64_t next = size_ - std::max<int64_t>(1, static_cast<int64_t>(std::ceil(static_cast<double>(size_) * settings_.shrink)));
  std::string how = fmt::format("{:g} % less", settings_.shrink * 100);
  if (state_ == ScalerState::trial && proven_ > 0) {
    next = proven_;
    how = "the size before";
  } else if (m.predicted && *m.predicted < size_) {
    next = *m.predicted;
    how = "by simulation";
  }
  next = std::clamp(next, settings_.minimum, size_ - 1);
  if (largest_part(next) < next) how += fmt::format(", rounded down to a divisor of {}", share());
  return resize(next, ScalerState::settling, action, why + "; " + how);
}

double BatchScaler::expected_peak(int64_t size) const {
  const auto here = peaks_.find(size_);
  const double peak = static_cast<double>(here->second), more = static_cast<double>(size - size_);
  // By the nearest other size that was measured; without one as if nothing were fixed, which is never too little.
  double per_sample = peak / static_cast<double>(size_);
  int64_t nearest = kMost;
  for (const auto& [other, other_peak] : peaks_) {
    if (other == size_ || std::abs(other - size_) >= nearest) continue;
    const double slope = (peak - static_cast<double>(other_peak)) / static_cast<double>(size_ - other);
    if (slope <= 0) continue;
    nearest = std::abs(other - size_);
    per_sample = slope;
  }
  return peak + per_sample * more;
}

int64_t BatchScaler::next_size() const {
  const int64_t most = std::min(settings_.maximum, failed_ ? *failed_ - 1 : kMost), fewer = static_cast<int64_t>(step_.size()) - 1;
  if (fewer < 1 || most <= size_) return size_;
  // Less than a micro-batch fewer brings nothing.
  int64_t next = std::max(size_ + std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(size_) * settings_.grow)),
                          (share() + fewer - 1) / fewer);
  while (settings_.equal_parts && next < most && largest_part(next) <= size_) ++next;
  return std::max(size_, largest_part(std::min(next, most)));
}

ScalerDecision BatchScaler::grow(const Merged& m) {
  const int64_t next = next_size();
  if (next <= size_ || !m.peak || !m.limit) return {ScalerAction::go_on, size_, size_, ""};
  const double expected = expected_peak(next);
  if (expected > static_cast<double>(*m.limit) * settings_.room) return {ScalerAction::go_on, size_, size_, ""};
  return resize(next, ScalerState::trial, ScalerAction::resize,
                fmt::format("{} whole steps with a micro-batch of {}, and {} of {} are expected with {}{}", whole_steps_, size_,
                            to_string(Bytes{static_cast<int64_t>(expected)}), to_string(Bytes{*m.limit}), next, less(failed_)));
}

ScalerDecision BatchScaler::try_larger(const std::string& why) {
  if (std::exchange(told_, false)) failed_.reset(), failed_limit_.reset(), peaks_.clear();
  const int64_t next = next_size();
  if (state_ == ScalerState::stopped || next <= size_) return {ScalerAction::go_on, size_, size_, ""};
  return resize(next, ScalerState::trial, ScalerAction::resize, why + less(failed_));
}

ScalerDecision BatchScaler::resize(int64_t size, ScalerState state, ScalerAction action, const std::string& reason) {
  const int64_t before = size_;
  set_size(size);
  state_ = state;
  return {action, before, size_, reason};
}

ScalerDecision BatchScaler::stop(const std::string& reason) {
  state_ = ScalerState::stopped;
  stopped_because_ = reason;
  return {ScalerAction::give_up, size_, size_, reason};
}

ScalerDecision BatchScaler::evaluate(const StepReport& report) {
  const int64_t before = evaluation_size_;
  if (!report.out_of_memory) return {ScalerAction::go_on, before, before, ""};
  if (before == 1) return {ScalerAction::give_up, 1, 1, "out of memory in an evaluation of one sample"};
  evaluation_size_ = before - std::max<int64_t>(1, static_cast<int64_t>(std::ceil(static_cast<double>(before) * settings_.shrink)));
  return {ScalerAction::replay, before, evaluation_size_,
          fmt::format("out of memory in an evaluation with {}; {:g} % less, training stays as it is", before, settings_.shrink * 100)};
}

nlohmann::ordered_json BatchScaler::saved() const {
  nlohmann::ordered_json out = {{"state", to_string(state_)},
                                {"batch", size_},
                                {"evaluation_batch", evaluation_size_},
                                {"whole_steps", whole_steps_},
                                {"failures", failures_},
                                {"proven", proven_},
                                {"slow", slow_}};
  if (failed_) out["failed"] = *failed_;
  if (failed_limit_) out["failed_limit"] = *failed_limit_;
  if (!stopped_because_.empty()) out["reason"] = stopped_because_;
  if (quickest_) out["seconds_per_sample"] = *quickest_;
  for (const auto& [size, peak] : peaks_) out["peaks"].push_back({size, peak});
  return out;
}

void BatchScaler::restore(const Json& saved) {
  const Config c("scaler state", saved.is_object() ? saved : Json::object());
  const std::string state = c.text({"state"}, "");
  std::optional<ScalerState> known;
  for (const ScalerState s : {ScalerState::settling, ScalerState::steady, ScalerState::trial, ScalerState::stopped})
    if (state == to_string(s)) known = s;
  if (!known) wrong("this is no saved state: " + printable(dump(saved), 80), "give back what was saved");
  const int64_t size = c.size({"batch"}, size_);
  if (size > settings_.maximum || size < settings_.minimum)
    wrong(fmt::format("the saved micro-batch of {} is not between {} and {}", size, settings_.minimum, settings_.maximum),
          "the settings are others than those of the saved state: begin anew, or take its settings");
  std::map<int64_t, int64_t> peaks;
  if (const Json* list = c.find({"peaks"}))
    for (const Json& one : *list) {
      if (!one.is_array() || one.size() != 2 || !one[0].is_number_integer() || !one[1].is_number_integer() || one[0] < 1 || one[1] < 0)
        wrong("a saved peak is " + printable(dump(one), 80), "give back what was saved");
      peaks[one[0].get<int64_t>()] = one[1].get<int64_t>();
    }
  set_size(size);
  state_ = *known;
  evaluation_size_ = c.size({"evaluation_batch"}, evaluation_size_);
  whole_steps_ = c.integer({"whole_steps"}, 0);
  failures_ = c.integer({"failures"}, 0);
  proven_ = c.integer({"proven"}, 0);
  slow_ = c.integer({"slow"}, 0);
  failed_ = c.optional_integer({"failed"});
  failed_limit_ = c.optional_integer({"failed_limit"});
  stopped_because_ = c.text({"reason"}, "");
  quickest_.reset();
  if (c.find({"seconds_per_sample"})) quickest_ = c.number({"seconds_per_sample"}, 0);
  peaks_ = std::move(peaks);
}

ScalerSettings scaler_settings(const Json& object) {
  static const std::vector<std::string> known = {"global_batch", "batch",        "minimum",       "maximum",     "evaluation_batch",
                                                 "ranks",        "warmup_steps", "most_failures", "equal_parts", "shrink",
                                                 "grow",         "room",         "slow",          "slow_steps"};
  if (!object.is_object())
    wrong("settings are an object, not " + printable(dump(object), 80), R"(e.g. {"global_batch": 256, "batch": 16})");
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      wrong("there is no setting '" + printable(key, 80) + "'", did_you_mean(key, known));
  const Config c("scaler", object);
  ScalerSettings s;
  s.global_batch = c.integer({"global_batch"}, s.global_batch);
  s.batch = c.integer({"batch"}, s.batch);
  s.minimum = c.integer({"minimum"}, s.minimum);
  s.maximum = c.integer({"maximum"}, s.maximum);
  s.evaluation_batch = c.integer({"evaluation_batch"}, s.evaluation_batch);
  s.ranks = c.integer({"ranks"}, s.ranks);
  s.warmup_steps = c.integer({"warmup_steps"}, s.warmup_steps);
  s.most_failures = c.integer({"most_failures"}, s.most_failures);
  s.equal_parts = c.flag({"equal_parts"}, s.equal_parts);
  s.shrink = c.number({"shrink"}, s.shrink);
  s.grow = c.number({"grow"}, s.grow);
  s.room = c.number({"room"}, s.room);
  s.slow = c.number({"slow"}, s.slow);
  s.slow_steps = c.integer({"slow_steps"}, s.slow_steps);
  return s;
}

}  // namespace plimsoll
