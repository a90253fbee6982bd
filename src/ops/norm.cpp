#include "ops/norm.h"

#include "ops/autocast.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "tensor/iterator.h"

namespace plimsoll {

namespace {
// Statistics are accumulated and kept in fp32, whatever the input is.
DType stat_type(const Tensor& x) { return x.dtype() == DType::float64 ? DType::float64 : DType::float32; }

// Backward reads gradient and input for the input's gradient, and again for the weight's sums.
void count_reads(const Op& op, const Tensor& x, const Tensor& grad, bool sums) {
  for (int i = 0; i < (sums ? 2 : 1); ++i) {
    op.reads(x);
    op.reads(grad);
  }
}

// Backward's contiguous copies of input and gradient, by rule `copies_strided_operands`.
std::vector<Ref<Storage>> contiguous_copies(const Tensor& x, const Tensor& grad) {
  std::vector<Ref<Storage>> copies;
  if (!x.tape().dialect.rules.copies_strided_operands) return copies;
  for (const Tensor* t : {&x, &grad})
    if (!t->is_contiguous()) copies.push_back(x.tape().allocate(checked_mul(t->numel(), size_of(t->dtype()))));
  return copies;
}

// The strides of layer_norm's input gradient. CUDA's kernel makes it contiguous. The recorder computes it with element-wise
// ops, grad_in = rstd * (a(grad, weight) - b - x_hat * c), so the layouts of grad and input shine through; half types are
// made contiguous by the cast to fp32.
Dims layer_norm_grad_strides(const Tensor& grad, const Tensor& x, const Tensor& rstd, const Tensor& weight) {
  const Dims& sizes = x.sizes();
  const Dims contiguous = contiguous_strides(sizes);
  if (!x.tape().dialect.recorder || is_half(x.dtype())) return contiguous;
  auto laid_out = [&](const Dims& strides) { return alias(x, sizes, strides); };
  auto as_contiguous_format = [&](const Tensor& t) {
    return laid_out(is_channels_last(t.sizes(), t.strides()) ? contiguous : t.strides());
  };
  auto combine = [&](const Tensor& a, const Tensor& b) { return laid_out(iterator_strides(sizes, {&a, &b})); };
  const Tensor x_hat = combine(combine(as_contiguous_format(x), rstd), rstd);
  const Tensor scaled = combine(as_contiguous_format(grad), weight);
  const Tensor inner = combine(combine(scaled, rstd), combine(x_hat, rstd));
  return iterator_strides(sizes, {&rstd, &inner});
}
}  // namespace

// saves input, weight, and the mean and reciprocal deviation of every row. On autocast's fp32 list.
Tensor layer_norm(const Tensor& input, int normalized_dims, const Tensor& weight_in, const Tensor& bias_in) {
  const Tensor bias = autocast_fp32(bias_in), weight = autocast_fp32(weight_in), x = autocast_fp32(input);
  Tape& tape = x.tape();
  Op op(tape, "native_layer_norm", {&x, &weight, &bias});
  Saved saved_bias = op.save(bias), saved_x = op.save(x), saved_weight = op.save(weight);
  Ref<Storage> copy;
  if (tape.dialect.rules.copies_strided_operands && !x.is_contiguous()) copy = tape.allocate(checked_mul(x.numel(), size_of(x.dtype())));
  Tensor y = empty(tape, x.sizes(), x.dtype());
  Dims rows;
  for (int i = 0; i < x.dim(); ++i) rows.push_back(i < x.dim() - normalized_dims ? x.size(i) : 1);
  const Tensor m = empty(tape, rows, stat_type(x)), r = empty(tape, rows, stat_type(x));
  Saved mean = op.save(m), rstd = op.save(r);
  return op.finish(y, [saved_x = std::move(saved_x), saved_weight = std::move(saved_weight), saved_bias = std::move(saved_bias),
                       mean = std::move(mean), rstd = std::move(rstd)](Tensors& g, Needs needs) {
    const Tensor b = saved_bias.defined() ? saved_bias.unpack() : Tensor();
    const Tensor x = saved_x.unpack();
    const Tensor w = saved_weight.defined() ? saved_weight.unpack() : Tensor();
    const Tensor m = mean.unpack(), r = rstd.unpack();
    Op op(x.tape(), "native_layer_norm_backward", {});
    count_reads(op, x, g[0], needs[1]);
    const auto copies = contiguous_copies(x, g[0]);
    Tensors out(3);
    if (needs[0]) out[0] = empty_strided(x.tape(), x.sizes(), layer_norm_grad_strides(g[0], x, r, w), x.dtype());
    if (needs[1]) out[1] = empty(x.tape(), w.sizes(), w.dtype());
    if (needs[2]) out[2] = empty(x.tape(), b.sizes(), b.dtype());
    if (x.tape().dialect.rules.layer_norm_sums_by_thread && needs[1]) x.tape().allocate(2 * checked_mul(w.numel(), size_of(stat_type(x))));
    return out;
  });
}

// _fused_rms_norm: saves input, weight, and the reciprocal deviation of every row. On autocast's fp32 list.
Tensor rms_norm(const Tensor& input, const Tensor& weight_in) {
  const Tensor weight = autocast_fp32(weight_in), x = autocast_fp32(input);
  Tape& tape = x.tape();
  Op op(tape, "_fused_rms_norm", {&x, &weight});
  Saved saved_x = op.save(x), saved_weight = op.save(weight);
  Tensor y = empty(tape, x.sizes(), x.dtype());
  Dims rows = x.sizes();
  rows[-1] = 1;
  const Tensor r = empty(tape, rows, stat_type(x));
  Saved rstd = op.save(r);
  return op.finish(y,
                   [saved_x = std::move(saved_x), saved_weight = std::move(saved_weight), rstd = std::move(rstd)](Tensors& g, Needs needs) {
                     const Tensor x = saved_x.unpack();
                     const Tensor w = saved_weight.defined() ? saved_weight.unpack() : Tensor();
                     const Tensor r = rstd.unpack();
                     Op op(x.tape(), "_fused_rms_norm_backward", {});
                     count_reads(op, x, g[0], needs[1]);
                     Tensors out(2);
                     if (needs[0]) out[0] = empty_strided(x.tape(), x.sizes(), layer_norm_grad_strides(g[0], x, r, w), x.dtype());
                     if (needs[1]) out[1] = empty(x.tape(), w.sizes(), x.dtype());
                     return out;
                   });
}

// saves input, weight, and the statistics of every group, which are in the input's type unless its weight is in another
// (native/group_norm.cpp); result and gradient are contiguous. On autocast's fp32 list.
Tensor group_norm(const Tensor& input, int64_t groups, const Tensor& weight_in, const Tensor& bias_in) {
  const Tensor bias = autocast_fp32(bias_in), weight = autocast_fp32(weight_in), x = autocast_fp32(input);
  Tape& tape = x.tape();
  Op op(tape, "native_group_norm", {&x, &weight, &bias});
  Saved saved_x = op.save(x), saved_weight = op.save(weight);
  const bool channels_last =
      tape.dialect.rules.group_norm_keeps_channels_last && !x.is_contiguous() && is_channels_last(x.sizes(), x.strides());
  Tensor y =
      channels_last ? empty_strided(tape, x.sizes(), channels_last_strides(x.sizes()), x.dtype()) : empty(tape, x.sizes(), x.dtype());
  const DType statistics = weight && weight.dtype() != x.dtype() ? DType::float32 : x.dtype();
  const Tensor m = empty(tape, {x.size(0), groups}, statistics), r = empty(tape, {x.size(0), groups}, statistics);
  if (channels_last) tape.allocate(checked_mul(2 * x.size(0), checked_mul(x.size(1), size_of(stat_type(x)))));
  Saved mean = op.save(m), rstd = op.save(r);
  return op.finish(y, [saved_x = std::move(saved_x), saved_weight = std::move(saved_weight), mean = std::move(mean), rstd = std::move(rstd),
                       channels = x.size(1)](Tensors& g, Needs needs) {
    const Tensor x = saved_x.unpack();
    const Tensor w = saved_weight.defined() ? saved_weight.unpack() : Tensor();
    const Tensor m = mean.unpack(), r = rstd.unpack();
    Op op(x.tape(), "native_group_norm_backward", {});
    count_reads(op, x, g[0], needs[1]);
    const auto copies = contiguous_copies(x, g[0]);
    Tensors out(3);
    if (needs[0]) out[0] = empty(x.tape(), x.sizes(), x.dtype());
    const DType dtype = w ? w.dtype() : x.dtype();
    if (needs[1]) out[1] = empty(x.tape(), {channels}, dtype);
    if (needs[2]) out[2] = empty(x.tape(), {channels}, dtype);
    if (x.tape().dialect.rules.group_norm_sums_by_channel) {
      const int64_t bytes = checked_mul(checked_mul(x.size(0), channels), size_of(stat_type(x)));
      const Ref<Storage> ds = x.tape().allocate(bytes), db = x.tape().allocate(bytes);
    }
    return out;
  });
}

namespace {
// What batch norm takes beside its results where the rules say so.
void two_a_channel(const Tensor& x, DType dtype) {
  if (!x.tape().dialect.rules.batch_norm_channel_buffers) return;
  const int64_t bytes = checked_mul(x.size(1), size_of(dtype));
  const Ref<Storage> first = x.tape().allocate(bytes), second = x.tape().allocate(bytes);
}

// native_batch_norm with batch statistics: saves input, weight, and the mean and reciprocal deviation of every channel (and
// the running statistics, which are buffers and live anyway). On no autocast list: half inputs meet fp32 weights.
Tensor normalise_batch(const Tensor& x, const Tensor& weight, const Tensor& bias, const RunningStatistics& running) {
  Tape& tape = x.tape();
  if (x.numel() == x.size(1))
    throw Error("[batch_norm] one value per channel in " + to_string(x.sizes()) + ": no statistics to train on",
                "use a larger batch or larger images");
  Op op(tape, "native_batch_norm", {&x, &weight, &bias});
  op.reads(x);  // for the statistics, then to normalise
  Saved saved_x = op.save(x), saved_weight = op.save(weight);
  Saved running_mean = op.save(running.mean), running_var = op.save(running.var);
  Tensor y, m, r;
  const bool statistics_first = tape.dialect.rules.batch_norm_statistics_first;
  const auto statistics = [&] {
    const DType dtype = statistics_first ? x.dtype() : stat_type(x);
    m = empty(tape, {x.size(1)}, dtype);
    r = empty(tape, {x.size(1)}, dtype);
    two_a_channel(x, dtype);
  };
  if (statistics_first) statistics();
  y = empty_like(x);
  if (!statistics_first) statistics();
  two_a_channel(x, stat_type(x));
  Saved mean = op.save(m), invstd = op.save(r);
  return op.finish(y, [saved_x = std::move(saved_x), saved_weight = std::move(saved_weight), running_mean = std::move(running_mean),
                       running_var = std::move(running_var), mean = std::move(mean), invstd = std::move(invstd)](Tensors& g, Needs needs) {
    const Tensor x = saved_x.unpack();
    const Tensor w = saved_weight.defined() ? saved_weight.unpack() : Tensor();
    const Tensor unused[] = {running_mean.unpack(), running_var.unpack()};
    const Tensor m = mean.unpack(), r = invstd.unpack();
    const DType dtype = w ? w.dtype() : x.dtype();
    Op op(x.tape(), "native_batch_norm_backward", {});
    count_reads(op, x, g[0], true);
    Tensors out(3);
    if (needs[0]) out[0] = empty_like(x);
    if (needs[0] && x.tape().dialect.rules.batch_norm_makes_products) x.tape().allocate(x.storage().bytes);
    if (needs[1]) out[1] = empty(x.tape(), {x.size(1)}, dtype);
    if (needs[2]) out[2] = empty(x.tape(), {x.size(1)}, dtype);
    return out;
  });
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const RunningStatistics& running) {
  if (!x.tape().training) return nondiff("native_batch_norm", x, x.dtype());  // running statistics
  return normalise_batch(x, weight, bias, running);
}

// A batch norm in which every channel of every sample is a channel.
Tensor instance_norm(const Tensor& input) {
  const Tensor x = contiguous(input);
  const Tensor y = normalise_batch(view(x, {1, x.size(0) * x.size(1), x.size(2), x.size(3)}), {}, {}, {});
  return view(y, input.sizes());
}

// saves v, g and the norms
Tensor weight_norm(const Tensor& v, const Tensor& g) {
  Tape& tape = v.tape();
  Op op(tape, "_weight_norm_interface", {&v, &g});
  Saved saved_v = op.save(v), saved_g = op.save(g);
  Tensor w = empty_like(v);
  const Tensor n = empty_like(g, stat_type(g));
  Saved norms = op.save(n);
  return op.finish(w, [saved_v = std::move(saved_v), saved_g = std::move(saved_g), norms = std::move(norms)](Tensors&, Needs needs) {
    const Tensor g = saved_g.unpack(), v = saved_v.unpack(), n = norms.unpack();
    Op op(v.tape(), "_weight_norm_interface_backward", {});
    Tensors out(2);
    if (needs[0]) out[0] = empty_like(v);
    if (needs[1]) out[1] = empty_like(g);
    return out;
  });
}

}  // namespace plimsoll
