#include "ops/ring_attention.h"

#include "ops/reshape.h"

namespace plimsoll {

namespace {

Tensor ring_made(Tape& tape, const char* name, const Dims& sizes, DType dtype) {
  Op op(tape, name, {});
  return empty(tape, sizes, dtype);
}

Tensor ring_like(const char* name, const Tensor& t, DType dtype) { return ring_made(t.tape(), name, t.sizes(), dtype); }

// What one of the rotaters holds: everybody's keys and values, or those of the next round.
class Passing {
 public:
  Passing(const Ring& ring, bool gathers) : ring_(ring), gathers_(gathers) {}
  void send(const Tensor& kv) {
    if (gathers_ && held_) return;
    Dims sizes = kv.sizes();
    if (gathers_) sizes[0] = checked_mul(sizes[0], ring_.world);
    held_ = ring_made(kv.tape(), gathers_ ? "all_gather_into_tensor" : "all_to_all_single", sizes, kv.dtype());
  }
  const Tensor& received() const { return held_; }

 private:
  const Ring& ring_;
  bool gathers_;
  Tensor held_;
};

Tensor joined(const Tensor& k, const Tensor& v, DType dtype) {
  return ring_made(k.tape(), "cat", {checked_add(k.numel(), v.numel())}, dtype);
}

// _SDPAMerger: results so far in fp32, each round's beside them.
struct Merged {
  Tensor out, lse;

  void add(const Tensor& block_out, const Tensor& block_lse) {
    const Tensor wide = ring_like("_to_copy", block_out, DType::float32);
    if (!out) {
      out = wide;
      lse = block_lse;
      return;
    }
    Tensor next;
    {
      const Tensor weight = ring_like("sigmoid", block_lse, DType::float32);
      const Tensor difference = ring_like("sub", out, DType::float32);
      const Tensor change = ring_like("mul", out, DType::float32);
      next = ring_like("sub", out, DType::float32);
    }
    out = next;
    lse = ring_like("sub", block_lse, DType::float32);
  }
};

struct Kept {
  Saved q, k, v, out, lse;
};

// Every round's gradients, summed in fp32; those of keys and values go around once more.
Tensors ring_backward(const Kept& kept, const Ring& ring) {
  const Tensor q = kept.q.unpack(), k_in = kept.k.unpack(), v_in = kept.v.unpack(), out = kept.out.unpack(), lse = kept.lse.unpack();
  Tensor dq = ring_like("zeros_like", q, DType::float32), dk = ring_like("zeros_like", k_in, DType::float32),
         dv = ring_like("zeros_like", v_in, DType::float32);
  const Tensor k = contiguous(detach(k_in)), v = contiguous(detach(v_in));
  Passing keys(ring, ring.gathers), gradients(ring, false);
  Tensor kv, dkv;
  for (int64_t i = 0; i < ring.world; ++i) {
    if (i != ring.world - 1) {
      kv = joined(k, v, k.dtype());
      keys.send(kv);
    }
    const char* kernel = "_scaled_dot_product_flash_attention_backward";
    const Tensor dq_i = ring_like(kernel, q, q.dtype()), dk_i = ring_like(kernel, k, k.dtype()), dv_i = ring_like(kernel, v, v.dtype());
    if (i > 0) dk = dv = Tensor();  // views of what was received
    dkv = joined(k, v, DType::float32);
    gradients.send(dkv);
  }
  dq = ring_like("_to_copy", dq, q.dtype());
  dkv = ring_made(q.tape(), "_to_copy", {checked_add(k.numel(), v.numel())}, k.dtype());
  return {dq, alias(dkv, k.sizes(), contiguous_strides(k.sizes())), alias(dkv, v.sizes(), contiguous_strides(v.sizes()))};
}

}  // namespace

// saves query, key, value, result and the sums of exponentials
Tensor ring_attention(const Tensor& q, const Tensor& k_in, const Tensor& v_in, const Ring& ring) {
  Tape& tape = q.tape();
  Op op(tape, "_scaled_dot_product_flash_attention", {&q, &k_in, &v_in});
  Kept kept{op.save(q), op.save(k_in), op.save(v_in), {}, {}};
  Tensor out, lse;
  {
    const Tensor k = contiguous(detach(k_in)), v = contiguous(detach(v_in));
    Passing keys(ring, ring.gathers);
    Merged merged;
    Tensor kv;
    for (int64_t i = 0; i < ring.world; ++i) {
      if (i < ring.world - 1) {
        kv = joined(k, v, k.dtype());
        keys.send(kv);
      }
      const Tensor block = ring_like("_scaled_dot_product_flash_attention", q, q.dtype());
      const Tensor block_lse = ring_made(tape, "_scaled_dot_product_flash_attention", {q.size(0), q.size(1), q.size(2)}, DType::float32);
      merged.add(block, block_lse);
    }
    out = ring_like("_to_copy", merged.out, q.dtype());
    lse = merged.lse;
  }
  kept.out = op.save(out);
  kept.lse = op.save(lse);
  return op.finish(out, [kept = std::move(kept), ring](Tensors&, Needs) { return ring_backward(kept, ring); });
}

}  // namespace plimsoll
