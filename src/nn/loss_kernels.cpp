#include "nn/loss_kernels.h"

#include <algorithm>
#include <bit>

#include "nn/model.h"
#include "ops/index.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Tokens that have a label; what data would tell.
int64_t labelled(const Build& build, const Tensor& labels) {
  const int64_t n = build.batch ? build.batch->shape.labelled : labels.size(0) * (labels.size(1) - 1);
  if (n > 0) return n;
  throw Error("[loss_kernel] no token of the batch has a label: samples of one token have nothing to predict", "give longer samples");
}

// Indices of what is not zero in `mask`: (n, dimensions)
Tensor nonzero(const Tensor& mask, int64_t n) { return filled(mask.tape(), "nonzero", {n, mask.dim()}, DType::int64); }

Tensor shifted(const Tensor& labels) {
  const Tensor padded = constant_pad_nd(labels, {0, 1});
  return contiguous(slice(padded, -1, 1, padded.size(-1)));
}

Tensors tensor_split(const Tensor& x, int64_t chunks, int dim) {
  Tensors parts;
  const int64_t n = x.size(dim), shortest = n / chunks, longer = n % chunks;
  for (int64_t i = 0, start = 0; i < chunks; ++i) {
    const int64_t end = start + shortest + (i < longer ? 1 : 0);
    parts.push_back(slice(x, dim, start, end));
    start = end;
  }
  return parts;
}

Tensor sum_of_chunk(const Tensor& logits, const Tensor& targets) {
  const Tensor wide = to(logits, DType::float32);
  return cross_entropy(wide, targets);
}

// torchtune (commit bd2a0fc), modules/loss/cross_entropy_loss.py, LinearCrossEntropyLoss: tokens without a label are left out first.
Tensor chunked(const Build& build, const HeadCall& call, const Tensor& hidden, const Tensor& labels) {
  Tape& tape = hidden.tape();
  const int64_t n = labelled(build, labels);
  Tensor targets = shifted(labels);
  nonzero(compare_scalar("ne", targets), n);
  targets = reshape(targets, {-1});
  Tensor outputs = reshape(hidden, {-1, hidden.size(-1)});
  {
    const Tensor indices = select(nonzero(compare_scalar("ne", targets), n), 1, 0);
    outputs = index_select(outputs, indices);  // (n, C)
    targets = index_select(targets, indices);  // (n,)
  }
  const Tensors parts = tensor_split(outputs, build.loss.chunks, 0), labels_of = tensor_split(targets, build.loss.chunks, 0);
  Tensor total = filled(tape, "empty", {}, DType::float32), loss;
  for (size_t i = 0; i < parts.size(); ++i) {
    loss = sum_of_chunk(call.logits(parts[i]), labels_of[i]);
    total = add_(total, loss);
  }
  return div_scalar(total);
}

// torchtune (commit bd2a0fc), modules/loss/ce_chunked_output_loss.py and TransformerDecoder.chunked_output
Tensor chunked_output(const Build& build, const HeadCall& call, const Tensor& hidden, const Tensor& labels) {
  Tensors outputs;
  for (const Tensor& part : tensor_split(hidden, build.loss.chunks, 1)) outputs.push_back(call.logits(part));  // (B, t, V)
  Tensor targets = shifted(labels);
  Tensor total_elements;
  {
    const Tensor counted = compare_scalar("ne", targets);
    total_elements = filled(hidden.tape(), "sum", {}, DType::int64);
  }
  Tensors labels_of, logits;
  for (const Tensor& part : tensor_split(targets, build.loss.chunks, 1)) labels_of.push_back(reshape(part, {part.numel()}));
  targets.reset();  // Python's name now means the list
  for (const Tensor& part : outputs) logits.push_back(reshape(part, {part.size(0) * part.size(1), part.size(-1)}));
  Tensor total;
  for (size_t i = 0; i < logits.size(); ++i) {
    const Tensor loss = sum_of_chunk(logits[i], labels_of[i]);
    total = total ? add_(total, loss) : add_scalar(loss);
  }
  return div(total, total_elements);
}

// ---- Liger ------------------------------------------------------------------------------------------------------------

struct LigerGradients {
  Tensor input, weight;
};

// grad_weight += logits.t() @ input: into an fp32 sum from half logits by one call of the library, from PyTorch 2.8 on; else
// through the product, and that in fp32 once more.
void add_weight_gradient(const Tensor& logits, const Tensor& chunk, const Tensor& sum, Tensor& input_chunk) {
  Tape& tape = logits.tape();
  if (tape.dialect.torch >= Version{2, 8} && sum.dtype() == DType::float32 && is_half(logits.dtype())) {
    input_chunk = to(chunk, logits.dtype());
    tape.use_blas(false);
    tape.flops(2.0 * static_cast<double>(logits.numel()) * static_cast<double>(chunk.size(1)), logits.dtype(), Unit::matmul);
    return;
  }
  const Tensor product = mm(t(logits), chunk);
  to(product, DType::float32);
}

