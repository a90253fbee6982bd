// torchao.optim's Adam and AdamW (pytorch/ao, torchao/optim): states in blocks of 8-bit, 4-bit or fp8 codes, each with its scales in fp32
// and, where codes are an index, a table of its own; small tensors and those that no block divides keep states in the type of the
// parameter. `torchao.AdamW` is _AdamW, whose states are never quantised. The step of one parameter is compiled (torch.compile): Inductor
// fuses it, also with bf16_stochastic_round, and it is taken to allocate nothing; no recorded run has checked that.
#include <fmt/format.h>

#include "optim/optimizers.h"
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
    codes_.block = args.size("block_size", codes.block);
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

std::unique_ptr<Optimizer> make(const char* name, const Config& args, Codes codes) {
  return std::make_unique<TorchAo>(
      Arguments(name, args, {"betas", "eps", "weight_decay", "amsgrad", "block_size", "bf16_stochastic_round"}, false), codes);
}

}  // namespace

std::unique_ptr<Optimizer> make_torchao_adamw(const Config& args) {
  return std::make_unique<TorchAo>(
      Arguments("torchao.AdamW", args, {"betas", "eps", "weight_decay", "amsgrad", "bf16_stochastic_round"}, false), kPlain);
}
std::unique_ptr<Optimizer> make_torchao_adamw8bit(const Config& args) { return make("torchao.AdamW8bit", args, k8bit); }
std::unique_ptr<Optimizer> make_torchao_adamw4bit(const Config& args) { return make("torchao.AdamW4bit", args, k4bit); }
std::unique_ptr<Optimizer> make_torchao_adamwfp8(const Config& args) { return make("torchao.AdamWFp8", args, kFp8); }
std::unique_ptr<Optimizer> make_torchao_adam8bit(const Config& args) { return make("torchao.Adam8bit", args, k8bit); }
std::unique_ptr<Optimizer> make_torchao_adam4bit(const Config& args) { return make("torchao.Adam4bit", args, k4bit); }
std::unique_ptr<Optimizer> make_torchao_adamfp8(const Config& args) { return make("torchao.AdamFp8", args, kFp8); }

}  // namespace plimsoll
