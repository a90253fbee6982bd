// The training loop on real tensors: accumulation, clipping, AdamW, an average of the weights, checkpoints. What it allocates, and when,
// follows src/step, so that a simulated run and a measured one can be laid side by side.
#pragma once

#include <functional>
#include <map>

#include "allocator/timeline.h"
#include "measure/live_model.h"
#include "measure/loader.h"
#include "measure/recipe.h"
#include "supervise/batch_scaler.h"

namespace plimsoll::measure {

struct TrainSettings {
  int64_t steps = 2;
  Recipe recipe;
  double ema_decay = 0.999;
  uint64_t seed = 1;
  int64_t traced_steps = 2;  // at the beginning; 0: none
  std::string checkpoint;    // file; empty: none is written
  int64_t save_every = 0;    // steps; 0: at the end alone
  bool resume = false;
  bool auto_scale = false;            // after an out-of-memory error: smaller micro-batches, the same step again
  bool grow = false;                  // and larger ones when it went well for a while
  int64_t grow_after = 20;            // whole steps
  std::map<int64_t, int64_t> limits;  // by the step from which on they hold: bytes of the virtual device
  int64_t eval_every = 0;             // steps; 0: nothing is evaluated
  int64_t eval_samples = 0;           // that are not trained on; 0: one batch
};

// The loss on other samples, without gradients. Its batch is its own: out of memory here leaves training as it is.
struct EvaluationResult {
  double loss = 0;
  int64_t peak = 0, batch = 0, out_of_memory = 0;
};

struct StepResult {
  int64_t step = 0;  // from 1
  double loss = 0, seconds = 0;
  int64_t peak = 0;
  ByPhase by_phase{};
  int64_t micro_batch = 0, out_of_memory = 0;  // errors in this step
  int64_t limit = 0;                           // bytes that it had; 0: none
  std::string decision;                        // why the micro-batch is another one, in this step or from the next one on
  std::optional<EvaluationResult> evaluation;  // after it
};

struct Outcome {
  std::vector<StepResult> steps;
  int64_t parameters = 0, trainable = 0, peak = 0;
  Trace trace;  // of the setup and the traced steps
};

using StepSeen = std::function<void(const StepResult&)>;

class Trainer {
 public:
  // Builds the model. Throws an Error when the limit is smaller than its weights.
  Trainer(const Job& job, const TrainSettings& settings, const Data& data);
  Outcome run(const StepSeen& seen);
  const std::vector<NamedParameter>& parameters() const { return build_.parameters; }

 private:
  struct State {
    Tensor exp_avg, exp_avg_sq;
  };

  StepResult train_step(int64_t step);
  double accumulate_gradients(int64_t step, StepResult& result);
  double micro_step(int64_t step, int64_t first, const MicroBatch& part, StepResult& result);
  EvaluationResult evaluate(int64_t step);
  double evaluated_loss(int64_t samples);
  void update(int64_t step);
  void clip_gradients() const;
  void adamw(int64_t step);
  void average();
  void drop_gradients();
  void set_limit_of(int64_t step);
  void begin_phase(Phase phase);
  void end_phase(StepResult& result);
  std::vector<NamedParameter> state_tensors();
  void make_states();
  void save(int64_t step);
  int64_t restore();

  const Job& job_;
  const TrainSettings& settings_;
  const Data& data_;
  Budget& budget_;
  Build build_;
  std::unique_ptr<LiveModel> model_;
  std::unique_ptr<Loader> loader_;
  std::vector<NamedParameter> trained_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;  // hold the hooks that label gradients
  std::vector<State> states_;
  std::vector<NamedParameter> averaged_;  // of each an average
  Tensors averages_;
  Tensors inputs_;
  Tensor loss_;
  int64_t samples_made_ = 0;  // that inputs_ have room for
  int64_t global_batch_;
  BatchScaler scaler_;
};

}  // namespace plimsoll::measure