// Liger-Kernel (commit ead96b6), ops/fused_linear_cross_entropy.py, fused_linear_cross_entropy_forward. The kernel writes the gradient over
// the logits. Names live as long as in Python: two chunks of logits are alive while the next is multiplied.
LigerGradients fused_gradients(const Tensor& input, const Tensor& weight, bool wants_input, bool wants_weight) {
  const int64_t rows = input.size(0),
                size = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ceil_div(rows, ceil_div(weight.size(0), input.size(1))))));
  LigerGradients sums;
  sums.input = filled(input.tape(), "zeros_like", input.sizes(), input.dtype());
  if (wants_weight) sums.weight = filled(input.tape(), "zeros_like", weight.sizes(), weight.dtype());
  const Tensor loss_1d = filled(input.tape(), "zeros", {rows}, DType::float32);
  const Tensor target_mask = filled(input.tape(), "ne", {rows}, DType::bool_);
  filled(input.tape(), "sum", {}, DType::int64);
  Tensor logits, grad_logits, grad_logits_t, input_chunk;
  for (int64_t start = 0; start < rows; start += size) {
    const Tensor chunk = slice(input, 0, start, std::min(start + size, rows));  // (s, C)
    logits = matmul(chunk, t(weight));                                          // (s, V)
    grad_logits = logits;
    if (Tape& tape = input.tape(); tape.work)  // reads the logits twice and writes their gradient over them
      tape.work->add(tape, {.op = "liger_cross_entropy_kernel", .bytes = 3 * logits.storage().bytes});
    if (wants_input) matmul(grad_logits, weight);  // copied into its rows
    if (!wants_weight) continue;
    grad_logits_t = grad_logits;
    add_weight_gradient(grad_logits, chunk, sums.weight, input_chunk);
  }
  return sums;
}

// saves the gradients; backward hands them out. A gradient of the loss other than 1 is multiplied in, in place.
Tensor fused_linear_cross_entropy(const Tensor& input, const Tensor& weight) {
  Tape& tape = input.tape();
  Op op(tape, "LigerFusedLinearCrossEntropy", {&input, &weight});
  Tensor loss;
  LigerGradients sums;
  {
    GradGuard no_grad(tape, false);
    sums = fused_gradients(input, weight, input.requires_grad(), input.requires_grad() && weight.requires_grad());
    loss = filled(tape, "sum", {}, DType::float32);
  }
  Saved grad_input = op.save(sums.input), grad_weight = op.save(sums.weight);
  return op.finish(loss, [grad_input = std::move(grad_input), grad_weight = std::move(grad_weight)](Tensors& g, Needs) {
    Tape& tape = g[0].tape();
    Tensors grads{grad_input.unpack(), grad_weight.defined() ? grad_weight.unpack() : Tensor()};
    const Tensor one = filled(tape, "empty", {}, DType::float32);  // torch.equal(grad_output, 1)
    all(compare("eq", g[0], one));
    return grads;
  });
}

// transformers/model/loss_utils.py, LigerForCausalLMLoss
Tensor liger(const Build&, const HeadCall& call, const Tensor& hidden, const Tensor& labels) {
  const Tensor padded = constant_pad_nd(labels, {0, 1});
  const Tensor targets = contiguous(slice(padded, -1, 1, padded.size(-1)));
  return fused_linear_cross_entropy(view(hidden, {-1, hidden.size(-1)}), call.head.weight);
}

// ---- Apple ------------------------------------------------------------------------------------------------------------

// cut_cross_entropy/utils.py, _build_flat_valids with a shift: where the labels are, in the flat batch.
Tensor flat_valids(const Tensor& targets, int64_t n) {
  Tensor valids;
  {
    const Tensor found = nonzero(compare_scalar("ne", slice(targets, -1, 1, targets.size(-1))), n);
    valids = nondiff("_to_copy", found, DType::int32);  // (n, 2)
  }
  return filled(targets.tape(), "sum", {n}, DType::int64);
}

// Of one product between n tokens and the head.
double product_flops(int64_t n, const Tensor& weight) { return 2.0 * static_cast<double>(n) * static_cast<double>(weight.numel()); }

struct CutSaved {
  Saved e, c, lse, targets, valids, logit_avg;
  DType e_type, c_type;
};

