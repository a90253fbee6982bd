// TransformerEngine 2.11 (pytorch/module, attention, cross_entropy) and megatron.core (tensor_parallel, fusions), as far as memory goes.
#include "ops/transformer_engine.h"

#include "util/checked.h"

namespace plimsoll {

namespace {

constexpr int64_t kWorkspace = (int64_t{32} << 20) + 1024;  // get_cublas_workspace_size_bytes

Tensor with_tokens(const Tensor& like, int64_t tokens, int64_t width) {
  Dims sizes = like.sizes();
  sizes[0] = tokens;
  sizes[-1] = width;
  return empty(like.tape(), sizes, like.dtype());
}

int64_t rows_of(const Tensor& x) { return x.numel() / x.size(-1); }
bool gathers(const GemmShare& s) { return s.sequence && s.ranks > 1; }

void multiply(const Tensor& any, double rows, double in, double out, const GemmShare& share) {
  if (share.torch || !share.buffers)
    any.tape().use_blas(false);
  else
    share.buffers->use_workspace();
  any.tape().flops(2 * rows * in * out, any.dtype(), Unit::matmul);
}

Tensor weight_gradient(const Tensor& weight, double rows, const GemmShare& share) {
  multiply(weight, rows, static_cast<double>(weight.size(-1)), static_cast<double>(weight.size(-2)), share);
  if (share.fused_gradients) return share.buffers->placeholder(weight.sizes(), weight.dtype());
  return empty(weight.tape(), weight.sizes(), weight.dtype());
}

Tensor bias_gradient(bool needed, int64_t width, const Tensor& like) {
  return needed ? empty(like.tape(), {width}, like.dtype()) : Tensor();
}

struct Statistics {
  Tensor mean, deviation;
};

Statistics make_statistics(const Tensor& x, bool with_mean) {
  Statistics s;
  if (with_mean) s.mean = empty(x.tape(), {rows_of(x)}, DType::float32);
  s.deviation = empty(x.tape(), {rows_of(x)}, DType::float32);
  return s;
}

}  // namespace

Tensor SharedBuffers::placeholder(const Dims& sizes, DType dtype) {
  Tensor& t = placeholders_[to_string(sizes) + std::string(dtype_name(dtype))];
  if (!t) {
    const char* op = tape_.op;
    tape_.op = "get_dummy_wgrad";
    t = empty(tape_, sizes, dtype);
    tape_.relabel(t, Category::workspace);
    tape_.op = op;
  }
  return detach(t);
}

Tensor SharedBuffers::global(const std::string& name, const Dims& sizes, DType dtype) {
  Tensor& t = globals_[name + std::string(dtype_name(dtype))];
  if (!t || t.numel() < numel(sizes)) {
    t = empty(tape_, {numel(sizes)}, dtype);
    tape_.relabel(t, Category::workspace);
  }
  return alias(t, sizes, contiguous_strides(sizes));
}

void SharedBuffers::use_workspace() {
  if (workspace_ || !tape_.dialect.kernels.scratch) return;
  const char* op = tape_.op;
  tape_.op = "get_workspace";
  const Tensor t = empty(tape_, {kWorkspace}, DType::uint8);
  tape_.relabel(t, Category::workspace);
  workspace_ = t.body().storage;
  tape_.op = op;
}

// saves input, weight and the statistics of every row
Tensor te_norm(const Tensor& x, const NormWeights& norm) {
  Tape& tape = x.tape();
  Op op(tape, "LayerNorm", {&x, &norm.weight, &norm.bias});
  Saved sx = op.save(x), sw = op.save(norm.weight);
  const Tensor y = empty(tape, x.sizes(), x.dtype());
  const Statistics s = make_statistics(x, norm.bias.defined());
  Saved mean = op.save(s.mean), deviation = op.save(s.deviation);
  return op.finish(
      y, [sx = std::move(sx), sw = std::move(sw), mean = std::move(mean), deviation = std::move(deviation)](Tensors& g, Needs needs) {
        const Tensor x = sx.unpack(), w = sw.unpack(), d = deviation.unpack();
        Op op(x.tape(), "LayerNormBackward", {});
        op.reads(x);
        op.reads(g[0]);
        Tensors out{empty(x.tape(), x.sizes(), x.dtype()), empty(x.tape(), w.sizes(), w.dtype()), Tensor()};
        if (needs[2]) out[2] = empty(x.tape(), w.sizes(), w.dtype());
        return out;
      });
}

// saves input, normalised input, statistics and weight; gathers the normalised tokens again for the weight's gradient
Tensor norm_linear(const Tensor& x, const NormWeights& norm, const Tensor& weight, const Tensor& bias, const GemmShare& share) {
  Tape& tape = x.tape();
  Op op(tape, "LayerNormLinear", {&x, &norm.weight, &norm.bias, &weight, &bias});
  const int64_t tokens = x.size(0) * (gathers(share) ? share.ranks : 1), in = x.size(-1), out = weight.size(0);
  const Tensor normed = empty(tape, x.sizes(), x.dtype());
  const Statistics s = make_statistics(x, norm.bias.defined());
  Tensor y;
  {
    const Tensor whole = gathers(share) ? with_tokens(x, tokens, in) : normed;
    y = with_tokens(x, tokens, out);
    multiply(x, static_cast<double>(rows_of(y)), static_cast<double>(in), static_cast<double>(out), share);
  }
  Saved sx = op.save(x), sn = op.save(normed), sw = op.save(weight), sg = op.save(norm.weight), mean = op.save(s.mean),
        deviation = op.save(s.deviation);
  return op.finish(y, [sx = std::move(sx), sn = std::move(sn), sw = std::move(sw), sg = std::move(sg), mean = std::move(mean),
                       deviation = std::move(deviation), share, tokens, in, out](Tensors& g, Needs needs) {
    const Tensor x = sx.unpack(), normed = sn.unpack(), w = sw.unpack(), gamma = sg.unpack(), d = deviation.unpack();
    Tape& tape = x.tape();
    Op op(tape, "LayerNormLinearBackward", {});
    op.reads(g[0]);
    op.reads(x);
    Tensors grads(5);
    Tensor of_normed;
    {
      const Tensor whole = gathers(share) ? with_tokens(x, tokens, in) : normed;
      const Tensor of_whole = with_tokens(x, tokens, in);
      multiply(x, static_cast<double>(rows_of(g[0])), static_cast<double>(out), static_cast<double>(in), share);
      of_normed = gathers(share) ? empty(tape, x.sizes(), x.dtype()) : of_whole;
      grads[3] = weight_gradient(w, static_cast<double>(rows_of(g[0])), share);
      grads[4] = bias_gradient(needs[4], out, w);
    }
    grads[0] = empty(tape, x.sizes(), x.dtype());
    grads[1] = empty(tape, gamma.sizes(), gamma.dtype());
    if (needs[2]) grads[2] = empty(tape, gamma.sizes(), gamma.dtype());
    return grads;
  });
}

// saves input and weight
Tensor column_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const GemmShare& share, bool held) {
  Tape& tape = x.tape();
  Op op(tape, "ColumnParallelLinear", {&x, &weight, &bias});
  const int64_t tokens = x.size(0) * (gathers(share) ? share.ranks : 1), in = x.size(-1), out = weight.size(0);
  const auto gathered = [tokens, in, share, held](const Tensor& local) {
    if (!gathers(share)) return local;
    Dims sizes = local.sizes();
    sizes[0] = tokens;
    return held ? share.buffers->global("mpu", sizes, local.dtype()) : with_tokens(local, tokens, in);
  };
  Tensor y;
  {
    const Tensor whole = gathered(x);
    y = with_tokens(x, tokens, out);
    multiply(x, static_cast<double>(rows_of(y)), static_cast<double>(in), static_cast<double>(out), share);
  }
  Saved sx = op.save(x), sw = op.save(weight);
  return op.finish(y, [sx = std::move(sx), sw = std::move(sw), share, tokens, in, out, gathered](Tensors& g, Needs needs) {
    const Tensor x = sx.unpack(), w = sw.unpack();
    Op op(x.tape(), "ColumnParallelLinearBackward", {});
    op.reads(g[0]);
    op.reads(x);
    const Tensor whole = gathered(x);
    Tensors grads(3);
    Tensor of_whole;
    if (needs[0]) {
      of_whole = with_tokens(x, tokens, in);
      multiply(x, static_cast<double>(rows_of(g[0])), static_cast<double>(out), static_cast<double>(in), share);
      grads[0] = gathers(share) ? empty(x.tape(), x.sizes(), x.dtype()) : of_whole;
    }
    if (needs[1]) grads[1] = weight_gradient(w, static_cast<double>(rows_of(g[0])), share);
    grads[2] = bias_gradient(needs[2], out, w);
    return grads;
  });
}

