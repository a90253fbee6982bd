#include "ops/mamba_inner.h"

#include "ops/einsum.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

Tensor last_dense(const Tensor& x) { return x.strides()[-1] == 1 ? x : contiguous(x); }

// What the kernels write into.
Tensor unset(const Tensor& like) { return nondiff("empty_like", like, like.dtype()); }
Tensor zeros(const Tensor& like, DType dtype) { return nondiff("zeros_like", like, dtype); }

// einops.rearrange of (B, D, T) to rows of tokens, and back from (D, B T).
Tensor token_rows(const Tensor& x) { return reshape(transpose(x, 1, 2), {-1, x.size(1)}); }
Tensor channel_rows(const Tensor& x) { return reshape(permute(x, {1, 0, 2}), {x.size(1), -1}); }
Tensor by_sample(const Tensor& x, int64_t tokens) { return permute(view(x, {x.size(0), -1, tokens}), {1, 0, 2}); }

Tensor convolved(const Tensor& xz) { return unset(chunk(xz, 2, 1)[0]); }

Tensor time_steps(const Tensor& weight, const Tensor& x_dbl, int64_t tokens) {
  return by_sample(matmul(weight, t(slice(x_dbl, 1, 0, weight.size(1)))), tokens);
}

// Columns of (B T, R + 2 S) as (B, 1, S, T)
Tensor state_columns(const Tensor& x_dbl, int64_t start, int64_t end, int64_t tokens) {
  const Tensor columns = slice(x_dbl, 1, start, end);
  return contiguous(unsqueeze(transpose(view(columns, {-1, tokens, columns.size(1)}), 1, 2), 1));
}

struct Scan {
  Tensor out_z, out, states;
};

// Of state-spaces/mamba's scan: nine operations for every token, channel and state (the decay, its product, the sum, the read-out).
void count_scan(const char* kernel, const Tensor& delta, const Tensor& A, double times) {
  Tape& tape = delta.tape();
  if (!tape.work) return;
  const double flops = times * 9 * static_cast<double>(delta.numel()) * static_cast<double>(A.size(1));
  tape.work->add(tape, {.op = kernel, .flops = flops, .unit = Unit::scan});
}

// selective_scan_fwd: a state is kept for every 2048 tokens
Scan scan_forward(const Tensor& delta, const Tensor& A, const Tensor& z) {
  Scan s;
  s.out_z = unset(z);
  s.out = unset(delta);
  const int64_t chunks = (delta.size(2) + 2047) / 2048;
  count_scan("selective_scan_fwd", delta, A, 1);
  s.states = filled(delta.tape(), "empty", {delta.size(0), A.size(0), chunks, checked_mul(2, A.size(1))}, DType::float32);
  return s;
}

struct ScanGradients {
  Tensor du, ddelta, dA, dB, dC, dD, ddelta_bias, out_z;
};

// selective_scan_bwd: gradients of B and C are summed in fp32. out_z is what it makes first, like `first`: the gated result once more, or
// the gate's gradient.
ScanGradients scan_backward(const Tensor& u, const Tensor& delta, const Tensor& A, const Tensor& B, const Tensor& C, const Tensor& D,
                            const Tensor& delta_bias, const Tensor& first) {
  ScanGradients g;
  count_scan("selective_scan_bwd", delta, A, 3);  // the states once more, and two gradients
  g.out_z = unset(first);
  g.du = unset(u);
  g.ddelta = unset(delta);
  g.dA = zeros(A, A.dtype());
  g.dB = zeros(B, DType::float32);
  g.dC = zeros(C, DType::float32);
  g.dD = zeros(D, D.dtype());
  g.ddelta_bias = zeros(delta_bias, delta_bias.dtype());
  const Tensor dB = to(g.dB, B.dtype()), dC = to(g.dC, C.dtype());
  g.dB = dB;
  g.dC = dC;
  return g;
}

