#include "model/decoder/alibi.h"

#include <bit>

#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// base ** (1, 2, ...) or every second of it; both factors stay until the caller returns.
struct Powers {
  Powers(Tape& tape, int64_t n) : base(filled(tape, "empty", {}, DType::float32)), powers(arange(tape, n, DType::int32)) {}
  Tensor value() const { return nondiff("pow", powers, DType::float32); }
  Tensor base, powers;
};

}  // namespace

Tensor build_alibi_tensor(const Tensor& attention_mask, int64_t heads, DType dtype) {
  Tape& tape = attention_mask.tape();
  const int64_t batch = attention_mask.size(0), tokens = attention_mask.size(1);
  const int64_t closest_power_of_2 = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  const Powers first(tape, closest_power_of_2);
  Tensor slopes = first.value();  // (H)
  std::optional<Powers> extra;
  if (closest_power_of_2 != heads) {
    extra.emplace(tape, std::min(closest_power_of_2, heads - closest_power_of_2));
    const Tensor more = extra->value();
    slopes = cat({slopes, more}, 0);
  }
  Tensor steps;  // (B, 1, T)
  {
    Tensor count = cumsum(attention_mask, -1, attention_mask.dtype());
    count = nondiff("sub", count, attention_mask.dtype());
    steps = unsqueeze(nondiff("mul", count, attention_mask.dtype()), 1);
  }
  Tensor alibi = mul(unsqueeze(slopes, 1), steps);  // (B, H, T)
  alibi = reshape(alibi, {batch * heads, 1, tokens});
  return to(alibi, dtype);
}

}  // namespace plimsoll