// saves input and weight
Tensor row_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const GemmShare& share) {
  Tape& tape = x.tape();
  Op op(tape, "RowParallelLinear", {&x, &weight, &bias});
  const int64_t tokens = x.size(0), in = x.size(-1), out = weight.size(0);
  Tensor y = with_tokens(x, tokens, out);
  multiply(x, static_cast<double>(rows_of(x)), static_cast<double>(in), static_cast<double>(out), share);
  if (gathers(share)) y = with_tokens(x, tokens / share.ranks, out);  // reduce-scatter: the whole one lives until its part is there
  Saved sx = op.save(x), sw = op.save(weight);
  return op.finish(y, [sx = std::move(sx), sw = std::move(sw), share, tokens, in, out](Tensors& g, Needs needs) {
    const Tensor x = sx.unpack(), w = sw.unpack();
    Op op(x.tape(), "RowParallelLinearBackward", {});
    op.reads(g[0]);
    op.reads(x);
    const Tensor whole = gathers(share) ? with_tokens(x, tokens, out) : g[0];
    Tensors grads(3);
    if (needs[0]) grads[0] = with_tokens(x, tokens, in);
    multiply(x, static_cast<double>(rows_of(x)), static_cast<double>(out), static_cast<double>(in), share);
    if (needs[1]) grads[1] = weight_gradient(w, static_cast<double>(rows_of(x)), share);
    grads[2] = bias_gradient(needs[2], out, w);
    return grads;
  });
}

