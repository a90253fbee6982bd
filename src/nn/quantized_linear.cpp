#include "nn/quantized_linear.h"

#include "job/packed_storage.h"
#include "nn/uintx_linear.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kBlock = 64;         // bitsandbytes 0.49, functional.quantize_4bit: weights per scale
constexpr int64_t kNestedBlock = 256;  // the same: scales per scale of scales
constexpr int64_t kCode = 16;          // get_4bit_type: the values that 4 bits stand for
constexpr int64_t kNestedCode = 256;   // create_dynamic_map: those of 8 bits

// Before 0.43.2 (July 2024) MatMul4Bit kept its input in a plain attribute, which lives as long as the graph (bitsandbytes pull 1270). The
// version is taken by that of PyTorch: this one came out the day after.
constexpr Version kWithoutInput{2, 4};

int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

Tensor allocation(Tape& tape, const char* op, const Dims& sizes, DType dtype) { return filled(tape, op, sizes, dtype); }

// Linear4bit.forward and Linear8bitLt.forward: bias.data = bias.data.to(x.dtype), for good.
void take_type(const Tensor& bias, DType dtype) {
  if (!bias || bias.dtype() == dtype) return;
  Op op(bias.tape(), "_to_copy", {});
  const Tensor cast = empty_like(bias, dtype);
  bias.body().storage = cast.body().storage;
  bias.body().dtype = dtype;
}

// grad_output.sum(0, dtype=...); the engine sums the rest.
Tensor bias_gradient(const Tensor& grad, DType dtype) {
  Dims sizes = grad.sizes();
  sizes.erase(0);
  return allocation(grad.tape(), "sum", sizes, dtype);
}

// ---- 4 bit ------------------------------------------------------------------------------------------------------------

class FourBit final : public QuantizedWeight {
 public:
  FourBit(Build& build, const QuantizationSettings& s, const PackedWeight& w)
      : weight_(w),
        nested_(s.double_quant),
        compute_(s.compute_dtype == "fp32"   ? DType::float32
                 : s.compute_dtype == "fp16" ? DType::float16
                                             : DType::bfloat16) {
    Tape& tape = build.tape;
    const int64_t blocks = blocks_of(checked_mul(w.out, w.in), kBlock);
    auto scale = [&](const Dims& sizes, DType dtype) { scales_.push_back(allocation(tape, "quant_state", sizes, dtype)); };
    scale({kCode}, DType::float32);
    scale({blocks}, nested_ ? DType::uint8 : DType::float32);  // absmax
    if (!nested_) return;
    scale({}, DType::float32);                                 // offset
    scale({blocks_of(blocks, kNestedBlock)}, DType::float32);  // state2.absmax
    scale({kNestedCode}, DType::float32);                      // state2.code, a copy for every layer
    if (!build.shared_code) build.shared_code = allocation(tape, "create_dynamic_map", {kNestedCode}, DType::float32);
  }

  int bits() const override { return 4; }
  bool is_cloned() const override { return true; }

  // bitsandbytes 0.49, nn/modules.py, Linear4bit.forward
  Tensor multiply(const Tensor& x, const Tensor& bias) const override {
    take_type(bias, x.dtype());
    const Tensor input = to(x, compute_), shift = bias ? to(bias, compute_) : Tensor();
    const Tensor y = matmul_4bit(input, shift);
    return to(y, x.dtype());
  }

  // functional.dequantize_4bit: the scales first, when they are quantised themselves.
  Tensor unpacked() const override {
    Tape& tape = weight_.packed.tape();
    Tensor absmax;
    if (nested_) absmax = allocation(tape, "empty_like", {blocks_of(weight_.out * weight_.in, kBlock)}, DType::float32);
    Op op(tape, "empty", {});
    op.reads(weight_.packed);
    return empty(tape, {weight_.out, weight_.in}, weight_.dtype);
  }

 private:
  // autograd/_functions.py, MatMul4Bit: unpacks the weight for the product and again for the gradient; keeps the packed one.
  // From 0.50 on a kernel of its own takes products of few rows (up to 1536) without unpacking.
  Tensor matmul_4bit(const Tensor& x, const Tensor& bias) const {
    Op op(x.tape(), "MatMul4Bit", {&x, &bias});
    if (x.tape().dialect.torch < kWithoutInput) op.keep(x);
    Tensor y;  // (..., out)
    {
      GradGuard no_grad(x.tape(), false);
      const Tensor weight = cast(x.dtype());
      y = linear(x, weight, bias);
    }
    return op.finish(y, [this, dtype = bias ? bias.dtype() : x.dtype()](Tensors& g, Needs needs) {
      Tensors out(2);
      if (needs[1]) out[1] = bias_gradient(g[0], dtype);
      if (needs[0]) {
        const Tensor weight = cast(g[0].dtype());
        out[0] = matmul(g[0], weight);
      }
      return out;
    });
  }