// (B, 1, S, T) as rows of tokens
Tensor state_rows(const Tensor& x) { return contiguous(reshape(permute(x, {0, 3, 1, 2}), {-1, x.size(2)})); }

Tensor low(const Tensor& weight) { return weight && weight.tape().autocast ? to(weight, *weight.tape().autocast) : weight; }

}  // namespace

Tensor mamba_inner(const MambaInnerArgs& a) {
  Tape& tape = a.xz.tape();
  Op op(tape, "mamba_inner",
        {&a.xz, &a.conv1d_weight, &a.conv1d_bias, &a.x_proj_weight, &a.delta_proj_weight, &a.out_proj_weight, &a.out_proj_bias, &a.A, &a.D,
         &a.delta_bias});
  const int64_t tokens = a.xz.size(2), rank = a.delta_proj_weight.size(1), states = a.A.size(1);
  Tensor result, out, scan_states, B, C, x_dbl, xz, x_proj_weight, delta_proj_weight, out_proj_weight;
  {
    GradGuard no_grad(tape, false);
    x_proj_weight = low(a.x_proj_weight);
    delta_proj_weight = low(a.delta_proj_weight);
    out_proj_weight = low(a.out_proj_weight);
    const Tensor out_proj_bias = low(a.out_proj_bias);
    xz = last_dense(a.xz);
    Tensor conv1d_out = convolved(xz);                            // (B, I, T)
    x_dbl = linear(token_rows(conv1d_out), x_proj_weight);        // (B T, R + 2 S)
    Tensor delta = time_steps(delta_proj_weight, x_dbl, tokens);  // (B, I, T)
    B = state_columns(x_dbl, rank, rank + states, tokens);
    C = state_columns(x_dbl, rank + states, rank + 2 * states, tokens);
    Scan scan = scan_forward(delta, a.A, chunk(xz, 2, 1)[1]);
    out = scan.out;
    scan_states = scan.states;
    conv1d_out.reset();
    delta.reset();
    result = linear(transpose(scan.out_z, 1, 2), out_proj_weight, out_proj_bias);  // (B, T, C)
  }
  tape.op = "mamba_inner";
  std::vector<Saved> saved;
  for (const Tensor& t : {xz, a.conv1d_weight, a.conv1d_bias, x_dbl, x_proj_weight, delta_proj_weight, out_proj_weight, a.A, B, C, a.D,
                          a.delta_bias, scan_states, out})
    saved.push_back(op.save(t));
  return op.finish(std::move(result), [saved = std::move(saved), tokens, autocast = tape.autocast](Tensors& g, Needs needs) {
    Tensors kept;
    for (const Saved& s : saved) kept.push_back(s.defined() ? s.unpack() : Tensor());
    const Tensor &xz = kept[0], &conv1d_weight = kept[1], &conv1d_bias = kept[2], &x_dbl = kept[3], &delta_proj_weight = kept[5],
                 &out_proj_weight = kept[6], &A = kept[7], &B = kept[8], &C = kept[9], &D = kept[10], &delta_bias = kept[11],
                 &out = kept[13];
    AutocastGuard as_in_forward(xz.tape(), autocast);
    const Tensor grad = last_dense(g[0]);
    g[0].reset();  // Python's own name goes with the others
    const Tensor conv1d_out = convolved(xz), delta = time_steps(delta_proj_weight, x_dbl, tokens);
    const Tensor dxz = unset(xz);
    const Tensor dout = reshape(permute(grad, {2, 0, 1}), {grad.size(2), -1});  // (C, B T)
    const Tensor dout_y = by_sample(matmul(t(out_proj_weight), dout), tokens);  // (B, I, T)
    ScanGradients scan = scan_backward(conv1d_out, delta, A, B, C, D, delta_bias, out);
    Tensors grads(10);
    grads[5] = einsum("eb,db->ed", dout, channel_rows(scan.out_z));
    if (needs[6]) grads[6] = sum(dout);
    const Tensor dx_dbl = unset(x_dbl);
    scan.dB = state_rows(scan.dB);
    scan.dB.reset();
    scan.dC = state_rows(scan.dC);
    scan.dC.reset();
    const Tensor ddelta = channel_rows(scan.ddelta);  // (I, B T)
    grads[4] = einsum("db,br->dr", ddelta, slice(x_dbl, 1, 0, delta_proj_weight.size(1)));
    einsum("db,dr->br", ddelta, delta_proj_weight);  // written into dx_dbl
    scan.du = channel_rows(scan.du);
    grads[3] = einsum("br,bd->rd", dx_dbl, token_rows(conv1d_out));
    Tensor dweight = zeros(view(conv1d_weight, {conv1d_weight.size(0), -1}), DType::float32), dbias;
    if (conv1d_bias) dbias = zeros(conv1d_bias, DType::float32);
    dweight = to(dweight, conv1d_weight.dtype());
    if (conv1d_bias) dbias = to(dbias, conv1d_bias.dtype());
    grads[0] = dxz;
    grads[1] = view(dweight, conv1d_weight.sizes());
    grads[2] = dbias;
    grads[7] = scan.dA;
    grads[8] = scan.dD;
    grads[9] = scan.ddelta_bias;
    return grads;
  });
}

