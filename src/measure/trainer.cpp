#include "measure/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "measure/saved_state.h"
#include "measure/twin.h"
#include "step/model_of_job.h"
#include "util/bytes.h"
#include "util/error.h"

namespace plimsoll::measure {

namespace {

// A gradient is called one when it reaches its parameter.
struct LabelGradient : torch::autograd::FunctionPostHook {
  explicit LabelGradient(Tensor p) : parameter(std::move(p)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) override {
    Budget::instance().relabel(parameter.grad(), Category::gradient);
    return outputs;
  }
  Tensor parameter;
};

[[noreturn]] void does_not_fit(const char* what, const std::string& why) {
  throw Error(fmt::format("[limit] {} do not fit: {}", what, why), "give a larger --limit, or a smaller model", ExitCode::no);
}

ScalerSettings scaler_settings_of(const Job& job, const TrainSettings& settings) {
  ScalerSettings s;
  s.global_batch = job.batch * job.accumulation;
  s.batch = s.maximum = job.batch;
  s.evaluation_batch = job.eval_batch;
  s.warmup_steps = settings.grow_after;
  return s;
}

bool uses_autocast(const Job& job) { return job.precision == Precision::amp || job.precision == Precision::amp_fp16; }

}  // namespace

Trainer::Trainer(const Job& job, const TrainSettings& settings, const Data& data)
    : job_(job),
      settings_(settings),
      data_(data),
      budget_(Budget::instance()),
      build_(settings.seed, Tuning(job.tuning, job.family, entry_of(job).family->adapters)),
      global_batch_(job.batch * job.accumulation),
      scaler_(scaler_settings_of(job, settings)) {
  scaler_.predict_with(
      [this](int64_t failed, std::optional<int64_t> limit) { return limit ? largest_that_fits(job_, failed, *limit) : 0; });
  build_.checkpointing = job.checkpointing.on;
  budget_.begin_phase(Phase::setup);
  try {
    model_ = make_live_model(build_, job);
    build_.tuning.require_all_names_found();
    for (const NamedParameter& p : build_.parameters)
      if (p.value.requires_grad()) trained_.push_back(p);
    if (job.ema) {
      const Labelled label(Category::ema);
      const torch::NoGradGuard no_grad;
      averaged_ = job.averaging.update == EmaUpdate::ai_toolkit ? trained_ : build_.parameters;
      for (const NamedParameter& p : averaged_) averages_.push_back(p.value.clone());
    }
    const Labelled label(Category::input);
    inputs_ = model_->make_inputs(scaler_.batch());
    samples_made_ = scaler_.batch();
  } catch (const c10::OutOfMemoryError& e) {
    does_not_fit("the weights", e.what_without_backtrace());
  }
  states_.resize(trained_.size());
  for (const NamedParameter& p : trained_) {
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(p.value));
    accumulators_.back()->add_post_hook(std::make_unique<LabelGradient>(p.value));
  }
}

Outcome Trainer::run(const StepSeen& seen) {
  Outcome out;
  for (const NamedParameter& p : build_.parameters) out.parameters += p.value.numel();
  for (const NamedParameter& p : trained_) out.trainable += p.value.numel();
  int64_t begin = 0;
  if (!settings_.checkpoint.empty()) check_writable(settings_.checkpoint);
  try {
    if (settings_.resume) begin = restore();
  } catch (const c10::OutOfMemoryError& e) {
    does_not_fit("weights and the optimizer's states", e.what_without_backtrace());
  }
  const HostSettings& host = job_.host;
  loader_ = std::make_unique<Loader>(*model_, data_, host.workers, host.workers * host.prefetch() * job_.batch, begin * global_batch_,
                                     settings_.steps * global_batch_);
  for (int64_t step = begin; step < settings_.steps; ++step) {
    if (step - begin == settings_.traced_steps && budget_.recording()) out.trace = budget_.take_trace();
    out.steps.push_back(train_step(step));
    if (settings_.eval_every > 0 && (step + 1) % settings_.eval_every == 0) out.steps.back().evaluation = evaluate(step);
    seen(out.steps.back());
    if (!settings_.checkpoint.empty() && settings_.save_every > 0 && (step + 1) % settings_.save_every == 0) save(step + 1);
  }
  if (budget_.recording()) out.trace = budget_.take_trace();
  if (!settings_.checkpoint.empty() && begin < settings_.steps) save(settings_.steps);
  out.peak = budget_.peak();
  return out;
}

