// AnyPrecisionAdamW (pytorch/torchdistx): Adam's moments in types that the user chooses, a loop over the parameters, and with Kahan's
// summation a compensation for each.
#include "optim/optimizers.h"
#include "optim/stateful_optimizer.h"
#include "util/text.h"

namespace plimsoll {

namespace {

DType state_type(const Arguments& args, const char* key, const char* fallback) {
  const std::string name = args.config().text({key}, fallback);
  if (name == "float32") return DType::float32;
  if (name == "bfloat16") return DType::bfloat16;
  if (name == "float16") return DType::float16;
  args.refuse(std::string(key) + " is '" + printable(name, 40) + "'", "one of float32, bfloat16, float16");
}

struct AnyPrecisionAdamWState {
  Tensor exp_avg, exp_avg_sq, compensation;
  Tensors tensors() const { return {exp_avg, exp_avg_sq, compensation}; }
};

class AnyPrecisionAdamW final : public StatefulOptimizer<AnyPrecisionAdamWState> {
 public:
  explicit AnyPrecisionAdamW(const Arguments& args)
      : StatefulOptimizer(Form::loop, StatesMade::one_by_one),
        kahan_(args.flag("use_kahan_summation")),
        momentum_(state_type(args, "momentum_dtype", "float32")),
        variance_(state_type(args, "variance_dtype", "bfloat16")),
        compensation_(state_type(args, "compensation_buffer_dtype", "bfloat16")) {}

 private:
  void step_loop(const std::vector<Parameter*>& all) override {
    Tensor centered_variance, temp_buffer;
    for (size_t i : with_gradients(all)) {
      const Tensor& value = all[i]->value;
      const State& s = started(all, i);
      centered_variance = chain(s.exp_avg_sq, {"sqrt", "div"});
      if (kahan_) temp_buffer = temporary("clone", value);
    }
  }

  void init(State& s, const Parameter& p) override {
    const Tensor& value = p.value;
    s.exp_avg = temporary("zeros_like", value.sizes(), momentum_, value.tape());
    s.exp_avg_sq = temporary("zeros_like", value.sizes(), variance_, value.tape());
    if (kahan_) s.compensation = temporary("zeros_like", value.sizes(), compensation_, value.tape());
  }

  bool kahan_;
  DType momentum_, variance_, compensation_;
};

}  // namespace

std::unique_ptr<Optimizer> make_any_precision_adamw(const Config& args) {
  return std::make_unique<AnyPrecisionAdamW>(Arguments(
      "AnyPrecisionAdamW", args,
      {"betas", "eps", "weight_decay", "use_kahan_summation", "momentum_dtype", "variance_dtype", "compensation_buffer_dtype"}, false));
}

}  // namespace plimsoll
