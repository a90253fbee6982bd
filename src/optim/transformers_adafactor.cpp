// transformers.optimization.Adafactor (the Trainer's `optim: adafactor`): factored second moments, a loop over the parameters, fp32
// copies of what is in half precision. Names of the Python step live from one parameter to the next. galore_torch's is a copy of it that
// works on projected gradients of linear layers.
#include "optim/factored.h"
#include "optim/low_rank.h"
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

Tensor scalar(const char* op, Tape& tape) { return temporary(op, Dims{}, DType::float32, tape); }

// Whose gradients are projected, and on what.
struct LowRank {
  explicit LowRank(const Arguments& args) : targets(args), settings(args) {}
  LowRankTargets targets;
  ProjectionSettings settings;
};

struct TransformersAdafactorState {
  Factors moments;  // or, of vectors:
  Tensor whole;
  Tensor exp_avg, rms, ortho_matrix;
  Tensors tensors() const { return {exp_avg, moments.row, moments.column, whole, rms, ortho_matrix}; }
};

class TransformersAdafactor final : public StatefulOptimizer<TransformersAdafactorState> {
 public:
  explicit TransformersAdafactor(const Arguments& args, std::optional<LowRank> low_rank = std::nullopt)
      : first_moment_(args.nonzero("beta1")),
        decay_(args.nonzero("weight_decay")),
        scales_(args.flag("scale_parameter")),
        low_rank_(std::move(low_rank)) {}

  void know_linear_layers(const std::vector<LinearWeight>& layers) override {
    if (low_rank_) low_rank_->targets.choose(layers);
  }
  void attach(const std::vector<Parameter*>&) override {
    if (low_rank_) low_rank_->targets.check_chosen();
  }

 private:
  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad, value, lr, update;
    for (size_t i : low_rank_ ? low_rank_->targets.in_order(all) : with_gradients(all)) {
      State& s = state(i);
      const bool projects = low_rank_ && low_rank_->targets.holds(all[i]), right = projects && low_rank_->settings.is_right(all[i]->grad);
      grad = all[i]->grad;
      grad = widened(grad);
      if (projects) {
        s.ortho_matrix = singular_vectors(grad, low_rank_->settings);
        grad = projected(grad, s.ortho_matrix, low_rank_->settings);
      }
      start(s, grad);
      value = all[i]->value;
      value = widened(value);
      s.rms = rms(DType::float32, grad.tape());
      if (scales_) {
        temporary("gt", Dims{}, DType::bool_, grad.tape());  // max(eps, RMS)
        lr = scalar("mul", grad.tape());
      }
      update = chain(grad, {"pow", "add"});
      update = s.whole ? temporary("rsqrt", s.whole) : factored_rsqrt(s.moments, grad);
      {
        const Tensor size = rms(DType::float32, grad.tape());
        scalar("div", grad.tape());
      }
      if (first_moment_) update = s.exp_avg;
      if (projects) update = projected_back(update, s.ortho_matrix, right);
      if (decay_ && scales_) scalar("mul", grad.tape());
      temporary("neg", update);
    }
  }

  void start(State& s, const Tensor& grad) const {
    if (s.moments.row || s.whole) return;
    if (first_moment_) s.exp_avg = zeros_like(grad);
    if (grad.dim() < 2)
      s.whole = zeros_like(grad);
    else
      s.moments = zero_factors(grad);
  }

  bool first_moment_, decay_, scales_;
  std::optional<LowRank> low_rank_;
};

std::unique_ptr<Optimizer> make_galore_adafactor(const Arguments& args) {
  return std::make_unique<TransformersAdafactor>(args, LowRank(args));
}

}  // namespace

extern const OptimizerEntry kTransformersAdafactor{
    .name = "TransformersAdafactor",
    .library = "transformers",
    .keeps = "a row and a column for matrices, 1 state for vectors, in fp32",
    .make = make<TransformersAdafactor>,
    .arguments = {{"eps", {1e-30, 1e-3}},
                  {"clip_threshold", 1.0},
                  {"decay_rate", -0.8},
                  {"beta1"},
                  {"weight_decay", 0.0},
                  {"scale_parameter", true},
                  {"relative_step", true},
                  {"warmup_init", false},
                  {"maximize", false}},
    .transformers = {{"adafactor"}},
};

extern const OptimizerEntry kGaLoreAdafactor{
    .name = "GaLoreAdafactor",
    .library = "galore-torch",
    .keeps = "a row and a column of what is of rank 128 for linear layers, and what projects on it; Adafactor's for the rest",
    .make = make_galore_adafactor,
    .arguments = {{"eps", {1e-30, 1e-3}},
                  {"clip_threshold", 1.0},
                  {"decay_rate", -0.8},
                  {"beta1"},
                  {"weight_decay", 0.0},
                  {"scale_parameter", true},
                  {"relative_step", true},
                  {"warmup_init", false},
                  {"rank", 128},
                  {"update_proj_gap", 200},
                  {"scale", 0.25},
                  {"proj_type", "std"},
                  {"target_modules", "all-linear"},
                  {"maximize", false}},
    .transformers = {{"galore_adafactor", R"({"scale_parameter": false})"}, {"galore_adafactor_layerwise"}},
    .optim_args = "rank proj_type scale_parameter",
};

}  // namespace plimsoll