void Trainer::begin_phase(Phase phase) {
  budget_.take_peak();
  budget_.begin_phase(phase);
}

void Trainer::end_phase(StepResult& result) {
  const int64_t peak = budget_.take_peak();
  int64_t& phase = result.by_phase[static_cast<size_t>(budget_.phase())];
  phase = std::max(phase, peak);
  result.peak = std::max(result.peak, peak);
}

// The last one that was to hold from this step on or earlier, also when the run was resumed since.
void Trainer::set_limit_of(int64_t step) {
  const auto after = settings_.limits.upper_bound(step);
  if (after != settings_.limits.begin()) budget_.set_limit(std::prev(after)->second);
}

StepResult Trainer::train_step(int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  StepResult result;
  result.step = step + 1;
  set_limit_of(step + 1);
  result.limit = budget_.limit();
  budget_.begin_step();
  result.loss = accumulate_gradients(step, result);
  if (!std::isfinite(result.loss))
    throw Error(fmt::format("[measure] step {}: the loss is {}", step + 1, std::isnan(result.loss) ? "nan" : "infinite"),
                "lower --lr, add --clip 1, or look for such numbers in the data; the last checkpoint is of before");
  begin_phase(Phase::optimizer);
  try {
    update(step);
    end_phase(result);
    if (job_.ema) {
      begin_phase(Phase::ema);
      average();
      end_phase(result);
    }
  } catch (const c10::OutOfMemoryError& e) {
    does_not_fit("weights, gradients and the optimizer's states", e.what_without_backtrace());
  }
  result.micro_batch = scaler_.batch();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!settings_.auto_scale) return result;
  StepReport report;  // without a peak nothing grows
  if (settings_.grow) report = {.peak = result.peak, .limit = budget_.limit(), .seconds = result.seconds};
  if (const std::string reason = scaler_.report(report).reason; !reason.empty()) result.decision = reason;
  return result;
}

// In batches of the size that the scaler has for evaluations; after an out-of-memory error from the beginning, in smaller ones.
EvaluationResult Trainer::evaluate(int64_t step) {
  EvaluationResult result;
  const torch::NoGradGuard no_grad;
  for (;;) {
    std::string why;
    begin_phase(Phase::evaluation);
    build_.training = false;
    try {
      result.batch = scaler_.evaluation_batch();
      result.loss = evaluated_loss(settings_.eval_samples > 0 ? settings_.eval_samples : result.batch);
    } catch (const c10::OutOfMemoryError& e) {
      why = e.what_without_backtrace();
    }
    build_.training = true;
    if (why.empty()) {
      result.peak = budget_.take_peak();
      return result;
    }
    ++result.out_of_memory;
    model_->forget();
    if (!settings_.auto_scale)
      throw Error(fmt::format("[limit] evaluation after step {}: {}", step + 1, why),
                  "--auto-scale goes on in smaller batches; or raise --limit, or lower --eval-batch", ExitCode::no);
    const ScalerDecision decision = scaler_.report({.phase = ScalerPhase::evaluation, .out_of_memory = true});
    if (decision.action != ScalerAction::replay)
      throw Error(fmt::format("[limit] evaluation after step {}: {}; {}", step + 1, why, decision.reason), "raise --limit, or lower --seq",
                  ExitCode::no);
  }
}

double Trainer::evaluated_loss(int64_t samples) {
  constexpr int64_t kNotTrainedOn = int64_t{1} << 48;  // far above any that is
  double sum = 0;
  Tensors inputs;
  for (int64_t first = 0, size = 0; first < samples; first += size) {
    if (const int64_t fit = std::min(scaler_.evaluation_batch(), samples - first); fit != size) {
      const Labelled label(Category::input);
      inputs.clear();
      inputs = model_->make_inputs(size = fit);
    }
    for (int64_t i = 0; i < size; ++i) model_->fill(inputs, i, data_, kNotTrainedOn + first + i);
    model_->begin(data_, kNotTrainedOn + first, size);
    const Autocast autocast(uses_autocast(job_));
    sum += static_cast<double>(size) * model_->loss(inputs).item<double>();
  }
  return sum / static_cast<double>(samples);
}

