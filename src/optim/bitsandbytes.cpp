// bitsandbytes' optimizers (bitsandbytes/optim/optimizer.py, 0.4x): kernels that work in place, so a step has no temporaries. 8-bit
// states are one byte an element with a scale in fp32 for every 256; tensors below 4096 elements keep fp32 states. Two tables
// of 256 numbers serve all parameters. Paged ones keep the states of tensors from 100,000 elements on in CUDA managed memory
// (cudaMallocManaged), which PyTorch's allocator does not see; scales and tables stay in it.
#include "optim/arguments.h"
#include "optim/foreach.h"
#include "optim/optimizers.h"

namespace plimsoll {

namespace {

constexpr int64_t kBlock = 256, kTable = 256;
constexpr int64_t kSmallestPaged = 100'000;  // get_state_buffer: p.numel() < 1e5 is not paged

class BitsAndBytes final : public Optimizer {
 public:
  BitsAndBytes(const Arguments& args, int states, int bits, bool paged)
      : states_each_(states), bits_(bits), paged_(paged || args.flag("is_paged")), smallest_(args.integer("min_8bit_size", 4096)) {}

  void step(const std::vector<Parameter*>& all) override {
    states_.resize(all.size());
    for (size_t i : with_gradients(all))
      if (states_[i].empty()) init(states_[i], all[i]->value);
  }

  Bytes managed() const override { return managed_; }

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
    const DType dtype = quantised ? DType::uint8 : DType::float32;
    const bool paged = paged_ && value.numel() >= kSmallestPaged;
    for (int i = 0; i < states_each_; ++i) {
      if (paged) managed_ += Bytes{checked_mul(value.numel(), size_of(dtype))};
      s.push_back(temporary("zeros_like", paged ? Dims{0} : value.sizes(), dtype, tape));  // nothing in this allocator
    }
    if (!quantised) return;
    for (int i = 0; i < states_each_; ++i) s.push_back(temporary("zeros", {(value.numel() + kBlock - 1) / kBlock}, DType::float32, tape));
  }

  int states_each_, bits_;
  bool paged_;
  int64_t smallest_;
  Tensors tables_;
  Bytes managed_;
  std::vector<Tensors> states_;  // by position in the parameter list
};

std::unique_ptr<Optimizer> make(const char* name, const Config& args, int states, int bits, bool paged = false) {
  return std::make_unique<BitsAndBytes>(
      Arguments(name, args, {"betas", "eps", "weight_decay", "amsgrad", "min_8bit_size", "percentile_clipping", "block_wise", "is_paged"}),
      states, bits, paged);
}

}  // namespace

std::unique_ptr<Optimizer> make_adam8bit(const Config& args) { return make("Adam8bit", args, 2, 8); }
std::unique_ptr<Optimizer> make_adamw8bit(const Config& args) { return make("AdamW8bit", args, 2, 8); }
std::unique_ptr<Optimizer> make_adamw32bit(const Config& args) { return make("AdamW32bit", args, 2, 32); }
std::unique_ptr<Optimizer> make_lion(const Config& args) { return make("Lion", args, 1, 32); }
std::unique_ptr<Optimizer> make_lion8bit(const Config& args) { return make("Lion8bit", args, 1, 8); }
std::unique_ptr<Optimizer> make_paged_adamw(const Config& args) { return make("PagedAdamW", args, 2, 32, true); }
std::unique_ptr<Optimizer> make_paged_adamw32bit(const Config& args) { return make("PagedAdamW32bit", args, 2, 32, true); }
std::unique_ptr<Optimizer> make_paged_adamw8bit(const Config& args) { return make("PagedAdamW8bit", args, 2, 8, true); }
std::unique_ptr<Optimizer> make_paged_lion(const Config& args) { return make("PagedLion", args, 1, 32, true); }
std::unique_ptr<Optimizer> make_paged_lion8bit(const Config& args) { return make("PagedLion8bit", args, 1, 8, true); }

}  // namespace plimsoll
