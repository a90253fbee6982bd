// bitsandbytes' optimizers (bitsandbytes/optim/optimizer.py, 0.4x): kernels that work in place, so a step has no temporaries. 8-bit
// states are one byte an element with a scale in fp32 for every 256; tensors below 4096 elements keep fp32 states. Two tables
// of 256 numbers serve all parameters. AdEMAMix keeps a fast and a slow average in its first state, which is twice as large. Paged ones
// keep the states of tensors from 100,000 elements on in CUDA managed memory (cudaMallocManaged), which PyTorch's allocator does not
// see; scales and tables stay in it.
#include <string_view>

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
  BitsAndBytes(const Arguments& args, Kind kind) : kind_(kind), smallest_(args.integer("min_8bit_size")) {
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

template <Kind kind>
std::unique_ptr<Optimizer> of_kind(const Arguments& args) {
  return std::make_unique<BitsAndBytes>(args, kind);
}

using Names = std::vector<TransformersName>;

template <Kind kind>
OptimizerEntry adam_or_lion(const char* name, const char* keeps, Names transformers = {}) {
  const bool lion = kind.states == 1;
  return {.name = name,
          .library = "bitsandbytes",
          .keeps = keeps,
          .make = of_kind<kind>,
          .arguments = {{"betas", {0.9, lion ? 0.99 : 0.999}},
                        {"eps", 1e-8},
                        {"weight_decay", lion || std::string_view(name) == "Adam8bit" ? 0 : 1e-2},
                        {"amsgrad", false},
                        {"min_8bit_size", 4096},
                        {"percentile_clipping", 100},
                        {"block_wise", true},
                        {"is_paged", kind.paged},
                        {"maximize", false}},
          .transformers = std::move(transformers)};
}

template <Kind kind>
OptimizerEntry ademamix(const char* name, const char* keeps, Names transformers) {
  return {.name = name,
          .library = "bitsandbytes",
          .keeps = keeps,
          .make = of_kind<kind>,
          .arguments = {{"betas", {0.9, 0.999, 0.9999}},
                        {"alpha", 5.0},
                        {"t_alpha"},
                        {"t_beta3"},
                        {"eps", 1e-8},
                        {"weight_decay", 1e-2},
                        {"min_8bit_size", 4096},
                        {"is_paged", kind.paged}},
          .transformers = std::move(transformers)};
}

template <Kind kind>
std::unique_ptr<Optimizer> make_bnb_rmsprop(const Arguments& args) {
  if (args.flag("centered"))
    args.refuse("centered true is refused by bitsandbytes: a NotImplementedError", "leave centered out, or take RMSprop");
  return of_kind<kind>(args);
}

template <Kind kind>
OptimizerEntry bnb_rmsprop(const char* name, const char* keeps, Names transformers) {
  return {.name = name,
          .library = "bitsandbytes",
          .keeps = keeps,
          .make = make_bnb_rmsprop<kind>,
          .arguments = {{"alpha", 0.99}, {"eps", 1e-8}, {"weight_decay", 0}, {"momentum", 0}, {"centered", false}, {"min_8bit_size", 4096}},
          .transformers = std::move(transformers)};
}

constexpr Kind kTwo8{2, 8}, kTwo32{2, 32}, kOne8{1, 8}, kOne32{1, 32};
constexpr Kind kPagedTwo8{2, 8, true}, kPagedTwo32{2, 32, true}, kPagedOne8{1, 8, true}, kPagedOne32{1, 32, true};
constexpr Kind kTwofold8{2, 8, false, true}, kTwofold32{2, 32, false, true};
constexpr Kind kPagedTwofold8{2, 8, true, true}, kPagedTwofold32{2, 32, true, true};

}  // namespace

extern const OptimizerEntry kAdamW8bit =
    adam_or_lion<kTwo8>("AdamW8bit", "2 bytes a parameter and 2 scales for every 256", {{"adamw_bnb_8bit"}, {"adamw_8bit"}});
extern const OptimizerEntry kAdam8bit = adam_or_lion<kTwo8>("Adam8bit", "2 bytes a parameter and 2 scales for every 256");
extern const OptimizerEntry kAdamW32bit = adam_or_lion<kTwo32>("AdamW32bit", "2 fp32 states a parameter");
extern const OptimizerEntry kLion = adam_or_lion<kOne32>("Lion", "1 fp32 state a parameter", {{"lion_32bit"}});
extern const OptimizerEntry kLion8bit = adam_or_lion<kOne8>("Lion8bit", "1 byte a parameter and 1 scale for every 256", {{"lion_8bit"}});
extern const OptimizerEntry kPagedAdamW = adam_or_lion<kPagedTwo32>("PagedAdamW", "as AdamW32bit, in managed memory");
extern const OptimizerEntry kPagedAdamW32bit =
    adam_or_lion<kPagedTwo32>("PagedAdamW32bit", "as AdamW32bit, in managed memory", {{"paged_adamw_32bit"}});
extern const OptimizerEntry kPagedAdamW8bit =
    adam_or_lion<kPagedTwo8>("PagedAdamW8bit", "as AdamW8bit, in managed memory but for the scales", {{"paged_adamw_8bit"}});
extern const OptimizerEntry kPagedLion = adam_or_lion<kPagedOne32>("PagedLion", "as Lion, in managed memory", {{"paged_lion_32bit"}});
extern const OptimizerEntry kPagedLion8bit =
    adam_or_lion<kPagedOne8>("PagedLion8bit", "as Lion8bit, in managed memory but for the scales", {{"paged_lion_8bit"}});
extern const OptimizerEntry kAdEMAMix = ademamix<kTwofold32>("AdEMAMix", "3 fp32 states a parameter", {{"ademamix"}});
extern const OptimizerEntry kAdEMAMix8bit =
    ademamix<kTwofold8>("AdEMAMix8bit", "3 bytes a parameter and 3 scales for every 256", {{"ademamix_8bit"}});
extern const OptimizerEntry kPagedAdEMAMix =
    ademamix<kPagedTwofold32>("PagedAdEMAMix", "as AdEMAMix, in managed memory", {{"paged_ademamix_32bit"}});
extern const OptimizerEntry kPagedAdEMAMix8bit =
    ademamix<kPagedTwofold8>("PagedAdEMAMix8bit", "as AdEMAMix8bit, in managed memory but for the scales", {{"paged_ademamix_8bit"}});
extern const OptimizerEntry kRmsProp32bit =
    bnb_rmsprop<kOne32>("RMSprop32bit", "1 fp32 state a parameter", {{"rmsprop_bnb"}, {"rmsprop_bnb_32bit"}});
extern const OptimizerEntry kRmsProp8bit =
    bnb_rmsprop<kOne8>("RMSprop8bit", "1 byte a parameter and 1 scale for every 256", {{"rmsprop_bnb_8bit"}});

}  // namespace plimsoll
