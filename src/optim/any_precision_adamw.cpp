// AnyPrecisionAdamW (pytorch/torchdistx): Adam's moments in types that the user chooses, a loop over the parameters, and with Kahan's
// summation a compensation for each.
#include "optim/stateful_optimizer.h"
#include "util/text.h"

namespace plimsoll {

namespace {

DType state_type(const Arguments& args, const char* key) {
  const std::string name = args.text(key);
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
        momentum_(state_type(args, "momentum_dtype")),
        variance_(state_type(args, "variance_dtype")),
        compensation_(state_type(args, "compensation_buffer_dtype")) {}

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

extern const OptimizerEntry kAnyPrecisionAdamW{
    .name = "AnyPrecisionAdamW",
    .library = "torchdistx",
    .keeps = "2 states a parameter in fp32 and bf16, 1 more with use_kahan_summation",
    .make = make<AnyPrecisionAdamW>,
    .arguments = {{"betas", {0.9, 0.999}},
                  {"eps", 1e-8},
                  {"weight_decay", 0.0},
                  {"use_kahan_summation", false},
                  {"momentum_dtype", "float32"},
                  {"variance_dtype", "bfloat16"},
                  {"compensation_buffer_dtype", "bfloat16"}},
    .transformers = {{"adamw_anyprecision", R"({"variance_dtype": "float32"})"}},
    .optim_args = "use_kahan_summation momentum_dtype variance_dtype compensation_buffer_dtype",
};

}  // namespace plimsoll