// The gradients of one step, summed over its micro-batches. After an out-of-memory error everything of the step is dropped, and the same
// samples go through in smaller ones.
double Trainer::accumulate_gradients(int64_t step, StepResult& result) {
  for (;;) {
    std::string why;
    try {
      double loss = 0;
      int64_t done = 0;
      for (const MicroBatch& part : scaler_.step()) {
        loss += part.weight * micro_step(step, done, part, result);
        done += part.size;
      }
      return loss;
    } catch (const c10::OutOfMemoryError& e) {
      why = e.what_without_backtrace();
    }
    ++result.out_of_memory;
    result.peak = 0;  // of the micro-batches that go through
    result.by_phase = {};
    loss_.reset();
    drop_gradients();
    model_->forget();
    if (!settings_.auto_scale)
      throw Error(fmt::format("[limit] step {}: {}", step + 1, why),
                  "--auto-scale goes on in smaller micro-batches; or raise --limit, or lower --batch or --seq", ExitCode::no);
    const ScalerDecision decision = scaler_.report({.out_of_memory = true, .limit = budget_.limit()});
    if (decision.action != ScalerAction::replay)
      throw Error(fmt::format("[limit] step {}: {}; {}", step + 1, why, decision.reason), "raise --limit, or lower --seq", ExitCode::no);
    result.decision = decision.reason;
  }
}

// One forward and backward. The gradient that the loss begins with is its share in the step.
double Trainer::micro_step(int64_t step, int64_t first, const MicroBatch& part, StepResult& result) {
  begin_phase(Phase::forward);
  if (samples_made_ != part.size) {
    const Labelled label(Category::input);
    samples_made_ = 0;
    inputs_.clear();
    inputs_ = model_->make_inputs(part.size);
    samples_made_ = part.size;
  }
  const int64_t sample = step * global_batch_ + first;
  for (int64_t i = 0; i < part.size; ++i) loader_->fill(inputs_, i, part.size, sample + i);
  model_->begin(data_, sample, part.size);
  torch::manual_seed(data_.random(sample, 3)());
  {
    const Autocast autocast(uses_autocast(job_));
    Tensor loss = model_->loss(inputs_);  // the old one is still alive here
    loss_ = std::move(loss);
  }
  end_phase(result);
  begin_phase(Phase::backward);
  loss_.backward(torch::full_like(loss_, part.weight));
  end_phase(result);
  return loss_.item<double>();
}

void Trainer::drop_gradients() {
  for (const NamedParameter& p : trained_) p.value.mutable_grad().reset();
}

void Trainer::update(int64_t step) {
  const torch::NoGradGuard no_grad;
  if (job_.clip) clip_gradients();
  make_states();
  adamw(step);
  for (const State& s : states_) {
    budget_.relabel(s.exp_avg, Category::optimizer_state);
    budget_.relabel(s.exp_avg_sq, Category::optimizer_state);
  }
  drop_gradients();
}

// torch.nn.utils.clip_grad_norm_
void Trainer::clip_gradients() const {
  Tensors norms;
  for (const NamedParameter& p : trained_)
    if (p.value.grad().defined()) norms.push_back(torch::linalg_vector_norm(p.value.grad()));
  if (norms.empty()) return;
  const Tensor norm = torch::linalg_vector_norm(torch::stack(norms));
  norms.clear();
  Tensor coefficient;
  {
    const Tensor shifted = norm + 1e-6;
    coefficient = shifted.reciprocal() * *job_.clip;
  }
  const Tensor clamped = coefficient.clamp_max(1.0);
  for (const NamedParameter& p : trained_)
    if (p.value.grad().defined()) p.value.grad().mul_(clamped);
}

void Trainer::make_states() {
  for (size_t i = 0; i < trained_.size(); ++i) {
    if (states_[i].exp_avg.defined() || !trained_[i].value.grad().defined()) continue;
    states_[i].exp_avg = torch::zeros_like(trained_[i].value);
    states_[i].exp_avg_sq = torch::zeros_like(trained_[i].value);
  }
}

