// LOMO and AdaLomo (OpenLMLab/LOMO, lomo_optim): weights are updated inside backward, each when the gradient of the next arrives
// (step/in_backward.h), in fp32 copies if they are of another type. AdaLomo keeps a row and a column of second moments in fp32.
#include <fmt/format.h>

#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

Tensor in_fp32(const Tensor& t) { return t.dtype() == DType::float32 ? t : temporary("_to_copy", t.sizes(), DType::float32, t.tape()); }

class Lomo final : public Optimizer {
 public:
  explicit Lomo(const Arguments& args) {
    if (args.given("clip_grad_norm"))
      args.refuse("clip_grad_norm takes another backward, which is not simulated", "leave clip_grad_norm out");
  }

  void step(const std::vector<Parameter*>& all) override {
    for (size_t i : with_gradients(all)) {
      const Tensor grad = in_fp32(all[i]->grad);
      all[i]->grad.reset();
      const Tensor value = in_fp32(all[i]->value);
    }
  }

  Tensors states() const override { return {}; }
};

// The state: moments of a vector, or a row and a column of a matrix.
class AdaLomo final : public StatefulOptimizer<Tensors> {
 public:
  explicit AdaLomo(const Arguments& args)
      : StatefulOptimizer(Form::loop, StatesMade::by_constructor), decays_(args.nonzero("weight_decay")) {
    if (args.given("clip_grad_norm"))
      args.refuse("clip_grad_norm takes another backward, which is not simulated", "leave clip_grad_norm out");
  }

 private:
  void init(Tensors& moments, const Parameter& p) override {
    const Tensor& value = p.value;
    if (value.dim() > 2)
      throw Error(fmt::format("[optimizer] AdaLomo: {} of shape {} has more than two dimensions, for which its code has no moments", p.name,
                              to_string(value.sizes())),
                  "take Lomo, or an optimizer that keeps moments of any shape");
    for (int d = 0; d < value.dim(); ++d) moments.push_back(temporary("_to_copy", {value.size(d)}, DType::float32, value.tape()));
  }

  void step_loop(const std::vector<Parameter*>& all) override {
    for (size_t i : with_gradients(all)) {
      Tape& tape = all[i]->value.tape();
      const auto number = [&](const char* op) { return temporary(op, Dims{}, DType::float32, tape); };
      const Tensor grad = in_fp32(all[i]->grad);
      all[i]->grad.reset();
      Tensor update = chain(grad, {"pow", "add"});
      update = direction(state(i), grad);
      {
        Tensor size = number("linalg_vector_norm");
        for (const char* op : {"div", "div"}) size = number(op);
      }
      const Tensor value = in_fp32(all[i]->value);
      Tensor rms = number("linalg_vector_norm");
      rms = number("div");
      temporary("gt", Dims{}, DType::bool_, tape);  // max(eps, rms)
      const Tensor lr = number("mul");
      if (decays_) chain(lr, {"mul", "rsub"});
      number("neg");  // alpha=-lr
    }
  }

  static Tensor direction(const Tensors& moments, const Tensor& grad) {
    if (moments.size() < 2) return temporary("rsqrt", moments[0]);
    for (const Tensor& m : moments) temporary("mean", m);
    Tensor rows;
    {
      const Tensor mean = temporary("mean", {1}, DType::float32, grad.tape());
      rows = temporary("div", moments[0]);
    }
    const Tensor columns = temporary("rsqrt", moments[1]);
    return temporary("mul", grad);
  }

  bool decays_;
};

}  // namespace

extern const OptimizerEntry kLomo{
    .name = "Lomo",
    .library = "lomo-optim",
    .keeps = "no state: weights are updated in backward",
    .make = make<Lomo>,
    .arguments = {{"clip_grad_norm"}, {"clip_grad_value"}, {"weight_decay", 0.0}},
    .transformers = {{"lomo"}},
};

extern const OptimizerEntry kAdaLomo{
    .name = "AdaLomo",
    .library = "lomo-optim",
    .keeps = "a row and a column for matrices, 1 state for vectors, in fp32; updates in backward",
    .make = make<AdaLomo>,
    .arguments = {{"loss_scale", 1024},
                  {"eps", {1e-30, 1e-3}},
                  {"clip_threshold", 1.0},
                  {"decay_rate", -0.8},
                  {"clip_grad_norm"},
                  {"clip_grad_value"},
                  {"weight_decay", 0.0}},
    .transformers = {{"adalomo"}},
};

}  // namespace plimsoll
