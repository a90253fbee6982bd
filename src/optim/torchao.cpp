// torchao.optim's Adam and AdamW (pytorch/ao, torchao/optim): states in blocks of 8-bit, 4-bit or fp8 codes, each with its scales in fp32
// and, where codes are an index, a table of its own; small tensors and those that no block divides keep states in the type of the
// parameter. `torchao.AdamW` is _AdamW, whose states are never quantised. The step of one parameter is compiled (torch.compile): Inductor
// fuses it, also with bf16_stochastic_round, and it is taken to allocate nothing; no recorded run has checked that.
#include <fmt/format.h>

#include "optim/stateful_optimizer.h"

namespace plimsoll {

namespace {

constexpr int64_t kSmallest = 4096;  // _new_buffer: "only quantize tensors >= 4096 values"

struct Codes {
  int64_t per_byte = 1;
  int64_t table = 0;  // entries
  int64_t block = 0;  // the default block_size; 0: states are not quantised
};
constexpr Codes k8bit{1, 256, 256}, k4bit{2, 16, 128}, kFp8{1, 0, 256}, kPlain{};

class TorchAo final : public StatefulOptimizer<Tensors> {
 public:
  TorchAo(const Arguments& args, Codes codes) : codes_(codes), states_each_(args.flag("amsgrad") ? 3 : 2) {
    if (codes.block == 0) return;
    codes_.block = args.size("block_size");
    if (codes_.block % codes.per_byte != 0)
      args.refuse(fmt::format("block_size {} is odd, and two codes share a byte", codes_.block), "take an even one; the default is 128");
  }

 private:
  void init(Tensors& s, const Parameter& p) override {
    for (int k = 0; k < states_each_; ++k) add_state(s, p.value);
  }

  void add_state(Tensors& s, const Tensor& value) const {
    const ScopeGuard module(value.tape(), value.tape().scope_of(value));
    const int64_t n = value.numel();
    if (codes_.block == 0 || n < kSmallest || n % codes_.block != 0) {
      s.push_back(zeros_like(value));
      return;
    }
    s.push_back(temporary("zeros", {n / codes_.per_byte}, DType::uint8, value.tape()));
    s.push_back(temporary("zeros", {n / codes_.block}, DType::float32, value.tape()));
    if (codes_.table > 0) s.push_back(temporary("tensor", {codes_.table}, DType::float32, value.tape()));
  }

  Codes codes_;
  int states_each_;
};

template <Codes codes>
std::unique_ptr<Optimizer> with_codes(const Arguments& args) {
  return std::make_unique<TorchAo>(args, codes);
}

template <Codes codes>
OptimizerEntry torchao(const char* name, const char* keeps, double weight_decay, std::vector<TransformersName> transformers = {}) {
  OptimizerEntry entry{.name = name,
                       .library = "torchao",
                       .keeps = keeps,
                       .make = with_codes<codes>,
                       .arguments = {{"betas", {0.9, 0.999}}, {"eps", 1e-8}, {"weight_decay", weight_decay}, {"amsgrad", false}},
                       .transformers = std::move(transformers)};
  if (codes.block > 0) entry.arguments.push_back({"block_size", static_cast<int>(codes.block)});
  entry.arguments.push_back({"bf16_stochastic_round", false});
  return entry;
}

constexpr const char* kBytes = "2 bytes a parameter and 2 scales for every 256";
constexpr const char* kHalfBytes = "2 half bytes a parameter and 2 scales for every 128";

}  // namespace

extern const OptimizerEntry kTorchAoAdamW = torchao<kPlain>("torchao.AdamW", "2 states a parameter", 1e-2);
extern const OptimizerEntry kTorchAoAdamW8bit = torchao<k8bit>("torchao.AdamW8bit", kBytes, 1e-2, {{"adamw_torch_8bit"}});
extern const OptimizerEntry kTorchAoAdamW4bit = torchao<k4bit>("torchao.AdamW4bit", kHalfBytes, 1e-2, {{"adamw_torch_4bit"}});
extern const OptimizerEntry kTorchAoAdamWFp8 = torchao<kFp8>("torchao.AdamWFp8", kBytes, 1e-2);
extern const OptimizerEntry kTorchAoAdam8bit = torchao<k8bit>("torchao.Adam8bit", kBytes, 0);
extern const OptimizerEntry kTorchAoAdam4bit = torchao<k4bit>("torchao.Adam4bit", kHalfBytes, 0);
extern const OptimizerEntry kTorchAoAdamFp8 = torchao<kFp8>("torchao.AdamFp8", kBytes, 0);

}  // namespace plimsoll