// cce_backward.py, cce_backward_kernel: gradients in the type of the product, then in that of the tensors; locks for both.
Tensors cut_gradients(const CutSaved& saved, Needs needs) {
  const Tensor e = saved.e.unpack(), c = saved.c.unpack(), lse = saved.lse.unpack();
  Tape& tape = e.tape();
  // The logits again; where bf16 rounds their gradient to zero it is not multiplied further. Twice forward's 46 ms in the library's README.
  if (tape.work)
    tape.work->add(tape,
                   {.op = "cce_backward_kernel", .flops = 2 * product_flops(lse.size(0), c), .unit = Unit::matmul, .dtype = c.dtype()});
  Tensor vocab_ordering;
  {
    const Tensor average = saved.logit_avg.unpack();
    Tensor order;
    {
      const Tensor values = empty_like(average);
      order = filled(tape, "sort", average.sizes(), DType::int64);
    }
    vocab_ordering = nondiff("_to_copy", order, DType::int32);
  }
  Tensors grads(2);
  if (needs[0]) grads[0] = filled(tape, "zeros_like", e.sizes(), e.dtype());
  if (needs[1]) grads[1] = filled(tape, "zeros_like", c.sizes(), c.dtype());
  const int64_t width = ceil_div(c.size(1), 64);
  Tensor e_locks, c_locks;
  if (needs[0]) e_locks = filled(tape, "new_zeros", {ceil_div(lse.size(0), 128), width}, DType::int32);
  if (needs[1]) c_locks = filled(tape, "new_zeros", {ceil_div(c.size(0), 128), width}, DType::int32);
  if (needs[1]) grads[1] = to(grads[1], saved.c_type);
  if (needs[0]) grads[0] = to(grads[0], saved.e_type);
  return grads;
}

// cce.py, LinearCrossEntropyFunction: the log-sum-exp of each token is all that is made of the logits. Saves both factors, in the
// type of autocast, and vectors.
Tensor cut_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& targets, const Tensor& valids, bool soft_capped) {
  Tape& tape = input.tape();
  const int64_t n = valids.size(0);
  Op op(tape, "LinearCrossEntropyFunction", {&input, &weight});
  GradGuard no_grad(tape, false);
  const DType type = tape.autocast.value_or(input.dtype());
  const Tensor e = to(input, type), c = to(weight, type);
  tape.flops(product_flops(n, c), type, Unit::matmul);
  const Tensor lse = filled(tape, "new_full", {n}, DType::float32);
  Tensor logit_avg;
  {
    const Tensor locks = filled(tape, "new_full", {ceil_div(n, 128)}, DType::int32);
    if (op.recording()) logit_avg = filled(tape, "new_full", {weight.size(0)}, DType::float32);
  }
  Tensor neg_dot = filled(tape, "new_zeros", {n}, DType::float32);
  if (soft_capped) neg_dot = empty_like(neg_dot);
  CutSaved saved{op.save(e),      op.save(c),         op.save(lse),  op.save(targets),
                 op.save(valids), op.save(logit_avg), input.dtype(), weight.dtype()};
  return op.finish(filled(tape, "mean", {}, DType::float32),
                   [saved = std::move(saved)](Tensors&, Needs needs) { return cut_gradients(saved, needs); });
}

Tensor cut(const Build& build, const HeadCall& call, const Tensor& hidden, const Tensor& labels) {
  const Tensor valids = flat_valids(labels, labelled(build, labels));
  return cut_cross_entropy(flatten(contiguous(hidden), 0, -2), call.head.weight, flatten(labels, 0, -1), valids, call.soft_capped);
}

}  // namespace

bool replaces_loss(const Build& build, const Tensor& labels) {
  if (!labels || build.loss.kernel == LossKernel::model) return false;
  return build.loss.kernel != LossKernel::liger || build.tape.training;  // Liger's forward makes logits in evaluation
}

Tensor linear_cross_entropy(Build& build, const HeadCall& call, const Tensor& hidden, const Tensor& labels) {
  const bool reads_weight = build.loss.kernel == LossKernel::liger || build.loss.kernel == LossKernel::cut;
  if (reads_weight && (call.head.is_adapted() || call.head.quantized))
    throw Error(std::string("[loss_kernel] ") + to_string(build.loss.kernel) + " reads the head's weight past its adapter or packing",
                "leave the head out of the adapter's target_modules, or choose another loss_kernel");
  Forward here(call.head);
  switch (build.loss.kernel) {
    case LossKernel::liger: return liger(build, call, hidden, labels);
    case LossKernel::chunked: return chunked(build, call, hidden, labels);
    case LossKernel::chunked_output: return chunked_output(build, call, hidden, labels);
    default: return cut(build, call, hidden, labels);
  }
}

}  // namespace plimsoll
