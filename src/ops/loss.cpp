#include "ops/loss.h"
#include "ops/loss_by_element.h"

#include "ops/autocast.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "tensor/number.h"

namespace plimsoll {

namespace {

// saves the result, and before PyTorch 1.11 the input too; backward allocates a gradient in the input's type
Tensor normalise(const char* name, const char* backward_name, const Tensor& input, std::optional<DType> wanted) {
  Tape& tape = input.tape();
  if (!wanted && tape.autocast && is_half(input.dtype())) wanted = DType::float32;  // autocast's fp32 list
  // CUDA fuses float16 -> float32; every other conversion is a copy first.
  const bool fused = wanted == DType::float32 && input.dtype() == DType::float16;
  const Tensor x = wanted && !fused ? to(input, *wanted) : input;
  Op op(tape, name, {&x});
  Saved self = op.save_if(tape.dialect.torch < Version{1, 11}, x);
  Tensor y = empty_like(x, fused ? DType::float32 : x.dtype());
  Saved result = op.save(y);
  return op.finish(y, [self = std::move(self), result = std::move(result), dtype = x.dtype(), backward_name](Tensors& g, Needs) {
    const Tensor y = result.unpack();
    Op op(y.tape(), backward_name, {});
    op.reads(y);
    op.reads(g[0]);
    return Tensors{empty_like(g[0], dtype)};
  });
}

}  // namespace

Tensor softmax(const Tensor& x, std::optional<DType> dtype) { return normalise("_softmax", "_softmax_backward_data", x, dtype); }

Tensor log_softmax(const Tensor& x, std::optional<DType> dtype) {
  return normalise("_log_softmax", "_log_softmax_backward_data", x, dtype);
}

namespace {

// saves the log-probabilities, the target and the total weight; backward allocates like the log-probabilities. On
// autocast's fp32 list.
Tensor negative_log_likelihood(const Tensor& input, const Tensor& target, bool by_element) {
  const Tensor log_probs = autocast_fp32(input);
  Tape& tape = log_probs.tape();
  const bool of_pixels = log_probs.dim() > 2;
  Op op(tape, of_pixels ? "nll_loss2d_forward" : "nll_loss_forward", {&log_probs});
  op.reads_part();
  Saved self = op.save(log_probs), labels = op.save(target);
  Tensor loss = empty(tape, by_element ? target.sizes() : Dims{}, log_probs.dtype());
  Saved total_weight = op.save(empty(tape, {}, log_probs.dtype()));
  const char* backward_name = of_pixels ? "nll_loss2d_backward" : "nll_loss_backward";
  return op.finish(
      loss, [self = std::move(self), labels = std::move(labels), total_weight = std::move(total_weight), backward_name](Tensors&, Needs) {
        const Tensor x = self.unpack(), target = labels.unpack(), weight = total_weight.unpack();
        Op op(x.tape(), backward_name, {});
        return Tensors{empty_like(x)};
      });
}

}  // namespace

Tensor nll_loss(const Tensor& input, const Tensor& target) { return negative_log_likelihood(input, target, false); }

// One composite op that names the type of its softmax, so that autocast casts the log-probabilities, not the logits.
Tensor cross_entropy(const Tensor& logits, const Tensor& target) {
  const Tensor log_probs = log_softmax(logits, logits.dtype());
  return nll_loss(log_probs, target);
}

Tensor cross_entropy_by_element(const Tensor& logits, const Tensor& target) {
  const Tensor log_probs = log_softmax(logits, logits.dtype());
  return negative_log_likelihood(log_probs, target, true);
}

// saves logits and target; backward: (sigmoid(logits) - target) * grad / n, the last two in place but for the recorder's tensors.
// On autocast's fp32 list.
Tensor binary_cross_entropy_with_logits(const Tensor& raw, const Tensor& raw_target) {
  const Tensor target = autocast_fp32(raw_target), logits = autocast_fp32(raw);
  Tape& tape = logits.tape();
  Op op(tape, "binary_cross_entropy_with_logits", {&logits});
  Saved self = op.save(logits), labels = op.save(target);
  Tensor out = empty(tape, {}, promote(logits.dtype(), target.dtype()));
  return op.finish(std::move(out), [self = std::move(self), labels = std::move(labels)](Tensors&, Needs) {
    const Tensor x = self.unpack(), target = labels.unpack();
    Tensor grad = nondiff("sigmoid", x, x.dtype());
    grad = sub(grad, target);
    if (x.tape().dialect.recorder) grad = nondiff("mul", grad, grad.dtype());
    return Tensors{grad};
  });
}

namespace {

// saves input and target; backward allocates a gradient like the input. On autocast's fp32 list.
Tensor squared_error(const Tensor& raw, const Tensor& raw_target, bool by_element) {
  const Tensor target = autocast_fp32(raw_target), input = autocast_fp32(raw);
  broadcast(input.sizes(), target.sizes());
  Op op(input.tape(), "mse_loss", {&input});
  Saved self = op.save(input), labels = op.save(target);
  Tensor out;
  if (by_element || !input.tape().dialect.rules.mse_loss_makes_elements) {
    out = by_element ? empty_like(input) : empty(input.tape(), {}, input.dtype());
  } else {  // the mean lies in memory that was made for all elements
    out = alias(empty_like(input), {}, {});
    const Tensor by_element = empty_like(input);
    const Number count(input.tape(), input.dtype());
  }
  return op.finish(std::move(out), [self = std::move(self), labels = std::move(labels)](Tensors&, Needs) {
    const Tensor x = self.unpack(), target = labels.unpack();
    Op op(x.tape(), "mse_loss_backward", {});
    return Tensors{empty_like(x)};
  });
}

}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target) { return squared_error(input, target, false); }
Tensor mse_loss_by_element(const Tensor& input, const Tensor& target) { return squared_error(input, target, true); }

// Two ops, of which the second saves the difference. On autocast's fp32 list.
Tensor l1_loss(const Tensor& raw, const Tensor& raw_target) {
  const Tensor target = autocast_fp32(raw_target), input = autocast_fp32(raw);
  return abs(sub(input, target));
}

// saves the log-probabilities, the targets, the losses and log_alpha; backward makes a log_beta as large, and the gradient
// (LossCTC.cu, ctc_loss_gpu_template and ctc_loss_backward_gpu_template)
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, int64_t target_length) {
  Tape& tape = log_probs.tape();
  Op op(tape, "_ctc_loss", {&log_probs});
  Saved self = op.save(log_probs), labels = op.save(targets);
  const int64_t states = checked_add(checked_mul(2, target_length), 1);
  Tensor loss = empty(tape, {log_probs.size(1)}, log_probs.dtype());
  const Tensor alpha = empty(tape, {log_probs.size(1), log_probs.size(0), states}, log_probs.dtype());
  Saved losses = op.save(loss), log_alpha = op.save(alpha);
  return op.finish(loss, [self = std::move(self), labels = std::move(labels), losses = std::move(losses), log_alpha = std::move(log_alpha)](
                             Tensors&, Needs) {
    const Tensor x = self.unpack(), target = labels.unpack(), loss = losses.unpack(), alpha = log_alpha.unpack();
    Op op(x.tape(), "_ctc_loss_backward", {});
    const Tensor log_beta = empty_like(alpha);
    return Tensors{empty(x.tape(), x.sizes(), x.dtype())};
  });
}

}  // namespace plimsoll