  Tensor cast(DType dtype) const {
    const Tensor weight = unpacked();
    return to(weight, dtype);
  }

  PackedWeight weight_;
  Tensors scales_;
  bool nested_;
  DType compute_;
};

// ---- int8 -------------------------------------------------------------------------------------------------------------

class Int8 final : public QuantizedWeight {
 public:
  Int8(Build& build, const QuantizationSettings& s, const PackedWeight& w)
      : weight_(w), scb_(allocation(build.tape, "SCB", {w.out}, DType::float32)), finds_outliers_(s.threshold > 0), outliers_(s.outliers) {}

  int bits() const override { return 8; }

  // bitsandbytes 0.49, nn/modules.py, Linear8bitLt.forward
  Tensor multiply(const Tensor& x, const Tensor& bias) const override {
    take_type(bias, x.dtype());
    Op op(x.tape(), "MatMul8bitLt", {&x, &bias});
    Tensor y;  // (..., out)
    {
      GradGuard no_grad(x.tape(), false);
      const Tensor a = x.dim() == 3 ? reshape(x, {-1, x.size(-1)}) : x;  // (rows, in)
      y = forward(a, bias, op);
      if (x.dim() == 3) y = reshape(y, {x.size(0), x.size(1), weight_.out});
    }
    return op.finish(y, [this, sizes = x.sizes(), dtype = x.dtype(), bias_dtype = bias ? bias.dtype() : x.dtype()](
                            Tensors& g, Needs needs) { return backward(g[0], needs, sizes, dtype, bias_dtype); });
  }

  // functional.int8_vectorwise_dequant: A * stats * (1 / 127)
  Tensor unpacked() const override {
    const Tensor scaled = allocation(weight_.packed.tape(), "mul", {weight_.out, weight_.in}, DType::float32);
    return allocation(weight_.packed.tape(), "mul", {weight_.out, weight_.in}, DType::float32);
  }

 private:
  struct Rows {
    Tensor quantized;  // (rows, in) int8
    Tensor scales;     // (rows)
    Tensor outlier_columns;
  };

  // backends/cuda/ops.py, int8_vectorwise_quant
  Rows quantize(const Tensor& a) const {
    Tape& tape = a.tape();
    const Tensor half = to(a, DType::float16);
    Rows r;
    r.scales = allocation(tape, "empty", {a.size(0)}, DType::float32);
    r.quantized = allocation(tape, "empty", a.sizes(), DType::int8);
    if (!finds_outliers_) return r;
    Tensor large;
    {
      const Tensor magnitude = allocation(tape, "abs", a.sizes(), DType::float16);
      large = compare_scalar("ge", magnitude);
    }
    allocation(tape, "any", {}, DType::bool_);
    if (outliers_ > 0) {
      const Tensor columns = allocation(tape, "any", {a.size(1)}, DType::bool_);
      r.outlier_columns = allocation(tape, "argwhere", {outliers_}, DType::int64);
    }
    return r;
  }

  // backends/default/ops.py, int8_mixed_scaled_mm: columns with outliers are multiplied in the type of the input.
  Tensor forward(const Tensor& a, const Tensor& bias, Op& op) const {
    Tape& tape = a.tape();
    const Rows rows = quantize(a);
    Tensor sub_a, sub_b;
    if (rows.outlier_columns) {
      sub_a = allocation(tape, "index", {a.size(0), outliers_}, a.dtype());
      sub_b = columns_of_weight(a.dtype());
    }
    Tensor y = scaled_mm(a, bias);
    if (sub_b) y = allocation(tape, "addmm", y.sizes(), y.dtype());
    // autograd/_functions.py, MatMul8bitLt: ctx.tensors and ctx.tensor_states are plain attributes, so that checkpointing does not
    // see them and they live as long as the graph.
    op.keep(a);
    op.keep(sub_a);
    op.keep(rows.outlier_columns);
    return y;
  }

  Tensor columns_of_weight(DType dtype) const {
    Tape& tape = weight_.packed.tape();
    const Dims sizes{weight_.out, outliers_};
    const Tensor columns = allocation(tape, "index", sizes, DType::int8);
    Tensor wide = allocation(tape, "mul", sizes, DType::float32);
    wide = allocation(tape, "mul", sizes, DType::float32);
    return to(wide, dtype);
  }

