// flash-attention 2.8: flash_attn/flash_attn_interface.py and csrc/flash_attn/flash_api.cpp.
#include "ops/flash_attention_2.h"

#include "ops/reshape.h"

namespace plimsoll {

namespace {

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

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

// saves q, k, v, the output, the log-sum-exp and the random state
Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const Varlen* lengths) {
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
  Saved sq = op.save(q), sk = op.save(k), sv = op.save(v), so = op.save(out), slse = op.save(lse), srng = op.save(rng_state);
  Saved scu = op.save_if(lengths, lengths ? lengths->cu_seqlens : Tensor());
  return op.finish(result, [sq = std::move(sq), sk = std::move(sk), sv = std::move(sv), so = std::move(so), slse = std::move(slse),
                            srng = std::move(srng), scu = std::move(scu), samples, width](Tensors&, Needs) {
    const Tensor q = sq.unpack(), k = sk.unpack(), v = sv.unpack(), out = so.unpack(), lse = slse.unpack(), rng = srng.unpack();
    Op op(q.tape(), "flash_attn_backward", {});
    Tensors grads{empty_like(q), empty_like(k), empty_like(v)};
    backward_scratch(q, k, samples);
    for (Tensor& g : grads) g = slice(g, -1, 0, width);
    return grads;
  });
}

}  // namespace

Tensor flash_attention_2(const Tensor& q, const Tensor& k, const Tensor& v) { return attend(q, k, v, nullptr); }

Tensor flash_attention_2(const Tensor& q, const Tensor& k, const Tensor& v, const Varlen& lengths) { return attend(q, k, v, &lengths); }

}  // namespace plimsoll
