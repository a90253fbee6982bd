// GaLoreAdamW and GaLoreAdamW8bit (jiaweizzhao/GaLore, galore_torch 1.0): Adam on gradients that are projected on `rank` singular vectors
// of themselves. Every step here is one that computes the vectors anew, as every update_proj_gap-th of a real run is. cuSOLVER's own
// workspaces are not known and left out. GaLoreAdafactor is in transformers_adafactor.cpp.
#include <deque>

#include "optim/low_rank.h"
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

struct GaLoreAdamWState {
  Tensor ortho_matrix, exp_avg, exp_avg_sq;
  Tensors tensors() const { return {ortho_matrix, exp_avg, exp_avg_sq}; }
};

class GaLoreAdamW final : public StatefulOptimizer<GaLoreAdamWState> {
 public:
  explicit GaLoreAdamW(const Arguments& args) : targets_(args), settings_(args) {}

  void know_linear_layers(const std::vector<LinearWeight>& layers) override { targets_.choose(layers); }
  void attach(const std::vector<Parameter*>&) override { targets_.check_chosen(); }

 private:
  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad, denom, norm_grad;
    for (size_t i : targets_.in_order(all)) {
      const ScopeGuard module(all[i]->value.tape(), all[i]->value.tape().scope_of(all[i]->value));
      State& s = state(i);
      const bool low_rank = targets_.holds(all[i]);
      grad = all[i]->grad;
      if (low_rank) {
        s.ortho_matrix = singular_vectors(grad, settings_);
        grad = projected(grad, s.ortho_matrix, settings_);
      }
      if (!s.exp_avg) s.exp_avg = zeros_like(grad), s.exp_avg_sq = zeros_like(grad);
      denom = temporary("sqrt", s.exp_avg_sq);
      norm_grad = temporary("div", s.exp_avg);
      if (low_rank) norm_grad = projected_back(norm_grad, s.ortho_matrix, settings_.is_right(all[i]->grad));
    }
  }

  LowRankTargets targets_;
  ProjectionSettings settings_;
};

// galore_torch/adamw8bit.py: bitsandbytes' kernels see a parameter whose data and gradient are the projected ones; the weight waits in a
// copy of itself, whose storage is the parameter's from then on.
class GaLoreAdamW8bit final : public Optimizer {
 public:
  explicit GaLoreAdamW8bit(const Arguments& args) : targets_(args), settings_(args), kernels_(make_optimizer("AdamW8bit", Config())) {}

  void know_linear_layers(const std::vector<LinearWeight>& layers) override { targets_.choose(layers); }
  void attach(const std::vector<Parameter*>&) override { targets_.check_chosen(); }

  void step(const std::vector<Parameter*>& all) override {
    seen_.resize(all.size());
    ortho_matrices_.resize(all.size());
    unorm_vecs_.resize(all.size());
    std::vector<Parameter*> seen;
    for (Parameter& p : seen_) seen.push_back(&p);
    Tensor grad;
    for (size_t i : targets_.in_order(all)) {
      const ScopeGuard module(all[i]->value.tape(), all[i]->value.tape().scope_of(all[i]->value));
      const bool low_rank = targets_.holds(all[i]), right = low_rank && settings_.is_right(all[i]->grad);
      seen_[i].value = all[i]->value;
      if (low_rank) {
        ortho_matrices_[i] = singular_vectors(all[i]->grad, settings_);
        grad = projected(all[i]->grad, ortho_matrices_[i], settings_);
        const Tensor saved_data = temporary("clone", all[i]->value);
        seen_[i].value = temporary("clone", grad);
        all[i]->value.body().storage = saved_data.body().storage;
        all[i]->grad = grad;
      }
      seen_[i].grad = all[i]->grad;
      kernels_->step(seen);
      if (!unorm_vecs_[i]) unorm_vecs_[i] = temporary("zeros", {1}, DType::float32, all[i]->value.tape());
      if (low_rank) projected_back(seen_[i].value, ortho_matrices_[i], right);
      seen_[i].value.reset();
      seen_[i].grad.reset();
    }
    for (const Parameter* p : all) p->value.tape().relabel(p->value, Category::parameter);
  }

  Tensors states() const override {
    Tensors out = kernels_->states();
    for (const Tensors& more : {ortho_matrices_, unorm_vecs_})
      for (const Tensor& t : more)
        if (t) out.push_back(t);
    return out;
  }

 private:
  LowRankTargets targets_;
  ProjectionSettings settings_;
  std::unique_ptr<Optimizer> kernels_;
  std::deque<Parameter> seen_;  // by the kernels, one after the other; by position in the parameter list, as all below
  Tensors ortho_matrices_;
  Tensors unorm_vecs_;  // its percentile_clipping of 100 stands where bitsandbytes 0.50 takes max_unorm: a number for each parameter
};

}  // namespace

extern const OptimizerEntry kGaLoreAdamW{
    .name = "GaLoreAdamW",
    .library = "galore-torch",
    .keeps = "2 states of rank 128 for linear layers, and what projects on it; 2 for the rest",
    .make = make<GaLoreAdamW>,
    .arguments = {{"betas", {0.9, 0.999}},
                  {"eps", 1e-6},
                  {"weight_decay", 0.0},
                  {"correct_bias", true},
                  {"no_deprecation_warning", false},
                  {"rank", 128},
                  {"update_proj_gap", 200},
                  {"scale", 0.25},
                  {"proj_type", "std"},
                  {"target_modules", "all-linear"}},
    .transformers = {{"galore_adamw"}, {"galore_adamw_layerwise"}},
    .optim_args = "rank proj_type",
};

extern const OptimizerEntry kGaLoreAdamW8bit{
    .name = "GaLoreAdamW8bit",
    .library = "galore-torch",
    .keeps = "2 bytes for each element of rank 128 of linear layers, and what projects on it; AdamW8bit's for the rest",
    .make = make<GaLoreAdamW8bit>,
    .arguments = {{"betas", {0.9, 0.999}},
                  {"eps", 1e-8},
                  {"weight_decay", 1e-2},
                  {"rank", 128},
                  {"update_proj_gap", 200},
                  {"scale", 0.25},
                  {"proj_type", "std"},
                  {"target_modules", "all-linear"}},
    .transformers = {{"galore_adamw_8bit"}, {"galore_adamw_8bit_layerwise"}},
    .optim_args = "rank proj_type",
};

}  // namespace plimsoll