  // int8_linear_matmul into int32, int8_mm_dequant into fp16, then the type of the input; a bias of another type is added in place.
  Tensor scaled_mm(const Tensor& a, const Tensor&) const {
    const Dims sizes{a.size(0), weight_.out};
    // Counted as a product in fp16: eight bits are at least as fast, and how much faster differs from card to card.
    a.tape().flops(2.0 * static_cast<double>(a.numel()) * static_cast<double>(weight_.out), DType::float16, Unit::matmul);
    const Tensor sums = allocation(a.tape(), "empty", sizes, DType::int32);
    const Tensor half = allocation(a.tape(), "empty_like", sizes, DType::float16);
    return to(half, a.dtype());
  }

  Tensors backward(const Tensor& grad, Needs needs, const Dims& sizes, DType dtype, DType bias_dtype) const {
    Tensors out(2);
    if (needs[1]) out[1] = bias_gradient(grad, bias_dtype);
    const Tensor g = grad.dim() == 3 ? contiguous(reshape(grad, {-1, grad.size(-1)})) : grad;
    if (!needs[0]) return out;
    const Tensor weight = allocation(g.tape(), "_to_copy", {weight_.out, weight_.in}, dtype);
    allocation(g.tape(), "mul", {weight_.out, 1}, DType::float32);
    const Tensor cast = to(g, dtype);
    out[0] = view(matmul(cast, weight), sizes);
    return out;
  }

  PackedWeight weight_;
  Tensor scb_;
  bool finds_outliers_;
  int64_t outliers_;
};

// ---- optimum-quanto ---------------------------------------------------------------------------------------------------

// optimum-quanto 0.2, tensor/weights/qbytes.py, WeightQBytesLinearFunction over library/qbytes_mm.py: the weight is widened and scaled
// for the product, and again for the gradient; the input is kept though nothing needs it. The Marlin kernel, which widens in
// registers, is taken only where quanto's CUDA extension was compiled.
class QFloat8 final : public QuantizedWeight {
 public:
  QFloat8(Build& build, const PackedWeight& w) : weight_(w), scale_(allocation(build.tape, "scale", {w.out, 1}, w.dtype)) {}

  int bits() const override { return 8; }
  bool has_own_adapter() const override { return false; }

  Tensor multiply(const Tensor& x, const Tensor& bias) const override {
    Op op(x.tape(), "WeightQBytesLinearFunction", {&x, &bias});
    Saved input = op.save(x);
    Tensor y;  // (..., out)
    {
      GradGuard no_grad(x.tape(), false);
      Dims shape = x.sizes();
      shape[-1] = weight_.out;
      y = product(reshape(x, {-1, x.size(-1)}));
      y = reshape(y, shape);
      if (bias) y = add(y, bias);
    }
    return op.finish(y, [this, input = std::move(input), dtype = bias ? bias.dtype() : x.dtype()](Tensors& g, Needs needs) {
      const Tensor x = input.unpack();
      Tensors out(2);
      if (needs[0]) {
        const Tensor weight = unpacked();
        out[0] = matmul(g[0], weight);
      }
      if (needs[1]) out[1] = allocation(g[0].tape(), "sum", {weight_.out}, dtype);
      return out;
    });
  }

  Tensor unpacked() const override {
    const Tensor wide = allocation(weight_.packed.tape(), "_to_copy", {weight_.out, weight_.in}, weight_.dtype);
    return allocation(weight_.packed.tape(), "mul", {weight_.out, weight_.in}, weight_.dtype);
  }

 private:
  Tensor product(const Tensor& rows) const {
    const Tensor activations = to(rows, weight_.dtype), weight = unpacked();
    return matmul(activations, t(weight));
  }

  PackedWeight weight_;
  Tensor scale_;
};

// ---- float8 -----------------------------------------------------------------------------------------------------------

// kohya-ss/sd-scripts, --fp8_base: model.to(float8_e4m3fn) without scales. Autocast casts the weight for every product, as it does any type
// of floating point, and keeps no copy in its cache, which is for fp32 leaves that are trained (ATen/autocast_mode.cpp, cached_cast); the
// product saves the cast for backward.
bool is_fp8(const QuantizationSettings& s) { return s.type == "fp8"; }

class Float8 final : public QuantizedWeight {
 public:
  explicit Float8(const PackedWeight& w) : weight_(w) {}

  int bits() const override { return 8; }
  bool has_own_adapter() const override { return false; }

  Tensor multiply(const Tensor& x, const Tensor& bias) const override {
    const Tensor input = to(x, weight_.dtype), weight = unpacked(), shift = bias ? to(bias, weight_.dtype) : Tensor();
    return linear(input, weight, shift);
  }

  Tensor unpacked() const override { return allocation(weight_.packed.tape(), "_to_copy", {weight_.out, weight_.in}, weight_.dtype); }

 private:
  PackedWeight weight_;
};

// ---- GPTQ -------------------------------------------------------------------------------------------------------------

constexpr int64_t kPerWord = 8;  // weights of 4 bits in an int32
constexpr int64_t kGroup = 128;  // weights of a column that share a scale: group_size of the published checkpoints

