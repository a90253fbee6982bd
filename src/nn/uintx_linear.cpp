#include "nn/uintx_linear.h"

#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kUintxGroup = 64;  // UIntXQuantizer: group_size

// Codes are cut into shards of 4, 2 and 1 bits, each packed into bytes of its own.
std::vector<int64_t> shards_of(int bits) {
  std::vector<int64_t> out;
  for (int width : {4, 2, 1})
    if (bits & width) out.push_back(width);
  return out;
}

int64_t shard_bytes(int64_t codes, int64_t width) { return (codes + 8 / width - 1) / (8 / width); }

class UIntX final : public QuantizedWeight {
 public:
  UIntX(Build& build, int bits, const PackedWeight& w)
      : weight_(w),
        bits_(bits),
        scale_(filled(build.tape, "uintx_scale", {w.out, w.in / kUintxGroup}, w.dtype)),
        zero_point_(filled(build.tape, "uintx_zero_point", {w.out, w.in / kUintxGroup}, DType::uint8)) {}

  int bits() const override { return bits_; }
  bool has_own_adapter() const override { return false; }

  Tensor multiply(const Tensor& x, const Tensor& bias) const override {
    Tensor weight;  // (out, in)
    {
      GradGuard no_grad(x.tape(), false);
      weight = to(unpacked(), x.dtype());
    }
    return linear(x, weight, bias);
  }

  // _dequantize_native
  Tensor unpacked() const override {
    Tape& tape = weight_.packed.tape();
    const Tensor codes = unpack();
    const Tensor weight = filled(tape, "_to_copy", {weight_.out, weight_.in}, weight_.dtype);
    filled(tape, "_to_copy", zero_point_.sizes(), weight_.dtype);
    return weight;
  }

 private:
  // unpack_uintx: the first shard becomes the result, the others are added to it.
  Tensor unpack() const {
    Tensor out, values;
    for (int64_t width : shards_of(bits_)) {
      Op op(weight_.packed.tape(), "bitwise_right_shift", {});
      op.reads(weight_.packed);
      values = empty(weight_.packed.tape(), {8 / width, shard_bytes(checked_mul(weight_.out, weight_.in), width)}, DType::uint8);
      if (!out) out = values;
    }
    return out;
  }

  PackedWeight weight_;
  int bits_;
  Tensor scale_, zero_point_;
};

}  // namespace

int uintx_bits(const QuantizationSettings& settings) { return settings.type.starts_with("uint") ? settings.type.back() - '0' : 0; }

bool takes_uintx(int64_t in) { return in % kUintxGroup == 0; }

int64_t uintx_bytes(int bits, int64_t out, int64_t in) {
  int64_t bytes = 0;
  for (int64_t width : shards_of(bits)) bytes += shard_bytes(checked_mul(out, in), width);
  return bytes;
}

std::unique_ptr<QuantizedWeight> make_uintx_weight(Build& build, int bits, const PackedWeight& weight) {
  return std::make_unique<UIntX>(build, bits, weight);
}

}  // namespace plimsoll
