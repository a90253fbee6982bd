// bitsandbytes' optimizers (bitsandbytes/optim/optimizer.py, 0.4x): kernels that work in place, so a step has no temporaries. 8-bit
// states are one byte an element with a scale in fp32 for every 256; tensors below 4096 elements keep fp32 states. Two tables
// of 256 numbers serve all parameters. AdEMAMix keeps a fast and a slow average in its first state, which is twice as large. Paged ones
// keep the states of tensors from 100,000 elements on in CUDA managed memory (cudaMallocManaged), which PyTorch's allocator does not
// see; scales and tables stay in it.
#include "optim/optimizers.h"
#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

constexpr int64_t kBlock = 256, kTable = 256;
constexpr int64_t kSmallestPaged = 100'000;  // get_state_buffer: p.numel() < 1e5 is not paged

// Which class: how many states, of how many bits.
struct Kind {
  int states, bits;
  bool paged = false;
  bool twofold = false;  // the first state holds two averages
};

class BitsAndBytes final : public StatefulOptimizer<Tensors> {
 public:
  BitsAndBytes(const Arguments& args, Kind kind) : kind_(kind), smallest_(args.integer("min_8bit_size", 4096)) {
    kind_.paged = kind.paged || args.flag("is_paged");
  }

  Bytes managed() const override { return managed_; }

  Tensors states() const override {
    Tensors out = tables_;
    const Tensors own = StatefulOptimizer::states();
    out.insert(out.end(), own.begin(), own.end());
    return out;
  }

 private:
  void init(Tensors& s, const Parameter& p) override {
    const Tensor& value = p.value;
    Tape& tape = value.tape();
    const bool quantised = kind_.bits == 8 && value.numel() >= smallest_;
    if (quantised && tables_.empty())
      for (int i = 0; i < kind_.states; ++i) tables_.push_back(temporary("qmap", {kTable}, DType::float32, tape));
    const DType dtype = quantised ? DType::uint8 : DType::float32;
    const bool paged = kind_.paged && value.numel() >= kSmallestPaged;
    for (int i = 0; i < kind_.states; ++i) {
      const Dims sizes = averages(i, value.sizes());
      if (paged) managed_ += Bytes{checked_mul(numel(sizes), size_of(dtype))};
      s.push_back(temporary("zeros_like", paged ? Dims{0} : sizes, dtype, tape));  // nothing in this allocator
    }
    if (!quantised) return;
    for (int i = 0; i < kind_.states; ++i)
      s.push_back(temporary("zeros", averages(i, {(value.numel() + kBlock - 1) / kBlock}), DType::float32, tape));
  }

  // Sizes of state `i` or of its scales, from those of one average.
  Dims averages(int i, Dims sizes) const {
    if (i == 0 && kind_.twofold) sizes.insert(0, 2);
    return sizes;
  }

  Kind kind_;
  int64_t smallest_;
  Tensors tables_;
  Bytes managed_;
};

std::unique_ptr<Optimizer> make(const char* name, const Config& args, Kind kind) {
  return std::make_unique<BitsAndBytes>(
      Arguments(name, args, {"betas", "eps", "weight_decay", "amsgrad", "min_8bit_size", "percentile_clipping", "block_wise", "is_paged"}),
      kind);
}

std::unique_ptr<Optimizer> make_averaging(const char* name, const Config& args, Kind kind) {
  kind.twofold = true;
  return std::make_unique<BitsAndBytes>(
      Arguments(name, args, {"betas", "alpha", "t_alpha", "t_beta3", "eps", "weight_decay", "min_8bit_size", "is_paged"}, false), kind);
}

std::unique_ptr<Optimizer> make_bnb_rmsprop(const char* name, const Config& args, int bits) {
  const Arguments a(name, args, {"alpha", "eps", "weight_decay", "momentum", "centered", "min_8bit_size"}, false);
  if (a.flag("centered"))
    a.refuse("centered true is refused by bitsandbytes: a NotImplementedError", "leave centered out, or take RMSprop");
  return std::make_unique<BitsAndBytes>(a, Kind{1, bits});
}

}  // namespace

std::unique_ptr<Optimizer> make_adam8bit(const Config& args) { return make("Adam8bit", args, {2, 8}); }
std::unique_ptr<Optimizer> make_adamw8bit(const Config& args) { return make("AdamW8bit", args, {2, 8}); }
std::unique_ptr<Optimizer> make_adamw32bit(const Config& args) { return make("AdamW32bit", args, {2, 32}); }
std::unique_ptr<Optimizer> make_ademamix(const Config& args) { return make_averaging("AdEMAMix", args, {2, 32}); }
std::unique_ptr<Optimizer> make_ademamix8bit(const Config& args) { return make_averaging("AdEMAMix8bit", args, {2, 8}); }
std::unique_ptr<Optimizer> make_lion(const Config& args) { return make("Lion", args, {1, 32}); }
std::unique_ptr<Optimizer> make_lion8bit(const Config& args) { return make("Lion8bit", args, {1, 8}); }
std::unique_ptr<Optimizer> make_paged_adamw(const Config& args) { return make("PagedAdamW", args, {2, 32, true}); }
std::unique_ptr<Optimizer> make_paged_adamw32bit(const Config& args) { return make("PagedAdamW32bit", args, {2, 32, true}); }
std::unique_ptr<Optimizer> make_paged_adamw8bit(const Config& args) { return make("PagedAdamW8bit", args, {2, 8, true}); }
std::unique_ptr<Optimizer> make_paged_ademamix(const Config& args) { return make_averaging("PagedAdEMAMix", args, {2, 32, true}); }
std::unique_ptr<Optimizer> make_paged_ademamix8bit(const Config& args) { return make_averaging("PagedAdEMAMix8bit", args, {2, 8, true}); }
std::unique_ptr<Optimizer> make_paged_lion(const Config& args) { return make("PagedLion", args, {1, 32, true}); }
std::unique_ptr<Optimizer> make_paged_lion8bit(const Config& args) { return make("PagedLion8bit", args, {1, 8, true}); }
std::unique_ptr<Optimizer> make_rmsprop32bit(const Config& args) { return make_bnb_rmsprop("RMSprop32bit", args, 32); }
std::unique_ptr<Optimizer> make_rmsprop8bit(const Config& args) { return make_bnb_rmsprop("RMSprop8bit", args, 8); }

}  // namespace plimsoll
