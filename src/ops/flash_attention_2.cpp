// flash-attention 2.8: flash_attn/flash_attn_interface.py and csrc/flash_attn/flash_api.cpp.
#include "ops/flash_attention_2.h"

#include "ops/reshape.h"
#include "util/checked.h"

namespace plimsoll {

namespace {

// Rows of the fp32 buffers in backward: tokens rounded up to 128, or 128 more a sample.
int64_t buffer_rows(const Tensor& q, int64_t samples) {
  return samples ? checked_add(q.size(0), checked_mul(128, samples)) : checked_mul(q.size(0), round_up(q.size(1), 128));
}

// mha_bwd and mha_varlen_bwd: row sums and the query gradient in fp32; with fewer key than query heads the key and value
// gradients of every query head.
void backward_scratch(const Tensor& q, const Tensor& k, int64_t samples) {
  Tape& tape = q.tape();
  const int64_t heads = q.size(-2), width = q.size(-1), rows = checked_mul(buffer_rows(q, samples), heads);
  const int64_t rounded = width <= 192 ? round_up(width, 32) : 256;
  std::vector<Ref<Storage>> held{tape.scratch(checked_mul(rows, 4)), tape.scratch(checked_mul(rows, 4 * rounded))};
  if (k.size(-2) == heads) return;
  const int64_t expanded = checked_mul(k.numel() / k.size(-2) * heads, size_of(k.dtype()));
  held.push_back(tape.scratch(expanded));
  held.push_back(tape.scratch(expanded));
}

// Heads are padded to a multiple of 8, inside the function, and the result is cut again.
Tensor padded(const Tensor& x) {
  const int64_t width = x.size(-1);
  return width % 8 ? constant_pad_nd(x, {0, round_up(width, 8) - width}) : x;
}

void check(const Tensor& q) {
  if (!is_half(q.dtype()))
    throw Error("[attention] flash-attention-2 takes bf16 and fp16 alone", "precision amp, amp-fp16, bf16 or fp16, or another attention");
  if (q.size(-1) > 256)
    throw Error("[attention] flash-attention-2: heads of " + std::to_string(q.size(-1)) + " are wider than 256",
                "choose another attention");
  if (q.tape().dialect.recorder) throw Error("[attention] flash-attention-2 cannot be recorded", "score rows of another kernel");
}

// Samples that were joined do not attend to each other; they are taken to be equally long.
double forward_flops(const Tensor& q, const Tensor& k, int64_t samples, bool causal) {
  const double keys = static_cast<double>(samples ? k.size(0) / samples : k.size(1));
  return static_cast<double>(q.numel()) * keys * 4 * (causal ? 0.5 : 1);
}

// saves q, k, v, the output, the log-sum-exp and the random state
Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const Varlen* lengths, bool causal) {
  check(query);
  Tape& tape = query.tape();
  Op op(tape, "flash_attn", {&query, &key, &value});
  const int64_t samples = lengths ? lengths->samples : 0, width = query.size(-1);
  Tensor q, k, v, out, result;
  {
    GradGuard no_grad(tape, false);
    q = padded(query);
    k = padded(key);
    v = padded(value);
    tape.op = "flash_attn";
    out = empty_like(q);
    result = slice(out, -1, 0, width);
  }
  const Dims rows = lengths ? Dims{q.size(1), q.size(0)} : Dims{q.size(0), q.size(2), q.size(1)};
  const Tensor lse = empty(tape, rows, DType::float32), rng_state = empty(tape, {2}, DType::int64);
  const double flops = forward_flops(q, k, samples, causal);
  tape.flops(flops, q.dtype(), Unit::attention);
  Saved sq = op.save(q), sk = op.save(k), sv = op.save(v), so = op.save(out), slse = op.save(lse), srng = op.save(rng_state);
  Saved scu = op.save_if(lengths, lengths ? lengths->cu_seqlens : Tensor());
  return op.finish(result, [sq = std::move(sq), sk = std::move(sk), sv = std::move(sv), so = std::move(so), slse = std::move(slse),
                            srng = std::move(srng), scu = std::move(scu), samples, width, flops](Tensors& g, Needs) {
    const Tensor q = sq.unpack(), k = sk.unpack(), v = sv.unpack(), out = so.unpack(), lse = slse.unpack(), rng = srng.unpack();
    Op op(q.tape(), "flash_attn_backward", {});
    for (const Tensor& t : {q, k, v, out, g[0]}) op.reads(t);
    Tensors grads{empty_like(q), empty_like(k), empty_like(v)};
    backward_scratch(q, k, samples);
    q.tape().flops(2.5 * flops, q.dtype(), Unit::attention);  // five products where forward has two
    for (Tensor& g : grads) g = slice(g, -1, 0, width);
    return grads;
  });
}

}  // namespace

Tensor flash_attention_2(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) { return attend(q, k, v, nullptr, causal); }

Tensor flash_attention_2(const Tensor& q, const Tensor& k, const Tensor& v, const Varlen& lengths, bool causal) {
  return attend(q, k, v, &lengths, causal);
}

}  // namespace plimsoll
