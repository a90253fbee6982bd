// bitsandbytes' optimizers (bitsandbytes/optim/optimizer.py, 0.4x): kernels that work in place, so a step has no temporaries. 8-bit
// states are one byte an element with a scale in fp32 for every 256; tensors below 4096 elements keep fp32 states. Two tables
// of 256 numbers serve all parameters.
#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

constexpr int64_t kBlock = 256, kTable = 256;

class BitsAndBytes final : public Optimizer {
 public:
  BitsAndBytes(const Arguments& args, int states, int bits)
      : states_each_(states), bits_(bits), smallest_(static_cast<int64_t>(args.number("min_8bit_size", 4096))) {
    if (args.flag("is_paged"))
      args.refuse("is_paged: states in managed memory are not simulated", "leave is_paged out: without pressure they lie on the device");
  }

  void step(const std::vector<Parameter*>& all) override {
    states_.resize(all.size());
    for (size_t i : with_gradients(all))
      if (states_[i].empty()) init(states_[i], all[i]->value);
  }

  Tensors states() const override {
    Tensors out = tables_;
    for (const Tensors& s : states_) out.insert(out.end(), s.begin(), s.end());
    return out;
  }

 private:
  void init(Tensors& s, const Tensor& value) {
    Tape& tape = value.tape();
    const bool quantised = bits_ == 8 && value.numel() >= smallest_;
    if (quantised && tables_.empty())
      for (int i = 0; i < states_each_; ++i) tables_.push_back(temporary("qmap", {kTable}, DType::float32, tape));
    for (int i = 0; i < states_each_; ++i)
      s.push_back(temporary("zeros_like", value.sizes(), quantised ? DType::uint8 : DType::float32, tape));
    if (!quantised) return;
    for (int i = 0; i < states_each_; ++i) s.push_back(temporary("zeros", {(value.numel() + kBlock - 1) / kBlock}, DType::float32, tape));
  }

  int states_each_, bits_;
  int64_t smallest_;
  Tensors tables_;
  std::vector<Tensors> states_;  // by position in the parameter list
};

std::unique_ptr<Optimizer> make(const char* name, const Config& args, int states, int bits) {
  return std::make_unique<BitsAndBytes>(
      Arguments(name, args, {"betas", "eps", "weight_decay", "amsgrad", "min_8bit_size", "percentile_clipping", "block_wise", "is_paged"}),
      states, bits);
}

}  // namespace

std::unique_ptr<Optimizer> make_adam8bit(const Config& args) { return make("Adam8bit", args, 2, 8); }
std::unique_ptr<Optimizer> make_adamw8bit(const Config& args) { return make("AdamW8bit", args, 2, 8); }
std::unique_ptr<Optimizer> make_adamw32bit(const Config& args) { return make("AdamW32bit", args, 2, 32); }
std::unique_ptr<Optimizer> make_lion(const Config& args) { return make("Lion", args, 1, 32); }
std::unique_ptr<Optimizer> make_lion8bit(const Config& args) { return make("Lion8bit", args, 1, 8); }

}  // namespace plimsoll
