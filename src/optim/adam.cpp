// torch.optim.Adam and AdamW: exp_avg and exp_avg_sq (and max_exp_avg_sq with amsgrad) for every parameter.
#include "optim/stateful_optimizer.h"
#include "tensor/number.h"

namespace plimsoll {

namespace {

struct AdamState {
  Tensor step, exp_avg, exp_avg_sq, max_exp_avg_sq;
  Tensors tensors() const { return {step, exp_avg, exp_avg_sq, max_exp_avg_sq}; }
};

class Adam final : public StatefulOptimizer<AdamState> {
 public:
  explicit Adam(const Arguments& args) : Adam(args, args.flag("decoupled_weight_decay")) {}
  Adam(const Arguments& args, bool decoupled)
      : StatefulOptimizer(args.form()),
        amsgrad_(args.flag("amsgrad")),
        maximize_(args.flag("maximize")),
        capturable_(args.flag("capturable")),
        adds_decay_(!decoupled && args.nonzero("weight_decay")) {}

 private:
  void init(State& s, const Parameter& p) override {
    const Tensor& value = p.value;
    if (form() == Form::fused || capturable_) s.step = device_scalar("zeros", value.tape());
    s.exp_avg = zeros_like(value);
    s.exp_avg_sq = zeros_like(value);
    if (amsgrad_) s.max_exp_avg_sq = zeros_like(value);
  }

  void step_foreach(const std::vector<Parameter*>& all) override {
    Tensors grads, correction1, correction2, step_size, correction2_sqrt, roots;
    for (const Positions& group : by_dtype(all)) {
      grads = gradients(all, group);
      if (maximize_) grads = foreach_op("_foreach_neg", grads);
      if (adds_decay_ && !maximize_) grads = foreach_op("_foreach_add", grads);
      redistributed_gradients(all, group);  // _foreach_lerp_
      {
        const Tensors first = redistributed_gradients(all, group), second = redistributed_gradients(all, group);  // _foreach_addcmul_
      }
      grads.clear();
      if (capturable_) {
        const Tensors steps = each(group, &State::step);
        correction1 = foreach_op("_foreach_pow", steps);
        correction2 = foreach_op("_foreach_pow", steps);
        step_size = correction1;
        correction2_sqrt = correction2;
      }
      roots = foreach_op("_foreach_sqrt", each(group, &State::exp_avg_sq));
      // Until PyTorch 2.1 (pull 104898) epsilon was added into a second set.
      if (all[group.front()]->value.tape().dialect.torch < Version{2, 1}) roots = foreach_op("_foreach_add", roots);
    }
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor grad, correction1, correction2, step_size, step_size_neg, correction2_sqrt, denominator;
    for (size_t i : with_gradients(all)) {
      const State& s = state(i);
      grad = maximize_ ? temporary("neg", all[i]->grad) : all[i]->grad;
      if (adds_decay_) grad = temporary("add", grad);
      redistributed_gradients(all, {i});
      { const Tensors first = redistributed_gradients(all, {i}), second = redistributed_gradients(all, {i}); }
      if (!capturable_) {
        denominator = denominator_of(s.exp_avg_sq);
        continue;
      }
      correction1 = chain(s.step, {"pow", "rsub"});
      correction2 = chain(s.step, {"pow", "rsub"});
      step_size = rdiv(correction1);
      step_size_neg = temporary("neg", step_size);
      correction2_sqrt = temporary("sqrt", correction2);
      if (amsgrad_) temporary("maximum", s.exp_avg_sq);
      Tensor sum;
      {
        const Tensor root = temporary("sqrt", s.exp_avg_sq);
        const Tensor factor = temporary("mul", step_size_neg);
        sum = temporary("div", root, factor);
      }
      rdiv(step_size_neg);
      denominator = sum;
    }
  }

  // One kernel that takes everything as an argument.
  void step_fused(const std::vector<Parameter*>& all) override { redistributed_gradients(all, with_gradients(all)); }

  // exp_avg_sq.sqrt() / number, with the numbers that the update takes before and after it.
  static Tensor denominator_of(const Tensor& exp_avg_sq) {
    Tape& tape = exp_avg_sq.tape();
    const DType dtype = exp_avg_sq.dtype();
    for (int in_place = 0; in_place < 3; ++in_place) Number(tape, dtype);  // of the parameter and both states
    Tensor out;
    {
      const Tensor root = temporary("sqrt", exp_avg_sq);
      const Number correction(tape, dtype);
      out = temporary("div", root);
    }
    { const Number eps(tape, dtype); }
    return out;
  }

  bool amsgrad_, maximize_, capturable_, adds_decay_;
};

std::unique_ptr<Optimizer> make_adamw(const Arguments& args) { return std::make_unique<Adam>(args, true); }

}  // namespace

extern const OptimizerEntry kAdam{
    .name = "Adam",
    .library = "torch.optim",
    .keeps = "2 states a parameter (3 with amsgrad)",
    .make = make<Adam>,
    .forms = {Form::foreach, Form::loop, Form::fused},
    .arguments = {{"betas", {0.9, 0.999}},
                  {"eps", 1e-8},
                  {"weight_decay", 0},
                  {"amsgrad", false},
                  {"foreach"},
                  {"maximize", false},
                  {"capturable", false},
                  {"differentiable", false},
                  {"fused"},
                  {"decoupled_weight_decay", false}},
};

extern const OptimizerEntry kAdamW{
    .name = "AdamW",
    .library = "torch.optim",
    .keeps = "2 states a parameter (3 with amsgrad)",
    .make = make_adamw,
    .forms = {Form::foreach, Form::loop, Form::fused},
    .arguments = {{"betas", {0.9, 0.999}},
                  {"eps", 1e-8},
                  {"weight_decay", 1e-2},
                  {"amsgrad", false},
                  {"maximize", false},
                  {"foreach"},
                  {"capturable", false},
                  {"differentiable", false},
                  {"fused"}},
    .transformers = {{"adamw_torch"},
                     {"adamw_torch_fused", R"({"fused": true})"},
                     {"adamw_torch_xla", R"({"fused": true})"},
                     {"adamw_torch_npu_fused", R"({"fused": true})"}},
};

}  // namespace plimsoll
