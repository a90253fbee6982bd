#include "nn/transformer.h"

#include "nn/model.h"
#include "nn/tensor_parallel.h"
#include "ops/attention.h"
#include "ops/dtensor.h"
#include "ops/flash_attention_2.h"
#include "ops/index.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

Tensor repeat_kv(const Tensor& x, int64_t groups) {
  if (groups == 1) return x;
  const int64_t b = x.size(0), kv = x.size(1), t = x.size(2), d = x.size(3);
  const Tensor wide = expand(unsqueeze(x, 2), {b, kv, groups, t, d});
  return reshape(wide, {b, kv * groups, t, d});
}

Tensor soft_cap(Tensor x) {
  x = div_scalar(x);
  x = tanh(x);
  return mul_scalar(x);
}

namespace {

Tensor eager_attention(const Tensor& q, const Tensor& key, const Tensor& value, const AttentionCall& call, Tensor* kept) {
  const Tensor k = repeat_kv(key, call.kv_groups), v = repeat_kv(value, call.kv_groups);
  Tensor weights = matmul(q, transpose(k, 2, 3));  // (B, H, T, T)
  weights = mul_scalar(weights);
  if (call.softcap) weights = soft_cap(std::move(weights));
  if (call.mask) weights = add(weights, call.mask);
  if (call.clamps_scores) weights = clamp_min(weights);
  if (call.softmax_fp32) {
    const Tensor probs = softmax(weights, DType::float32);
    weights = to(probs, call.cast_to_values ? v.dtype() : q.dtype());
  } else {
    weights = softmax(weights);
    if (call.cast_weights) weights = to(weights, q.dtype());
  }
  weights = dropout(weights, call.dropout);
  Tensor out = matmul(weights, v);  // (B, H, T, D)
  out = transpose(out, 1, 2);
  if (call.contiguous_eager) out = contiguous(out);
  if (kept) *kept = weights;
  return out;
}

Tensor sdpa_attention(const Tensor& q, Tensor k, Tensor v, const AttentionCall& call) {
  AttentionArgs args;
  args.mask = call.mask;
  args.dropout = call.dropout;
  if (call.has_kv_groups) {
    if (call.mask) {  // grouped-query kernels take no mask
      k = repeat_kv(k, call.kv_groups);
      v = repeat_kv(v, call.kv_groups);
    } else {
      args.grouped = true;
    }
  }
  args.causal = q.size(2) > 1 && !call.mask && call.causal;
  Tensor out = scaled_dot_product_attention(q, k, v, args);
  out = contiguous(transpose(out, 1, 2));
  return out;
}

// transformers.modeling_flash_attention_utils, _is_packed_sequence and prepare_fa_kwargs_from_position_ids, in every layer:
// undefined when the positions do not start anew.
Tensor packed_starts(const Build& build, const Tensor& q) {
  const bool packed = build.batch && build.batch->shape.packed_samples;
  {
    const Tensor positions = arange(build.tape, q.size(1));
    const Tensor increasing = nondiff("add", positions, DType::int64);
    if (q.size(0) == 1) nondiff("abs", nondiff("sub", increasing, DType::int64), DType::int64);
  }
  return packed ? filled(build.tape, "cat", {build.batch->shape.packed_samples + 1}, DType::int32) : Tensor();
}

// _upad_input, the library, pad_input: tokens without padding are copied out and back.
Tensor padded_flash_attention(const Build& build, const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  const BatchShape& shape = build.batch->shape;
  const int64_t tokens = shape.labelled + shape.rows;  // the first of each sample has no label
  const Tensor indices = filled(build.tape, "nonzero", {tokens}, DType::int64);
  auto without_padding = [&](const Tensor& x) { return index(reshape(x, {-1, x.size(2), x.size(3)}), indices); };
  const Tensor keys = without_padding(k), values = without_padding(v), queries = without_padding(q);
  const Varlen lengths{filled(build.tape, "constant_pad_nd", {shape.rows + 1}, DType::int32), shape.rows};
  const Tensor out = flash_attention_2(queries, keys, values, lengths, causal);
  return view(index_put_first_axis(out, indices, q.size(0) * q.size(1)), {q.size(0), q.size(1), out.size(1), out.size(2)});
}

Tensor flash_attention_2_forward(const Build& build, const Tensor& query, const Tensor& key, const Tensor& value,
                                 const AttentionCall& call) {
  Tensor q = transpose(query, 1, 2), k = transpose(key, 1, 2), v = transpose(value, 1, 2);  // (B, T, H, D)
  if (q.dtype() == DType::float32 && build.tape.autocast)
    for (Tensor* x : {&q, &k, &v}) *x = to(*x, *build.tape.autocast);
  const Tensor starts = packed_starts(build, q);
  if (call.mask) return padded_flash_attention(build, q, k, v, call.causal);
  if (!starts) return flash_attention_2(q, k, v, call.causal);
  for (Tensor* x : {&q, &k, &v}) *x = view(contiguous(*x), {-1, x->size(2), x->size(3)});
  const Tensor out = flash_attention_2(q, k, v, {starts, build.batch->shape.packed_samples}, call.causal);
  return view(out, {1, -1, out.size(1), out.size(2)});
}

}  // namespace