// saves input and weights
Tensor grouped_linear(const Tensor& x, const Tensors& weights, const GemmShare& share) {
  Tensors inputs{x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  Tape& tape = x.tape();
  Op op(tape, "GroupedLinear", inputs);
  const int64_t out = weights.front().size(0);
  const double rows = static_cast<double>(x.size(0)), in = static_cast<double>(x.size(-1));
  const Tensor y = empty(tape, {x.size(0), out}, x.dtype());
  multiply(x, rows, in, static_cast<double>(out), share);
  std::vector<Saved> saved;
  for (const Tensor& t : inputs) saved.push_back(op.save(t));
  return op.finish(y, [saved = std::move(saved), share, rows, in, out](Tensors& g, Needs needs) {
    const Tensor x = saved[0].unpack();
    Op op(x.tape(), "GroupedLinearBackward", {});
    op.reads(g[0]);
    op.reads(x);
    Tensors grads;
    grads.push_back(needs[0] ? empty(x.tape(), x.sizes(), x.dtype()) : Tensor());
    multiply(x, rows, in, static_cast<double>(out), share);
    const double each = rows / static_cast<double>(saved.size() - 1);
    for (size_t i = 1; i < saved.size(); ++i) grads.push_back(weight_gradient(saved[i].unpack(), each, share));
    return grads;
  });
}

// keeps the angles alone, which live anyway
Tensor fused_rotary(const Tensor& x) {
  Op op(x.tape(), "fused_rope", {&x});
  return op.finish(empty(x.tape(), x.sizes(), x.dtype()), [](Tensors& g, Needs) {
    Op op(g[0].tape(), "fused_rope_backward", {});
    op.reads(g[0]);
    return Tensors{empty(g[0].tape(), g[0].sizes(), g[0].dtype())};
  });
}

Tensors split_along_last(const Tensor& x, const std::vector<int64_t>& sizes) {
  Op op(x.tape(), "SplitAlongDim", {&x});
  op.reads_part();
  Tensors parts;
  for (const int64_t n : sizes) {
    Dims part = x.sizes();
    part[-1] = n;
    parts.push_back(alias(x, part, x.strides()));
  }
  op.finish(parts, [whole = x.sizes(), dtype = x.dtype()](Tensors& g, Needs) {
    Tape& tape = (g[0] ? g[0] : g.back()).tape();
    Op op(tape, "cat", {});
    for (const Tensor& t : g)
      if (t) op.reads(t);
    return Tensors{empty(tape, whole, dtype)};
  });
  return parts;
}

namespace {

double attention_flops(const Tensor& q, int64_t keys) {
  return static_cast<double>(q.numel()) * static_cast<double>(keys) * 2;  // half of 4, the mask is causal
}

// softmax statistics, and the state of the random numbers
std::pair<Tensor, Tensor> attention_state(const Tensor& q) {
  return {empty(q.tape(), {q.size(1), q.size(2), q.size(0), 1}, DType::float32), empty(q.tape(), {2}, DType::int64)};
}

// cuDNN sums the queries' gradient in fp32.
Ref<Storage> backward_scratch(const Tensor& q, int64_t width) { return q.tape().scratch(checked_mul(q.numel() / q.size(-1) * width, 4)); }

}  // namespace

// saves q, k, v, the output and the statistics
Tensor fused_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  Tape& tape = q.tape();
  Op op(tape, "FusedAttnFunc", {&q, &k, &v});
  Dims sizes = q.sizes();
  sizes[-1] = v.size(-1);
  const Tensor y = empty(tape, sizes, q.dtype());
  const auto [statistics, random] = attention_state(q);
  const double flops = attention_flops(q, k.size(0));
  tape.flops(flops, q.dtype(), Unit::attention);
  Saved sq = op.save(q), sk = op.save(k), sv = op.save(v), sy = op.save(y), ss = op.save(statistics), sr = op.save(random);
  return op.finish(y, [sq = std::move(sq), sk = std::move(sk), sv = std::move(sv), sy = std::move(sy), ss = std::move(ss),
                       sr = std::move(sr), flops](Tensors& g, Needs) {
    const Tensor q = sq.unpack(), k = sk.unpack(), v = sv.unpack(), y = sy.unpack(), s = ss.unpack();
    Op op(q.tape(), "FusedAttnFuncBackward", {});
    for (const Tensor& t : {q, k, v, y, g[0]}) op.reads(t);
    Tensors grads;
    for (const Tensor& t : {q, k, v}) grads.push_back(empty(t.tape(), t.sizes(), t.dtype()));
    const Ref<Storage> sum = backward_scratch(q, q.size(-1));
    q.tape().flops(2.5 * flops, q.dtype(), Unit::attention);
    return grads;
  });
}