// torch.optim.AdamW, one parameter after the other. `denominator` lives on into the next turn, as its Python name does.
void Trainer::adamw(int64_t step) {
  const Recipe& s = settings_.recipe;
  const double correction1 = 1 - std::pow(s.beta1, step + 1), correction2 = std::sqrt(1 - std::pow(s.beta2, step + 1));
  Tensor denominator;
  for (size_t i = 0; i < trained_.size(); ++i) {
    Tensor value = trained_[i].value;
    const Tensor& grad = value.grad();
    if (!grad.defined()) continue;
    const auto& [exp_avg, exp_avg_sq] = states_[i];
    value.mul_(1 - s.learning_rate * s.weight_decay);
    exp_avg.mul_(s.beta1).add_(grad, 1 - s.beta1);
    exp_avg_sq.mul_(s.beta2).addcmul_(grad, grad, 1 - s.beta2);
    {
      Tensor root = exp_avg_sq.sqrt(), quotient = root / correction2;
      root.reset();
      quotient.add_(s.eps);
      denominator = std::move(quotient);
    }
    value.addcdiv_(exp_avg, denominator, -s.learning_rate / correction1);
  }
}

// average -= (1 - decay) * (average - value); diffusers copies what is frozen, which never differs, and the AI Toolkit scales in place.
void Trainer::average() {
  const torch::NoGradGuard no_grad;
  const EmaUpdate update = job_.averaging.update;
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Tensor& value = averaged_[i].value;
    if (update == EmaUpdate::diffusers && !value.requires_grad()) continue;
    Tensor difference = averages_[i] - value;
    averages_[i].sub_(update == EmaUpdate::ai_toolkit ? difference.mul_(1 - settings_.ema_decay) : difference * (1 - settings_.ema_decay));
  }
}

std::vector<NamedParameter> Trainer::state_tensors() {
  std::vector<NamedParameter> out = build_.parameters;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!states_[i].exp_avg.defined()) continue;
    out.push_back({"optimizer.exp_avg." + trained_[i].name, states_[i].exp_avg});
    out.push_back({"optimizer.exp_avg_sq." + trained_[i].name, states_[i].exp_avg_sq});
  }
  for (size_t i = 0; i < averages_.size(); ++i) out.push_back({"ema." + averaged_[i].name, averages_[i]});
  return out;
}

void Trainer::save(int64_t step) {
  std::string with_states;  // parameters that got a gradient, one letter each
  for (const State& s : states_) with_states += s.exp_avg.defined() ? '1' : '0';
  save_state(settings_.checkpoint,
             {{"step", std::to_string(step)},
              {"seed", std::to_string(settings_.seed)},
              {"scaler", scaler_.saved().dump()},
              {"global_batch", std::to_string(global_batch_)},
              {"states", with_states}},
             state_tensors());
}

int64_t Trainer::restore() {
  const Notes notes = read_notes(settings_.checkpoint);
  const auto number = [&](const char* key) {
    const auto found = notes.find(key);
    if (found == notes.end() || found->second.empty() || found->second.size() > 18 ||
        found->second.find_first_not_of("0123456789") != std::string::npos)
      throw Error(fmt::format("[checkpoint] {} does not say its {}", settings_.checkpoint, key), "name one that `measure` wrote");
    return std::stoll(found->second);
  };
  if (number("global_batch") != global_batch_)
    throw Error(fmt::format("[checkpoint] {} was written with {} samples a step, not {}", settings_.checkpoint, number("global_batch"),
                            global_batch_),
                "resume with the batch and accumulation it was written with");
  if (number("seed") != static_cast<int64_t>(settings_.seed))
    throw Error(fmt::format("[checkpoint] {} was written with seed {}", settings_.checkpoint, number("seed")), "give the same --seed");
  const auto states = notes.find("states");
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (states == notes.end() || i >= states->second.size() || states->second[i] != '1') continue;
    const Labelled label(Category::optimizer_state);
    states_[i] = {torch::zeros_like(trained_[i].value), torch::zeros_like(trained_[i].value)};
  }
  load_state(settings_.checkpoint, state_tensors());
  if (const auto saved = notes.find("scaler"); settings_.auto_scale && saved != notes.end())
    scaler_.restore(nlohmann::json::parse(saved->second, nullptr, false));
  return number("step");
}

}  // namespace plimsoll::measure