void update_cache(Build& build, Tensor& k, Tensor& v) {
  if (!build.cache) return;
  if (!build.legacy()) {
    auto joined = [&, dtype = k.dtype()](const Tensor& x) {  // values, too, begin as nothing in the keys' type
      Dims none = x.sizes();
      none[2] = 0;
      return cat({empty(build.tape, none, dtype), x}, 2);
    };
    Tensor keys = joined(k);
    v = joined(v);
    k = std::move(keys);
  }
  build.cache->push_back(k);
  build.cache->push_back(v);
}

Tensor attention(Build& build, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call, Tensor* weights) {
  Tensor keys = k, values = v;
  if (call.causal && call.caches) update_cache(build, keys, values);
  if (build.tape.dialect.attention == AttentionKernel::flash_attention_2) return flash_attention_2_forward(build, q, keys, values, call);
  return build.eager() ? eager_attention(q, keys, values, call, weights) : sdpa_attention(q, keys, values, call);
}

void reject_captured_outputs(const Config& config) {
  for (const char* key : {"output_hidden_states", "output_attentions"})
    if (config.flag({key}, false))
      throw Error("[" + config.source() + "] " + key + " true is not supported", std::string("leave ") + key + " false");
}

void require_positions(const char* model, int64_t needed, const char* key, int64_t available) {
  if (needed <= available) return;
  throw Error(
      std::string("[") + model + "] " + std::to_string(needed) + " positions are more than " + key + " " + std::to_string(available),
      std::string("shorten the sequence or raise ") + key);
}

Tensor position_ids(const Build& build, int64_t tokens) {
  if (build.batch && build.batch->position_ids) return build.batch->position_ids;
  return unsqueeze(nondiff("add", arange(build.tape, tokens), DType::int64), 0);
}

int64_t positions_in(const Build& build, int64_t tokens) {
  return build.batch && build.batch->shape.packed_samples ? build.batch->shape.longest : tokens;
}

namespace {

// NewGELUActivation: 0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3))), op by op.
Tensor gelu_new(const Tensor& x) {
  const Tensor half = mul_scalar(x);
  Tensor inner = pow(x, 3);
  inner = mul_scalar(inner);
  inner = add(x, inner);
  inner = mul_scalar(inner);
  inner = tanh(inner);
  inner = add_scalar(inner);
  return mul(half, inner);
}

// FastGELUActivation: 0.5 * x * (1 + tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))), op by op.
Tensor gelu_fast(const Tensor& x) {
  const Tensor half = mul_scalar(x);
  Tensor inner;
  {
    const Tensor scaled = mul_scalar(x);
    Tensor square = mul_scalar(x);
    square = mul(square, x);
    square = add_scalar(square);
    inner = mul(scaled, square);
  }
  inner = tanh(inner);
  inner = add_scalar(inner);
  return mul(half, inner);
}

// quick_gelu: x * sigmoid(1.702 * x)
Tensor quick_gelu(const Tensor& x) {
  const Tensor gate = sigmoid(mul_scalar(x));
  return mul(x, gate);
}

}  // namespace

