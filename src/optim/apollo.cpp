// APOLLOAdamW (zhuhanqing/APOLLO, apollo_torch 1.0): Adam's moments of a gradient in a random space of low rank; what they say becomes one
// factor a channel, or one in all, for the whole gradient. Every step here is one that draws the projection anew, as every
// update_proj_gap-th of a real run is.
#include "optim/low_rank.h"
#include "optim/stateful_optimizer.h"
#include "util/text.h"

namespace plimsoll {

namespace {

struct ApolloAdamWState {
  Tensor projection, exp_avg, exp_avg_sq, scaled_grad;  // the last: a norm
  Tensors tensors() const { return {projection, exp_avg, exp_avg_sq, scaled_grad}; }
};

class ApolloAdamW final : public StatefulOptimizer<ApolloAdamWState> {
 public:
  explicit ApolloAdamW(const Arguments& args) : targets_(args), settings_(args), limits_(!args.flag("disable_nl")) {
    random_ = one_of(args, "proj", "random", "svd");
    by_channel_ = one_of(args, "scale_type", "channel", "tensor");
  }

  void know_linear_layers(const std::vector<LinearWeight>& layers) override { targets_.choose(layers); }
  void attach(const std::vector<Parameter*>&) override { targets_.check_chosen(); }

 private:
  void step_loop(const std::vector<Parameter*>& all) override {
    Names names;
    for (size_t i : targets_.in_order(all)) {
      const ScopeGuard module(all[i]->value.tape(), all[i]->value.tape().scope_of(all[i]->value));
      State& s = state(i);
      const bool low_rank = targets_.holds(all[i]);
      names.grad = all[i]->grad;
      if (low_rank) {
        s.projection = random_ ? random_projection(names.grad, settings_) : singular_vectors(names.grad, settings_);
        names.grad = projected(names.grad, s.projection, settings_);
      }
      if (!s.exp_avg) s.exp_avg = zeros_like(names.grad), s.exp_avg_sq = zeros_like(names.grad);
      names.denom = temporary("sqrt", s.exp_avg_sq);
      names.norm_grad = temporary("div", s.exp_avg);
      if (low_rank) scale(s, all[i]->grad, names);
    }
  }

  struct Names {  // of the Python step: they outlive the parameter they were for
    Tensor grad, denom, norm_grad, factor, scaled_grad, norm;
  };

  static bool one_of(const Arguments& args, const char* key, const char* usual, const char* other) {
    const std::string value = args.text(key);
    if (value != usual && value != other)
      args.refuse(std::string(key) + " is '" + printable(value, 40) + "'", std::string("one of ") + usual + ", " + other);
    return value == usual;
  }

  static Tensor number(const char* op, const Tensor& like) { return temporary(op, Dims{}, like.dtype(), like.tape()); }

  // Steps 3 and 4 of the paper, and Fira's limit to the growth of the norm.
  void scale(State& s, const Tensor& full, Names& n) const {
    n.factor = factor(n.grad, full.size(0) < full.size(1) ? 1 : 0);
    n.scaled_grad = temporary("mul", full);
    if (limits_) limit(s, n);
    n.norm_grad = n.scaled_grad;
  }

  // norm(norm_grad) / (norm(grad) + 1e-8), along the short side or of everything
  Tensor factor(const Tensor& grad, int channels) const {
    const Dims sizes = by_channel_ ? Dims{grad.size(channels)} : Dims{};
    const auto norms = [&](const char* op) { return temporary(op, sizes, grad.dtype(), grad.tape()); };
    const Tensor above = norms("linalg_vector_norm");
    Tensor below = norms("linalg_vector_norm");
    below = norms("add");
    return norms("div");
  }

  static void limit(State& s, Names& n) {
    if (!s.scaled_grad) {
      s.scaled_grad = number("linalg_vector_norm", n.scaled_grad);
      return;
    }
    n.norm = number("linalg_vector_norm", n.scaled_grad);
    {
      const Tensor before = number("add", n.norm), growth = number("div", n.norm);
      temporary("gt", Dims{}, DType::bool_, n.norm.tape());  // max(growth, 1.01)
    }
    n.scaled_grad = temporary("div", n.scaled_grad);
    s.scaled_grad = number("div", n.norm);
  }

  LowRankTargets targets_;
  ProjectionSettings settings_;
  bool limits_, random_ = true, by_channel_ = true;
};

}  // namespace

extern const OptimizerEntry kApolloAdamW{
    .name = "APOLLOAdamW",
    .library = "apollo-torch",
    .keeps = "2 states of rank 128 for linear layers, and what projects on it; 2 for the rest",
    .make = make<ApolloAdamW>,
    .arguments = {{"betas", {0.9, 0.999}},
                  {"eps", 1e-6},
                  {"weight_decay", 0.0},
                  {"correct_bias", true},
                  {"scale_front", false},
                  {"disable_nl", false},
                  {"no_deprecation_warning", true},
                  {"rank", 128},
                  {"proj", "random"},
                  {"scale_type", "channel"},
                  {"update_proj_gap", 200},
                  {"scale", 1.0},
                  {"proj_type", "std"},
                  {"target_modules", "all-linear"}},
    .transformers = {{"apollo_adamw"}, {"apollo_adamw_layerwise"}},
    .optim_args = "rank proj scale_type proj_type",
};

}  // namespace plimsoll