bool is_gptq(const QuantizationSettings& s) { return s.type.rfind("gptq", 0) == 0; }

// AutoGPTQ 0.7, nn_modules/qlinear: packed weights, scales and zeros of each group, and the group of each row. The Triton kernels unpack
// into fp16 for a product and again for its gradient (triton_utils/mixin.py, QuantLinearFunction); the CUDA class, whose own kernel is for
// few rows, unpacks by PyTorch's ops, and autograd keeps the result: gptq-torch.
class Gptq final : public QuantizedWeight {
 public:
  Gptq(Build& build, const QuantizationSettings& s, const PackedWeight& w) : weight_(w), keeps_(s.type == "gptq-torch") {
    const int64_t groups = blocks_of(w.in, kGroup);
    auto part = [&](const char* name, const Dims& sizes, DType dtype) { parts_.push_back(allocation(build.tape, name, sizes, dtype)); };
    part("qzeros", {groups, blocks_of(w.out, kPerWord)}, DType::int32);
    part("scales", {groups, w.out}, DType::float16);
    part("g_idx", {w.in}, DType::int32);
  }

  int bits() const override { return 4; }

  Tensor multiply(const Tensor& x, const Tensor& bias) const override {
    take_type(bias, x.dtype());
    const Tensor input = to(x, DType::float16);
    Tensor y = keeps_ ? matmul(input, by_ops()) : by_kernel(input);  // (..., out)
    y = to(y, x.dtype());
    return bias ? add(y, bias) : y;
  }

  Tensor unpacked() const override { return allocation(weight_.packed.tape(), "dequant248", {weight_.out, weight_.in}, DType::float16); }

 private:
  Tensor by_kernel(const Tensor& x) const {
    Op op(x.tape(), "QuantLinearFunction", {&x});
    Tensor y;
    {
      GradGuard no_grad(x.tape(), false);
      const Tensor weight = unpacked();
      y = matmul(x, t(weight));
    }
    return op.finish(y, [this](Tensors& g, Needs) {
      const Tensor weight = unpacked();
      return Tensors{matmul(g[0], weight)};
    });
  }

  // qlinear_cuda.py, forward: shifts in int32, values in int8, then scales and zeros of every row. (in, out)
  Tensor by_ops() const {
    Tape& tape = weight_.packed.tape();
    const Dims sizes{weight_.in, weight_.out};
    Tensor values;
    {
      const Tensor shifted = allocation(tape, "bitwise_right_shift", sizes, DType::int32);
      values = allocation(tape, "_to_copy", sizes, DType::int8);
    }
    values = allocation(tape, "bitwise_and", sizes, DType::int8);
    const Tensor scales = allocation(tape, "index", sizes, DType::float16);
    Tensor centred;
    {
      const Tensor zeros = allocation(tape, "index", sizes, DType::int8);
      centred = allocation(tape, "sub", sizes, DType::int8);
    }
    return allocation(tape, "mul", sizes, DType::float16);
  }

  PackedWeight weight_;
  bool keeps_;
  Tensors parts_;
};

}  // namespace

bool can_quantize(const QuantizationSettings& s, int64_t in) { return uintx_bits(s) == 0 || takes_uintx(in); }

Dims packed_sizes(const QuantizationSettings& s, int64_t out, int64_t in) {
  if (const int bits = uintx_bits(s)) return {uintx_bytes(bits, out, in)};
  if (is_gptq(s)) return {blocks_of(in, kPerWord), out};
  return s.bits() == 8 ? Dims{out, in} : Dims{(checked_mul(out, in) + 1) / (2 * size_of(packed_dtype(s))), 1};
}

DType packed_dtype(const QuantizationSettings& s) {
  if (is_gptq(s)) return DType::int32;
  if (const std::optional<WireType> storage = packed_storage(s))
    return *storage == WireType::bf16 ? DType::bfloat16 : *storage == WireType::fp16 ? DType::float16 : DType::float32;
  return s.bits() == 8 && uintx_bits(s) == 0 ? DType::int8 : DType::uint8;
}

std::unique_ptr<QuantizedWeight> make_quantized_weight(Build& build, const QuantizationSettings& s, const PackedWeight& w) {
  if (const int bits = uintx_bits(s)) return make_uintx_weight(build, bits, w);
  if (s.type == "qfloat8") return std::make_unique<QFloat8>(build, w);
  if (is_fp8(s)) return std::make_unique<Float8>(w);
  if (is_gptq(s)) return std::make_unique<Gptq>(build, s, w);
  if (s.bits() == 8) return std::make_unique<Int8>(build, s, w);
  return std::make_unique<FourBit>(build, s, w);
}

}  // namespace plimsoll