Tensor activation(std::string_view name, const Tensor& x) {
  if (name == "silu" || name == "swish") return silu(x);
  if (name == "gelu" || name == "gelu_pytorch_tanh") return gelu(x);
  if (name == "gelu_new") return gelu_new(x);
  if (name == "gelu_fast") return gelu_fast(x);
  if (name == "relu") return relu(x);
  if (name == "tanh") return tanh(x);
  if (name == "sigmoid") return sigmoid(x);
  if (name == "quick_gelu") return quick_gelu(x);
  throw Error("[activation] '" + std::string(name) + "' is not known",
              "known: silu, swish, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, quick_gelu, relu, tanh, sigmoid");
}

Tensor activation(const Module& owner, std::string_view name, const Tensor& input) {
  return run_function(
      owner, [name](const Tensor& x) { return activation(name, x); }, input);
}

Tensor apply_chunking_to_forward(const std::function<Tensor(const Tensor&)>& forward, int64_t chunk_size, const Tensor& x) {
  if (chunk_size <= 0) return forward(x);
  if (x.size(1) % chunk_size != 0)
    throw Error(
        "[model] chunk_size_feed_forward " + std::to_string(chunk_size) + " does not divide the " + std::to_string(x.size(1)) + " tokens",
        "choose a sequence length that it divides");
  const Tensors chunks = chunk(x, x.size(1) / chunk_size, 1);
  Tensors outputs;
  for (const Tensor& piece : chunks) outputs.push_back(forward(piece));  // (B, chunk, C)
  return cat(outputs, 1);                                                // (B, T, C)
}

Tensor shifted_cross_entropy(const Tensor& logits, const Tensor& labels) {
  if (!labels) return {};
  Tensor shift_logits = contiguous(slice(logits, 1, 0, logits.size(1) - 1)), shift_labels = contiguous(slice(labels, 1, 1, labels.size(1)));
  shift_logits = view(shift_logits, {-1, logits.size(-1)});
  shift_labels = view(shift_labels, {-1});
  return cross_entropy(shift_logits, shift_labels);
}

Tensor causal_lm_loss(const Build& build, const Tensor& raw_logits, const Tensor& labels, bool upcast_before_4_49) {
  if (!labels) return {};
  const bool shifts_logits = build.transformers < Version{4, 49};  // transformers pull 35646
  Tensor logits = shifts_logits && !upcast_before_4_49 ? raw_logits : to(raw_logits, DType::float32);
  if (shifts_logits) return shifted_cross_entropy(logits, labels);
  const Tensor padded = constant_pad_nd(labels, {0, 1});
  Tensor shifted = contiguous(slice(padded, -1, 1, padded.size(-1)));
  logits = view(logits, {-1, logits.size(-1)});
  shifted = view(shifted, {-1});
  const TensorParallel* tp = build.tensor_parallel;
  return tp && tp->settings.loss_parallel ? sharded_cross_entropy(logits, shifted) : cross_entropy(logits, shifted);
}

Tensor flat_cross_entropy(const Tensor& raw_logits, const Tensor& labels, bool upcast) {
  if (!labels) return {};
  const Tensor logits = upcast ? to(raw_logits, DType::float32) : raw_logits;
  return cross_entropy(view(logits, {-1, logits.size(-1)}), view(labels, {-1}));
}

}  // namespace plimsoll
