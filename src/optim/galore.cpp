// GaLoreAdamW (jiaweizzhao/GaLore, galore_torch 1.0): Adam on gradients that are projected on `rank` singular vectors of themselves. Every
// step here is one that computes the vectors anew, as every update_proj_gap-th of a real run is. cuSOLVER's own workspaces are not
// known and left out.
#include "ops/matmul.h"
#include "optim/foreach.h"
#include "optim/low_rank.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

class GaLoreAdamW final : public Optimizer {
 public:
  explicit GaLoreAdamW(const Arguments& args) : targets_(args), settings_(args) {}

  void know_linear_layers(const std::vector<LinearWeight>& layers) override { targets_.choose(layers); }
  void attach(const std::vector<Parameter*>&) override { targets_.check_chosen(); }

  void step(const std::vector<Parameter*>& all) override {
    states_.resize(all.size());
    Tensor grad, denom, norm_grad;
    for (size_t i : targets_.in_order(all)) {
      const ScopeGuard module(all[i]->value.tape(), all[i]->value.tape().scope_of(all[i]->value));
      State& s = states_[i];
      const bool low_rank = targets_.holds(all[i]);
      grad = all[i]->grad;
      if (low_rank) {
        s.ortho_matrix = singular_vectors(grad, settings_);
        grad = projected(grad, s.ortho_matrix, settings_);
      }
      if (!s.exp_avg) s.exp_avg = zeros_like(grad), s.exp_avg_sq = zeros_like(grad);
      denom = temporary("sqrt", s.exp_avg_sq);
      norm_grad = temporary("div", s.exp_avg);
      if (low_rank) norm_grad = back(norm_grad, s.ortho_matrix, settings_.is_right(all[i]->grad));
    }
  }

  Tensors states() const override {
    Tensors out;
    for (const State& s : states_)
      for (const Tensor& t : {s.ortho_matrix, s.exp_avg, s.exp_avg_sq})
        if (t) out.push_back(t);
    return out;
  }

 private:
  struct State {
    Tensor ortho_matrix, exp_avg, exp_avg_sq;
  };

  // project_back: the full matrix, and it times the scale
  static Tensor back(const Tensor& low, const Tensor& ortho, bool right) {
    const Tensor full = right ? matmul(low, ortho) : matmul(ortho, low);
    return temporary("mul", full);
  }

  LowRankTargets targets_;
  ProjectionSettings settings_;
  std::vector<State> states_;  // by position in the parameter list
};

}  // namespace

std::unique_ptr<Optimizer> make_galore_adamw(const Config& args) {
  return std::make_unique<GaLoreAdamW>(Arguments("GaLoreAdamW", args,
                                                 {"betas", "eps", "weight_decay", "correct_bias", "no_deprecation_warning", "rank",
                                                  "update_proj_gap", "scale", "proj_type", "target_modules"},
                                                 false));
}

}  // namespace plimsoll
