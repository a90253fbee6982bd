#include "ops/attention.h"

#include "ops/autocast.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "util/checked.h"

namespace plimsoll {

namespace {

// mha_bwd of flash_api.cpp: the softmax's row sums and the query gradient in fp32; with fewer key than query heads also the key
// and value gradients of every query head.
std::vector<Ref<Storage>> flash_backward_scratch(const Tensor& q, const Tensor& k) {
  Tape& tape = q.tape();
  if (!tape.dialect.kernels.scratch) return {};
  const int64_t rows = checked_mul(q.size(0) * q.size(1), round_up(q.size(2), 128)), width = q.size(3);
  std::vector<Ref<Storage>> held{tape.scratch(checked_mul(rows, 4)),
                                 tape.scratch(checked_mul(rows, 4 * (width <= 192 ? round_up(width, 32) : 256)))};
  if (k.size(1) != q.size(1)) {
    const int64_t expanded = checked_mul(checked_mul(q.size(0) * q.size(1), k.size(2)), width * size_of(k.dtype()));
    held.push_back(tape.scratch(expanded));
    held.push_back(tape.scratch(expanded));
  }
  return held;
}

// attention_backward.cu and mem_eff_attention/kernel_backward.h: the row sums, and for half types the query gradient in fp32 by
// blocks of 64 (the block depends on the device; 64 is the usual one).
std::vector<Ref<Storage>> efficient_backward_scratch(const Tensor& q) {
  Tape& tape = q.tape();
  if (!tape.dialect.kernels.scratch) return {};
  const int64_t heads = checked_mul(q.size(0), q.size(1));
  std::vector<Ref<Storage>> held{tape.scratch(checked_mul(checked_mul(heads, q.size(2)), 4))};
  if (is_half(q.dtype()))
    held.push_back(tape.scratch(checked_mul(checked_mul(heads, round_up(q.size(2), 64)), 4 * round_up(q.size(3), 64))));
  return held;
}

// Two products of (tokens, head_dim) matrices in each head; a causal kernel skips the half that is masked.
double forward_flops(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  const double scores = static_cast<double>(q.size(0) * q.size(1)) * static_cast<double>(q.size(2)) * static_cast<double>(k.size(2));
  return scores * 2 * static_cast<double>(q.size(3) + v.size(3)) * (causal ? 0.5 : 1);
}

// The scores once more, and the gradients of both products: five where forward has two.
constexpr double kBackwardFlops = 2.5;

// saves q, k, v, the output, the log-sum-exp and the random state
Tensor flash(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  Tape& tape = q.tape();
  Op op(tape, "_scaled_dot_product_flash_attention", {&q, &k, &v});
  Saved sk = op.save(k), sq = op.save(q), sv = op.save(v);
  Tensor out = empty_like(q);
  const Tensor lse = empty(tape, {q.size(0), q.size(1), q.size(2)}, DType::float32);
  const Tensor rng_state = empty(tape, {2}, DType::int64), unused = empty(tape, {}, DType::int64);
  const double flops = forward_flops(q, k, v, causal);
  tape.flops(flops, q.dtype(), Unit::attention);
  Saved slse = op.save(lse), so = op.save(out), srng = op.save(rng_state), sunused = op.save(unused);
  return op.finish(out, [sq = std::move(sq), sk = std::move(sk), sv = std::move(sv), so = std::move(so), slse = std::move(slse),
                         srng = std::move(srng), sunused = std::move(sunused), flops](Tensors& g, Needs) {
    const Tensor k = sk.unpack(), q = sq.unpack(), v = sv.unpack(), lse = slse.unpack(), out = so.unpack(), rng = srng.unpack(),
                 unused = sunused.unpack();
    Op op(q.tape(), "_scaled_dot_product_flash_attention_backward", {});
    for (const Tensor& t : {q, k, v, out, g[0]}) op.reads(t);
    Tensors grads(3);
    grads[0] = empty_like(q);
    grads[1] = empty_like(k);
    grads[2] = empty_like(v);
    flash_backward_scratch(q, k);
    q.tape().flops(kBackwardFlops * flops, q.dtype(), Unit::attention);
    return grads;
  });
}

// A tensor of shape (b, h, t, d) stored as (b, t, h, d).
Tensor tokens_first(Tape& tape, const Dims& s, DType dtype) { return transpose(empty(tape, {s[0], s[2], s[1], s[3]}, dtype), 1, 2); }

// saves q, k, v, the mask, the output, the log-sum-exp (tokens rounded up to 32) and the random state
Tensor efficient(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool causal = false) {
  Tape& tape = q.tape();
  Op op(tape, "_scaled_dot_product_efficient_attention", {&q, &k, &v, &mask});
  Saved smask = op.save(mask), sk = op.save(k), sq = op.save(q), sv = op.save(v);
  Tensor out;
  {
    GradGuard no_grad(tape, false);
    out = tokens_first(tape, {q.size(0), q.size(1), q.size(2), v.size(3)}, q.dtype());
  }
  tape.op = "_scaled_dot_product_efficient_attention";
  const Tensor lse = empty(tape, {q.size(0), q.size(1), (q.size(2) + 31) / 32 * 32}, DType::float32);
  const Tensor seed = empty(tape, {}, DType::int64), offset = empty(tape, {}, DType::int64);
  const double flops = forward_flops(q, k, v, causal);
  tape.flops(flops, q.dtype(), Unit::attention);
  Saved slse = op.save(lse), so = op.save(out), soffset = op.save(offset), sseed = op.save(seed);
  return op.finish(out, [sq = std::move(sq), sk = std::move(sk), sv = std::move(sv), smask = std::move(smask), so = std::move(so),
                         slse = std::move(slse), sseed = std::move(sseed), soffset = std::move(soffset), flops](Tensors& g, Needs needs) {
    const Tensor mask = smask.defined() ? smask.unpack() : Tensor(), k = sk.unpack(), q = sq.unpack(), v = sv.unpack(), lse = slse.unpack(),
                 out = so.unpack(), offset = soffset.unpack(), seed = sseed.unpack();
    Tape& tape = q.tape();
    Op op(tape, "_scaled_dot_product_efficient_attention_backward", {});
    for (const Tensor& t : {q, k, v, out, g[0]}) op.reads(t);
    Tensors grads(4);
    grads[0] = tokens_first(tape, q.sizes(), q.dtype());
    grads[1] = tokens_first(tape, k.sizes(), k.dtype());
    grads[2] = tokens_first(tape, v.sizes(), v.dtype());
    efficient_backward_scratch(q);
    tape.flops(kBackwardFlops * flops, q.dtype(), Unit::attention);
    if (needs[3]) {  // rows of the bias gradient are aligned to 16 elements
      Dims sizes = mask.sizes();
      sizes[-1] = (sizes[-1] + 15) / 16 * 16;
      Tensor wide = empty(tape, sizes, mask.dtype());
      grads[3] = slice(wide, -1, 0, mask.size(-1));
    }
    return grads;
  });
}

// saves the result
Tensor safe_softmax(const Tensor& x) {
  Op op(x.tape(), "_safe_softmax", {&x});
  Tensor y = empty_like(x);
  Saved result = op.save(y);
  return op.finish(y, [result = std::move(result)](Tensors& g, Needs) {
    const Tensor y = result.unpack();
    Op op(y.tape(), "_softmax_backward_data", {});
    op.reads(y);
    op.reads(g[0]);
    return Tensors{empty_like(g[0])};
  });
}

// convert_boolean_attn_mask: 0 and -inf of the query's type
Tensor additive(const Tensor& mask, DType dtype) {
  Tape& tape = mask.tape();
  const Tensor zero = filled(tape, "scalar_tensor", {}, dtype), low = filled(tape, "scalar_tensor", {}, dtype);
  return where(mask, zero, low);
}

// ones().tril()
Tensor causal_bias(const Tensor& q, const Tensor& k) {
  Tensor keep = filled(q.tape(), "ones", {q.size(-2), k.size(-2)}, DType::bool_);
  keep = nondiff("tril", keep, DType::bool_);
  return additive(keep, q.dtype());
}

// preprocess_mask: the memory-efficient kernel wants rows of the mask to start at multiples of 16 elements.
Tensor aligned(const Tensor& mask) {
  bool fits = mask.strides()[-1] == 1;
  for (int i = 0; i + 1 < mask.dim(); ++i) fits &= mask.strides()[i] % 16 == 0;
  if (fits) return mask;
  const int64_t width = mask.size(-1);
  return slice(constant_pad_nd(mask, {0, 16 - width % 16}), -1, 0, width);
}

// _scaled_dot_product_attention_math: half inputs are computed in fp32; q and k are scaled before the product.
Tensor math(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionArgs& args) {
  const DType origin = query.dtype();
  const bool widen = is_half(origin);
  const Tensor q_wide = widen ? to(query, DType::float32) : query, k_wide = widen ? to(key, DType::float32) : key,
               v_wide = widen ? to(value, DType::float32) : value;
  const Tensor q = mul_scalar(q_wide);
  Tensor mask = args.mask;
  if (args.causal) mask = causal_bias(q, k_wide);
  const bool repeat = args.grouped && key.size(1) != query.size(1);
  const Tensor k = repeat ? repeat_interleave(k_wide, query.size(1) / key.size(1), 1) : k_wide;
  const Tensor v = repeat ? repeat_interleave(v_wide, query.size(1) / value.size(1), 1) : v_wide;
  Tensor attn;
  {
    const Tensor k_scaled = mul_scalar(transpose(k, -2, -1));
    attn = matmul(q, k_scaled);
  }
  if (mask) attn = q.tape().dialect.recorder ? add(attn, mask) : add_(attn, mask);
  attn = safe_softmax(attn);
  if (args.dropout > 0) attn = dropout(attn, args.dropout);
  const Tensor weights = widen ? to(attn, origin) : attn;  // the second result, made before the first and thrown away
  Tensor out = matmul(attn, v);
  if (widen) out = to(out, origin);
  return out;
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionArgs& call) {
  Tape& tape = query.tape();
  const Tensor q = autocast_low(query);
  Tensor k = autocast_low(key), v = autocast_low(value);
  AttentionArgs args = call;
  // The recorder calls the kernels from Python, past what the real op does to a mask.
  if (!tape.dialect.recorder && args.mask && args.mask.dtype() == DType::bool_) args.mask = additive(args.mask, q.dtype());
  const bool grouped = args.grouped && k.size(1) != q.size(1);
  AttentionKernel kind = tape.dialect.attention;
  if (kind == AttentionKernel::flash_attention_2)
    throw Error("[attention] flash-attention-2: this model calls PyTorch's attention itself", "attention: auto");
  // A model that calls this op whatever was asked for: a plain run chooses as usual, the recorder falls through to math.
  if (kind == AttentionKernel::eager && tape.dialect.recorder) kind = AttentionKernel::math;
  if (kind == AttentionKernel::automatic || kind == AttentionKernel::flash || kind == AttentionKernel::eager) {
    const bool automatic = kind != AttentionKernel::flash;
    const bool too_wide = !tape.dialect.recorder && q.size(3) > 256;  // sdp_utils.cpp, check_head_dim_size_flash
    const bool fits_flash = is_half(q.dtype()) && !args.mask && !too_wide && q.size(3) == v.size(3);
    const bool no_tokens = q.size(2) == 0 || k.size(2) == 0;  // check_nonzero_sequence_lengths_dense
    kind = no_tokens              ? AttentionKernel::math
           : fits_flash           ? AttentionKernel::flash
           : grouped && automatic ? AttentionKernel::math
                                  : AttentionKernel::efficient;
  }
  if (kind == AttentionKernel::flash) return flash(q, k, v, args.causal);
  // Inside the real op autocast is off. The recorder calls the kernels from Python, where it stays on.
  AutocastGuard inner(tape, tape.dialect.recorder ? tape.autocast : std::nullopt);
  if (kind == AttentionKernel::math) return math(q, k, v, args);
  if (!tape.dialect.recorder && args.mask) args.mask = aligned(args.mask);
  if (!grouped) return efficient(q, k, v, args.mask, args.causal);
  k = repeat_interleave(k, q.size(1) / k.size(1), 1);
  v = repeat_interleave(v, q.size(1) / v.size(1), 1);
  return efficient(q, k, v, args.mask, args.causal);
}

Tensor memory_efficient_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  return squeeze(efficient(unsqueeze(q, 1), unsqueeze(k, 1), unsqueeze(v, 1), {}), 1);
}

}  // namespace plimsoll