// saves all inputs; the weight's gradient is summed in fp32
Tensor causal_conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Op op(x.tape(), "causal_conv1d", {&x, &weight, &bias});
  const Tensor dense = x.strides()[1] == 1 ? x : last_dense(x);
  Tensor out = unset(dense);
  Saved sx = op.save(dense), sweight = op.save(weight), sbias = op.save(bias);
  return op.finish(std::move(out), [sx = std::move(sx), sweight = std::move(sweight), sbias = std::move(sbias)](Tensors& g, Needs) {
    const Tensor x = sx.unpack(), weight = sweight.unpack(), bias = sbias.defined() ? sbias.unpack() : Tensor();
    const Tensor dout = g[0].strides()[1] == 1 ? g[0] : last_dense(g[0]);
    Tensors grads(3);
    grads[0] = unset(x);
    Tensor dweight = zeros(weight, DType::float32), dbias;
    if (bias) dbias = zeros(bias, DType::float32);
    grads[1] = to(dweight, weight.dtype());
    if (bias) grads[2] = to(dbias, bias.dtype());
    return grads;
  });
}

// saves all inputs, the states and the result before the gate
Tensor selective_scan(const SelectiveScanArgs& a) {
  Op op(a.u.tape(), "selective_scan", {&a.u, &a.delta, &a.A, &a.B, &a.C, &a.D, &a.z, &a.delta_bias});
  std::vector<Saved> saved;
  Scan scan;
  {
    GradGuard no_grad(a.u.tape(), false);
    const Tensor u = last_dense(a.u), delta = last_dense(a.delta), B = last_dense(a.B), C = last_dense(a.C), z = last_dense(a.z);
    scan = scan_forward(delta, a.A, z);
    for (const Tensor& t : {u, delta, a.A, B, C, a.D, z, a.delta_bias, scan.states, scan.out}) saved.push_back(op.save(t));
  }
  return op.finish(std::move(scan.out_z), [saved = std::move(saved)](Tensors& g, Needs) {
    Tensors kept;
    for (const Saved& s : saved) kept.push_back(s.defined() ? s.unpack() : Tensor());
    const Tensor dout = last_dense(g[0]);
    ScanGradients scan = scan_backward(kept[0], kept[1], kept[2], kept[3], kept[4], kept[5], kept[7], kept[6]);
    return Tensors{scan.du, scan.ddelta, scan.dA, scan.dB, scan.dC, scan.dD, scan.out_z, scan.ddelta_bias};
  });
}

}  // namespace plimsoll
