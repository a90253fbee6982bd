// How large the micro-batches of a training step are, from one step to the next: smaller after an out-of-memory, larger again when there is
// room. The step itself stays what it was: the sizes that are given out sum to the same batch, and the loss weights make the same
// gradients. It decides only; who trains frees memory, sets the gradients to zero and runs the step again. docs/scaling.md has the picture.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "supervise/agreement.h"

namespace plimsoll {

struct ScalerSettings {
  int64_t global_batch = 0;          // samples of an optimizer step over all ranks; 0: one micro-batch on each
  int64_t batch = 1;                 // of a micro-batch, to begin with
  int64_t minimum = 1, maximum = 0;  // of a micro-batch; 0: a rank's whole share
  int64_t evaluation_batch = 0;      // 0: that of training
  int64_t ranks = 1;
  bool equal_parts = false;    // micro-batches are all alike, for trainers that know one size and a number of them
  int64_t warmup_steps = 100;  // whole steps at a size before a larger one is tried
  int64_t most_failures = 8;   // out-of-memories without a whole step between them
  double shrink = 0.25, grow = 0.25;
  double room = 0.9;       // of the limit that a larger size may be expected to take
  double slow = 5;         // a step that takes this many times as long per sample as the quickest so far is thrashing ...
  int64_t slow_steps = 3;  // ... when so many in a row do, or the allocator retried in each
};

enum class ScalerState : uint8_t {
  settling,  // a size of which nothing is known yet, or a smaller one after a failure
  steady,    // warmup_steps whole steps at this size
  trial,     // a larger size, for the first time
  stopped,   // given up
};
const char* to_string(ScalerState state);

enum class ScalerPhase : uint8_t { training, evaluation };

enum class ScalerAction : uint8_t {
  go_on,    // the next step, as the last one
  resize,   // the next step in other micro-batches
  replay,   // the same samples once more: free the cache, zero the gradients, restore the random state, run the new micro-batches
  give_up,  // `reason` says why
};
const char* to_string(ScalerAction action);

// What happened. Numbers are optional; without a peak and a limit nothing grows.
struct StepReport {
  ScalerPhase phase = ScalerPhase::training;
  bool out_of_memory = false;
  std::optional<int64_t> peak{};   // bytes that the process held at most
  std::optional<int64_t> limit{};  // bytes that it could have held: free ones and its own
  int64_t retries = 0;             // of the allocator in this step: it gave its cache back and asked again
  std::optional<double> seconds{};
};

struct ScalerDecision {
  ScalerAction action = ScalerAction::go_on;
  int64_t before = 0, after = 0;  // micro-batch, or evaluation batch
  std::string reason;             // a sentence; empty for go_on
};

struct MicroBatch {
  int64_t size = 0;
  double weight = 0;  // of its mean loss: size / the rank's share. Gradients that ranks average are those of the whole batch's mean.
};

class BatchScaler {
 public:
  // The largest micro-batch that fits `limit` bytes, by simulation; 0: not known.
  using Predict = std::function<int64_t(int64_t failed, std::optional<int64_t> limit)>;

  explicit BatchScaler(const ScalerSettings& settings);  // throws an Error that names the setting

  void predict_with(Predict predict) { predict_ = std::move(predict); }
  void agree_with(std::shared_ptr<Agreement> agreement);  // of settings.ranks ranks

  // The micro-batches of this rank's step. Their number is that of every other rank.
  const std::vector<MicroBatch>& step() const { return step_; }
  int64_t batch() const { return size_; }  // the largest of them
  int64_t evaluation_batch() const { return evaluation_size_; }
  ScalerState state() const { return state_; }

  // After every step, whole or not, before ranks exchange gradients; with several ranks it waits for all of them. An evaluation is a
  // rank's own affair.
  ScalerDecision report(const StepReport& report);
  // One size up without a measurement, for who starts anew anyway; go_on where there is none that is not known to fail.
  ScalerDecision try_larger(const std::string& why);
  // Something changed (another process ended, a setting saves memory): sizes that failed may be tried again.
  void more_memory() { told_ = true; }

  // For a checkpoint, and back. Throws an Error for what is none.
  nlohmann::ordered_json saved() const;
  void restore(const nlohmann::json& saved);

 private:
  struct Merged;  // of all ranks
  Merged merge(const StepReport& report);
  ScalerDecision train(const Merged& merged);
  ScalerDecision evaluate(const StepReport& report);
  ScalerDecision shrink(const Merged& merged, const std::string& why, ScalerAction action);
  ScalerDecision grow(const Merged& merged);
  std::string thrashing(const Merged& merged);  // why, or empty
  double expected_peak(int64_t size) const;
  ScalerDecision resize(int64_t size, ScalerState state, ScalerAction action, const std::string& reason);
  ScalerDecision stop(const std::string& reason);
  int64_t share() const { return settings_.global_batch / settings_.ranks; }
  int64_t largest_part(int64_t size) const;
  int64_t next_size() const;  // the one that growth leads to; size_: there is none
  void set_size(int64_t size);

  ScalerSettings settings_;
  Predict predict_;
  std::shared_ptr<Agreement> agreement_;

  ScalerState state_ = ScalerState::settling;
  std::string stopped_because_;
  int64_t size_ = 0, evaluation_size_ = 0;
  std::vector<MicroBatch> step_;
  int64_t whole_steps_ = 0;              // at this size
  int64_t failures_ = 0;                 // since the last whole step
  int64_t slow_ = 0;                     // steps in a row
  std::optional<int64_t> failed_;        // the smallest size that did
  std::optional<int64_t> failed_limit_;  // what could be had then
  int64_t proven_ = 0;                   // the largest size of a whole step that was not thrashing
  std::map<int64_t, int64_t> peaks_;     // by size
  std::optional<double> quickest_;       // seconds per sample
  bool told_ = false;
};

// `share` in parts of at most `size`, as even as can be; where that makes all of them smaller than `minimum`, full ones and a rest. Equal
// ones: as few as there can be.
std::vector<int64_t> parts_of(int64_t share, int64_t size, int64_t minimum, bool equal = false);

// Of a JSON object with the names above. Throws an Error for an unknown one.
ScalerSettings scaler_settings(const nlohmann::json& object);

}  // namespace plimsoll