Tensor fused_attention_packed(const Tensor& qkv, int64_t width) {
  Tape& tape = qkv.tape();
  Op op(tape, "FusedAttnFunc", {&qkv});
  Dims sizes = qkv.sizes();
  sizes[-1] = width;
  const Tensor y = empty(tape, sizes, qkv.dtype());
  const auto [statistics, random] = attention_state(qkv);
  const double flops = attention_flops(y, qkv.size(0));
  tape.flops(flops, qkv.dtype(), Unit::attention);
  Saved sx = op.save(qkv), sy = op.save(y), ss = op.save(statistics), sr = op.save(random);
  return op.finish(y, [sx = std::move(sx), sy = std::move(sy), ss = std::move(ss), sr = std::move(sr), flops, width](Tensors& g, Needs) {
    const Tensor x = sx.unpack(), y = sy.unpack(), s = ss.unpack();
    Op op(x.tape(), "FusedAttnFuncBackward", {});
    for (const Tensor& t : {x, y, g[0]}) op.reads(t);
    Tensors grads{empty(x.tape(), x.sizes(), x.dtype())};
    const Ref<Storage> sum = backward_scratch(x, width);
    x.tape().flops(2.5 * flops, x.dtype(), Unit::attention);
    return grads;
  });
}

Tensor exchange_heads(const Tensor& x, int64_t ranks, bool back) {
  if (ranks <= 1) return x;
  const auto moved = [ranks](const Tensor& t, bool to_tokens) {
    Dims sizes = t.sizes();
    sizes[0] = to_tokens ? sizes[0] * ranks : sizes[0] / ranks;
    sizes[2] = to_tokens ? sizes[2] / ranks : sizes[2] * ranks;
    Op op(t.tape(), "all_to_all", {});
    op.reads(t);
    const Tensor sent = empty(t.tape(), t.sizes(), t.dtype()), received = empty(t.tape(), t.sizes(), t.dtype());
    return empty(t.tape(), sizes, t.dtype());  // the received parts in their order
  };
  Op op(x.tape(), "all_to_all", {&x});
  return op.finish(moved(x, !back), [moved, back](Tensors& g, Needs) { return Tensors{moved(g[0], back)}; });
}

