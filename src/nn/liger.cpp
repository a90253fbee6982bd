// Liger-Kernel (commit ead96b6): ops/rms_norm.py, ops/swiglu.py, ops/geglu.py, ops/rope.py.
#include "nn/liger.h"

#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

Tensor dense(Tape& tape, const Tensor& x) {
  GradGuard no_grad(tape, false);
  return contiguous(x);
}

Tensor tokens_first(Tape& tape, const Tensor& x) {
  GradGuard no_grad(tape, false);
  return transpose(contiguous(transpose(x, 1, 2)), 1, 2);
}

}  // namespace

// saves the input, the weight and the rows' scales
Tensor liger_rms_norm(const Tensor& input, const Tensor& weight, bool in_place) {
  Tape& tape = input.tape();
  Op op(tape, "LigerRMSNorm", {&input, &weight});
  const Tensor x = dense(tape, input);
  tape.op = "LigerRMSNorm";
  const Tensor y = empty(tape, x.sizes(), x.dtype());
  const Tensor rstd = empty(tape, {x.numel() / x.size(-1)}, DType::float32);
  Saved sx = op.save(x), sw = op.save(weight), srstd = op.save(rstd);
  return op.finish(y, [sx = std::move(sx), sw = std::move(sw), srstd = std::move(srstd), in_place](Tensors& g, Needs) {
    Tape& tape = g[0].tape();
    const Tensor dy = contiguous(g[0]), x = sx.unpack(), w = sw.unpack(), rstd = srstd.unpack();
    Op op(tape, "LigerRMSNormBackward", {});
    const Tensor rows = empty(tape, {kMultiprocessors, dy.size(-1)}, DType::float32);
    const Tensor dx = in_place ? dy : empty_like(dy);
    const Tensor sum = empty(tape, {dy.size(-1)}, DType::float32);
    return Tensors{dx, to(sum, w.dtype())};
  });
}

// saves both factors; their memory takes the gradients
Tensor liger_gated_product(const Tensor& gate, const Tensor& up) {
  Tape& tape = gate.tape();
  Op op(tape, "LigerSiLUMul", {&gate, &up});
  const Tensor a = dense(tape, gate), b = dense(tape, up);
  tape.op = "LigerSiLUMul";
  const Tensor c = empty_like(a);
  Saved sa = op.save(a), sb = op.save(b);
  return op.finish(c, [sa = std::move(sa), sb = std::move(sb)](Tensors& g, Needs) {
    const Tensor dc = contiguous(g[0]), a = sa.unpack(), b = sb.unpack();
    return Tensors{alias(a, a.sizes(), a.strides()), alias(b, b.sizes(), b.strides())};
  });
}

// saves the tables
std::pair<Tensor, Tensor> liger_rotary_pos_emb(const Tensor& q, const Tensor& k, const CosSin& tables) {
  Tape& tape = q.tape();
  Op op(tape, "LigerRope", {&q, &k});
  const Tensor dense_q = tokens_first(tape, q), dense_k = tokens_first(tape, k);
  Tensors rotated{alias(dense_q, dense_q.sizes(), dense_q.strides()), alias(dense_k, dense_k.sizes(), dense_k.strides())};
  Saved scos = op.save(tables.cos), ssin = op.save(tables.sin);
  op.finish(rotated, [scos = std::move(scos), ssin = std::move(ssin)](Tensors& g, Needs) {
    const Tensor cos = scos.unpack(), sin = ssin.unpack();
    return Tensors{tokens_first(g[0].tape(), g[0]), tokens_first(g[1].tape(), g[1])};
  });
  return {rotated[0], rotated[1]};
}

}  // namespace plimsoll