// saves the mask of what stays, one byte an element
Tensor bias_dropout_add(const Tensor& x, const Tensor& bias, const Tensor& residual, double p) {
  Tape& tape = x.tape();
  Op op(tape, "bias_dropout_add", {&x, &bias, &residual});
  const Tensor y = empty(tape, residual.sizes(), residual.dtype());
  const bool drops = p > 0 && tape.training;
  Saved mask = drops ? op.save(empty(tape, x.sizes(), DType::bool_)) : Saved();
  return op.finish(y, [mask = std::move(mask), drops, width = x.size(-1)](Tensors& g, Needs needs) {
    Op op(g[0].tape(), "bias_dropout_add_backward", {});
    op.reads(g[0]);
    Tensors grads(3);
    grads[0] = drops ? empty(g[0].tape(), g[0].sizes(), g[0].dtype()) : g[0];
    grads[1] = bias_gradient(needs[1], width, g[0]);
    grads[2] = g[0];
    return grads;
  });
}

namespace {

Tensor activation(const char* name, const Tensor& x, const Tensor& other, int64_t width) {
  Op op(x.tape(), name, {&x, &other});
  Saved sx = op.save(x), so = op.save(other);
  Dims sizes = x.sizes();
  sizes[-1] = width;
  return op.finish(empty(x.tape(), sizes, x.dtype()), [sx = std::move(sx), so = std::move(so)](Tensors& g, Needs needs) {
    const Tensor x = sx.unpack();
    Op op(x.tape(), "activation_backward", {});
    op.reads(g[0]);
    op.reads(x);
    Tensors grads(2);
    grads[0] = empty(x.tape(), x.sizes(), x.dtype());
    if (needs[1]) {
      const Tensor o = so.unpack();
      grads[1] = empty(x.tape(), o.sizes(), o.dtype());
    }
    return grads;
  });
}

}  // namespace

Tensor bias_gelu(const Tensor& x, const Tensor& bias) { return activation("bias_gelu", x, bias, x.size(-1)); }
Tensor fused_swiglu(const Tensor& x, const Tensor& bias) { return activation("bias_swiglu", x, bias, x.size(-1) / 2); }
Tensor weighted_swiglu(const Tensor& x, const Tensor& weights) { return activation("weighted_swiglu", x, weights, x.size(-1) / 2); }

// saves the softmax in fp32, which becomes the gradient in place; then it is cast
Tensor vocab_parallel_cross_entropy(const Tensor& logits, const Tensor& target) {
  Tape& tape = logits.tape();
  Op op(tape, "VocabParallelCrossEntropy", {&logits});
  const Dims rows = target.sizes();
  const Tensor softmax = empty(tape, logits.sizes(), DType::float32);
  const Tensor mask = empty(tape, rows, DType::bool_), masked = empty(tape, rows, DType::int64);
  Tensor loss;
  {
    const Tensor largest = empty(tape, rows, DType::float32), predicted = empty(tape, rows, DType::float32),
                 sum = empty(tape, rows, DType::float32);
    loss = empty(tape, rows, DType::float32);
  }
  Saved ss = op.save(softmax), sm = op.save(mask), st = op.save(masked);
  return op.finish(loss, [ss = std::move(ss), sm = std::move(sm), st = std::move(st), dtype = logits.dtype()](Tensors& g, Needs) {
    const Tensor softmax = ss.unpack();
    Op op(softmax.tape(), "VocabParallelCrossEntropyBackward", {});
    op.reads(softmax);
    return Tensors{empty(softmax.tape(), softmax.sizes(), dtype)};
  });
}

// saves the logits' own memory
Tensor fused_cross_entropy(const Tensor& logits, const Tensor& target) {
  Tape& tape = logits.tape();
  Op op(tape, "CrossEntropyFunction", {&logits});
  const Tensor loss = empty(tape, target.sizes(), DType::float32);
  { const Tensor parts = empty(tape, {checked_mul(3, target.numel())}, DType::float32); }
  Saved saved = op.save(detach(logits));
  return op.finish(loss, [saved = std::move(saved)](Tensors& g, Needs) {
    const Tensor grad = saved.unpack();
    Op op(grad.tape(), "CrossEntropyFunctionBackward", {});
    op.reads(grad);
    return Tensors{detach(grad)};
  });
}

}  // namespace plimsoll
