#include "ops/pointwise.h"

#include <string_view>

#include "ops/autocast.h"
#include "ops/reshape.h"
#include "tensor/iterator.h"
#include "tensor/number.h"

namespace plimsoll {

namespace {

// The type of a result: a zero-dimensional tensor does not widen one with dimensions (torch.result_type).
DType result_type(const Tensor& a, const Tensor& b) {
  if (is_floating(a.dtype()) == is_floating(b.dtype())) {
    if (a.dim() > 0 && b.dim() == 0) return a.dtype();
    if (b.dim() > 0 && a.dim() == 0) return b.dtype();
  }
  return promote(a.dtype(), b.dtype());
}

Tensor binary_result(const Tensor& a, const Tensor& b) {
  const Dims shape = broadcast(a.sizes(), b.sizes());
  const DType dtype = result_type(a, b);
  Ref<Storage> casts[2];
  if (a.tape().dialect.rules.casts_operands) {
    if (a.dtype() != dtype) casts[0] = a.tape().allocate(checked_mul(a.numel(), size_of(dtype)));
    if (b.dtype() != dtype) casts[1] = a.tape().allocate(checked_mul(b.numel(), size_of(dtype)));
  }
  return empty_strided(a.tape(), shape, iterator_strides(shape, {&a, &b}), dtype);
}

// A kernel in backward: one allocation laid out like its inputs.
Tensor kernel(const char* name, const Tensor& a, const Tensor& b = {}) {
  Op op(a.tape(), name, {});
  op.reads(a);
  op.reads(b);
  if (!b) return empty_like(a);
  return binary_result(a, b);
}

// The same with a number.
Tensor with_number(const char* name, const Tensor& a) {
  Op op(a.tape(), name, {});
  op.reads(a);
  const Number number(a.tape(), a.dtype());
  return empty_like(a);
}

// Ops whose backward needs their input: `name`_backward(grad, self), one allocation.
Tensor keep_input(const char* name, const char* backward_name, const Tensor& x) {
  Op op(x.tape(), name, {&x});
  Saved self = op.save(x);
  return op.finish(empty_like(x), [self = std::move(self), backward_name](Tensors& g, Needs) {
    return Tensors{kernel(backward_name, g[0], self.unpack())};
  });
}

// Ops whose backward needs their result.
Tensor keep_result(const char* name, const char* backward_name, const Tensor& x) {
  Op op(x.tape(), name, {&x});
  Tensor y = empty_like(x);
  Saved result = op.save(y);
  return op.finish(
      y, [result = std::move(result), backward_name](Tensors& g, Needs) { return Tensors{kernel(backward_name, g[0], result.unpack())}; });
}

// In-place forms write into x's memory.
Tensor same_memory(const Tensor& x) { return detach(x); }

// The tensor that x is a view of, as far as autograd knows; undefined when x is none. Only views that keep every element
// in order are met in place (flatten before a classifier). What matmul makes of rows is no view (_unsafe_view).
Tensor base_of(const Tensor& x) {
  const Ref<Node>& node = x.body().grad_fn;
  if (!node || std::string_view(node->name) != "view") return {};
  const Edge& edge = node->next[0];
  if (std::string_view(edge.node->name) == "mm") return {};
  const TensorMeta& meta = edge.node->outputs[edge.input_nr];
  Tensor base = alias(x, meta.sizes, contiguous_strides(meta.sizes));
  base.body().grad_fn = edge.node;
  base.body().output_nr = edge.input_nr;
  base.body().requires_grad = true;
  Tensor deeper = base_of(base);
  return deeper ? deeper : base;
}

// Autograd of an in-place op whose backward is made of the gradient and one saved tensor. Writing into a view changes
// its base, so the op is recorded on the base and the view is taken anew: backward (CopySlices) copies the gradient of the
// base, runs the kernel on a clone of the part that was written, and copies the result back.
struct InPlace {
  InPlace(const char* name, const Tensor& x)
      : x(x), base(x.tape().grad_enabled ? base_of(x) : Tensor()), op(x.tape(), name, {base ? &base : &x}) {}

  // `backward(grad, saved)` gives the gradient.
  template <class Backward>
  Tensor finish(Backward backward, Saved saved) {
    if (!base)
      return op.finish(same_memory(x),
                       [saved = std::move(saved), backward](Tensors& g, Needs) { return Tensors{backward(g[0], saved.unpack())}; });
    const Tensor written = op.finish(same_memory(base), [saved = std::move(saved), backward, part = x.sizes()](Tensors& g, Needs) {
      const Tensor whole = filled(g[0].tape(), "new_empty_strided", g[0].sizes(), g[0].dtype());
      const Tensor slice = kernel("clone", view(whole, part));
      const Tensor result = backward(slice, saved.unpack());
      return Tensors{whole};
    });
    return view(written, x.sizes());
  }
  Tensor finish(const char* kernel_name, Saved saved) {
    return finish([kernel_name](const Tensor& grad, const Tensor& kept) { return kernel(kernel_name, grad, kept); }, std::move(saved));
  }

  const Tensor& x;
  Tensor base;
  Op op;
};

// In-place activation whose backward needs the result, which is x's own memory.
Tensor keep_result_(const char* name, const char* backward_name, const Tensor& x) {
  InPlace in_place(name, x);
  return in_place.finish(backward_name, in_place.op.save(same_memory(x)));
}

// In-place op whose backward, a kernel's name or a function, needs the input: autograd keeps a clone of it.
template <class Backward>
Tensor keep_input_(const char* name, Backward backward, const Tensor& x) {
  Tensor before;
  if (x.tape().grad_enabled && x.requires_grad()) {
    Op op(x.tape(), "clone", {});
    before = empty_like(x);
  }
  InPlace in_place(name, x);
  return in_place.finish(backward, in_place.op.save(before));
}

Tensor pass_on(const char* name, const Tensor& x) {
  Op op(x.tape(), name, {&x});
  const Number number(x.tape(), x.dtype());
  return op.finish(empty_like(x), [](Tensors& g, Needs) { return Tensors{g[0]}; });
}

}  // namespace

// ---- arithmetic -------------------------------------------------------------------------------------------------------

// saves nothing; both inputs get the same gradient
Tensor add(const Tensor& a, const Tensor& b) {
  Op op(a.tape(), "add", {&a, &b});
  return op.finish(binary_result(a, b), [](Tensors& g, Needs needs) {
    Tensors out(2);
    if (needs[1]) out[1] = g[0];
    if (needs[0]) out[0] = g[0];
    return out;
  });
}

Tensor add_(const Tensor& a, const Tensor& b) {
  Op op(a.tape(), "add_", {&a, &b});
  return op.finish(same_memory(a), [](Tensors& g, Needs needs) {
    Tensors out(2);
    if (needs[1]) out[1] = g[0];
    if (needs[0]) out[0] = g[0];
    return out;
  });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  Op op(a.tape(), "sub", {&a, &b});
  return op.finish(binary_result(a, b), [](Tensors& g, Needs needs) {
    Tensors out(2);
    if (needs[1]) out[1] = kernel("neg", g[0]);
    if (needs[0]) out[0] = g[0];
    return out;
  });
}

// saves each input the other one's gradient needs
Tensor mul(const Tensor& a, const Tensor& b) {
  Op op(a.tape(), "mul", {&a, &b});
  Saved other = op.save_if(op.needs(0), b);
  Saved self = op.save_if(op.needs(1), a);
  return op.finish(binary_result(a, b), [self = std::move(self), other = std::move(other)](Tensors& g, Needs needs) {
    const Tensor b = other.defined() ? other.unpack() : Tensor(), a = self.defined() ? self.unpack() : Tensor();
    Tensors out(2);
    if (needs[1]) out[1] = kernel("mul", g[0], a);
    if (needs[0]) out[0] = kernel("mul", g[0], b);
    return out;
  });
}

// saves other; for an `other` without a gradient, so that nothing of a's old contents is kept
Tensor mul_(const Tensor& a, const Tensor& b) {
  assert(!b.requires_grad());
  InPlace in_place("mul_", a);
  return in_place.finish("mul", in_place.op.save(b));
}

namespace {

auto division_backward(Saved self, Saved other) {
  return [self = std::move(self), other = std::move(other)](Tensors& g, Needs needs) {
    const Tensor b = other.unpack(), a = needs[1] ? self.unpack() : Tensor();
    Tensors out(2);
    if (needs[1]) {
      const Tensor quotient = kernel("div", a, b), ratio = kernel("div", quotient, b);
      const Tensor minus = kernel("neg", g[0]);
      out[1] = kernel("mul", minus, ratio);
    }
    if (needs[0]) out[0] = kernel("div", g[0], b);
    return out;
  };
}

}  // namespace

// saves other, and self when other needs a gradient
Tensor div(const Tensor& a, const Tensor& b) {
  Op op(a.tape(), "div", {&a, &b});
  Saved other = op.save(b);
  Saved self = op.save_if(op.needs(1), a);
  return op.finish(binary_result(a, b), division_backward(std::move(self), std::move(other)));
}

// saves other, and a copy of a's old contents when other needs a gradient
Tensor div_(const Tensor& a, const Tensor& b) {
  Op op(a.tape(), "div_", {&a, &b});
  Saved other = op.save(b), self;
  if (op.needs(1)) {
    Op copy(a.tape(), "clone", {});
    self = op.save(empty_like(a));
  }
  return op.finish(same_memory(a), division_backward(std::move(self), std::move(other)));
}

Tensor add_scalar(const Tensor& a) { return pass_on("add", a); }
Tensor sub_scalar(const Tensor& a) { return pass_on("sub", a); }

Tensor rsub_scalar(const Tensor& a) {
  Op op(a.tape(), "rsub", {&a});
  const Number number(a.tape(), a.dtype());
  return op.finish(empty_like(a), [](Tensors& g, Needs) { return Tensors{kernel("neg", g[0])}; });
}

// saves nothing on the device: the number is kept by value
Tensor mul_scalar(const Tensor& a) {
  Op op(a.tape(), "mul", {&a});
  const Number number(a.tape(), a.dtype());
  return op.finish(empty_like(a), [](Tensors& g, Needs) { return Tensors{with_number("mul", g[0])}; });
}

Tensor div_scalar(const Tensor& a) {
  Op op(a.tape(), "div", {&a});
  const Number number(a.tape(), a.dtype());
  return op.finish(empty_like(a), [](Tensors& g, Needs) { return Tensors{with_number("div", g[0])}; });
}

// saves the condition; backward: where(condition, grad, 0), whose number becomes a tensor
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Tensor& value = a ? a : b;
  Op op(condition.tape(), "where", {&a, &b});
  Saved mask = op.save(condition);
  Dims shape = broadcast(condition.sizes(), value.sizes());
  if (a && b) shape = broadcast(shape, b.sizes());
  const DType dtype = a && b ? result_type(a, b) : value.dtype();
  Tensor out = empty_strided(condition.tape(), shape, iterator_strides(shape, {&condition, &a, &b}), dtype);
  return op.finish(std::move(out), [mask = std::move(mask)](Tensors& g, Needs needs) {
    const Tensor m = mask.unpack();
    Tensors out(2);
    for (size_t i : {0, 1}) {
      if (!needs[i]) continue;
      const Tensor zero = filled(m.tape(), "scalar_tensor", {}, g[0].dtype());
      Op op(m.tape(), "where", {});
      out[i] = empty_like(g[0]);
    }
    return out;
  });
}

// saves the mask; backward: grad.masked_fill(mask, 0)
Tensor masked_fill(const Tensor& x, const Tensor& mask) {
  Op op(x.tape(), "masked_fill", {&x});
  Saved saved = op.save(mask);
  const Dims shape = broadcast(x.sizes(), mask.sizes());
  Tensor out = empty_strided(x.tape(), shape, iterator_strides(shape, {&x, &mask}), x.dtype());
  return op.finish(std::move(out), [saved = std::move(saved)](Tensors& g, Needs) {
    const Tensor m = saved.unpack();
    return Tensors{kernel("masked_fill", g[0])};
  });
}

Tensor masked_fill_(const Tensor& x, const Tensor& mask) {
  Op op(x.tape(), "masked_fill_", {&x});
  Saved saved = op.save(mask);
  return op.finish(same_memory(x), [saved = std::move(saved)](Tensors& g, Needs) {
    const Tensor m = saved.unpack();
    return Tensors{kernel("masked_fill", g[0])};
  });
}

// saves both; backward: where they are equal each takes half
Tensor minimum(const Tensor& a, const Tensor& b) {
  Op op(a.tape(), "minimum", {&a, &b});
  Saved self = op.save(a), other = op.save(b);
  return op.finish(binary_result(a, b), [self = std::move(self), other = std::move(other)](Tensors& g, Needs needs) {
    const Tensor b = other.unpack(), a = self.unpack();
    Tensors out(2);
    for (size_t i : {1, 0}) {
      if (!needs[i]) continue;
      const Tensor half = kernel("div", g[0]), equal = compare("eq", a, b);
      out[i] = where(equal, half, g[0]);
    }
    return out;
  });
}

// ---- functions --------------------------------------------------------------------------------------------------------

Tensor neg(const Tensor& x) {
  Op op(x.tape(), "neg", {&x});
  return op.finish(empty_like(x), [](Tensors& g, Needs) { return Tensors{kernel("neg", g[0])}; });
}

// saves self; backward: grad * self.sgn()
Tensor abs(const Tensor& x) {
  Op op(x.tape(), "abs", {&x});
  Saved self = op.save(x);
  return op.finish(empty_like(x), [self = std::move(self)](Tensors& g, Needs) {
    const Tensor sign = kernel("sgn", self.unpack());
    return Tensors{kernel("mul", g[0], sign)};
  });
}

// saves self; backward: grad * (exponent * self.pow(exponent - 1)). On autocast's fp32 list.
Tensor pow(const Tensor& input, double) {
  const Tensor x = autocast_fp32(input);
  Op op(x.tape(), "pow", {&x});
  Saved self = op.save(x);
  return op.finish(empty_like(x), [self = std::move(self)](Tensors& g, Needs) {
    const Tensor x = self.unpack();
    const Tensor power = kernel("pow", x);
    const Tensor scaled = with_number("mul", power);
    return Tensors{kernel("mul", g[0], scaled)};
  });
}

// saves the result; backward: -0.5 * grad * result.pow(3). On autocast's fp32 list.
Tensor rsqrt(const Tensor& input) {
  const Tensor x = autocast_fp32(input);
  Op op(x.tape(), "rsqrt", {&x});
  Tensor y = empty_like(x);
  Saved result = op.save(y);
  return op.finish(y, [result = std::move(result)](Tensors& g, Needs) {
    const Tensor y = result.unpack();
    const Tensor cube = kernel("pow", y);
    const Tensor half = with_number("mul", g[0]);
    return Tensors{kernel("mul", half, cube)};
  });
}

// saves the result; backward: grad / (2 * result)
Tensor sqrt(const Tensor& x) {
  Op op(x.tape(), "sqrt", {&x});
  Tensor y = empty_like(x);
  Saved result = op.save(y);
  return op.finish(y, [result = std::move(result)](Tensors& g, Needs) {
    const Tensor twice = with_number("mul", result.unpack());
    return Tensors{kernel("div", g[0], twice)};
  });
}

// saves the result; backward: -grad * (result * result). On autocast's fp32 list.
Tensor reciprocal(const Tensor& input) {
  const Tensor x = autocast_fp32(input);
  Op op(x.tape(), "reciprocal", {&x});
  Tensor y = empty_like(x);
  Saved result = op.save(y);
  return op.finish(y, [result = std::move(result)](Tensors& g, Needs) {
    const Tensor y = result.unpack();
    const Tensor minus = kernel("neg", g[0]), square = kernel("mul", y, y);
    return Tensors{kernel("mul", minus, square)};
  });
}

// saves the result; on autocast's fp32 list
Tensor exp(const Tensor& input) { return keep_result("exp", "mul", autocast_fp32(input)); }
// saves self; on autocast's fp32 list
Tensor log(const Tensor& input) { return keep_input("log", "div", autocast_fp32(input)); }

// Used without gradients (rotary tables).
Tensor cos(const Tensor& x) { return kernel("cos", x); }
Tensor sin(const Tensor& x) { return kernel("sin", x); }

Tensor tanh(const Tensor& x) { return keep_result("tanh", "tanh_backward", x); }
Tensor sigmoid(const Tensor& x) { return keep_result("sigmoid", "sigmoid_backward", x); }

// saves self; on autocast's fp32 list. The recorder computes the gradient with element-wise ops of which a comparison of self is the
// first, so that self's layout decides, not the gradient's.
Tensor softplus(const Tensor& input) {
  const Tensor x = autocast_fp32(input);
  Op op(x.tape(), "softplus", {&x});
  Saved saved = op.save(x);
  return op.finish(empty_like(x), [saved = std::move(saved)](Tensors& g, Needs) {
    const Tensor self = saved.unpack();
    return Tensors{self.tape().dialect.recorder ? kernel("softplus_backward", self, g[0]) : kernel("softplus_backward", g[0], self)};
  });
}

Tensor relu(const Tensor& x) { return keep_result("relu", "threshold_backward", x); }
Tensor relu_(const Tensor& x) { return keep_result_("relu_", "threshold_backward", x); }
Tensor silu(const Tensor& x) { return keep_input("silu", "silu_backward", x); }
Tensor silu_(const Tensor& x) { return keep_input_("silu_", "silu_backward", x); }
Tensor elu(const Tensor& x) { return keep_input("elu", "elu_backward", x); }
Tensor selu(const Tensor& x) { return elu(x); }
Tensor leaky_relu(const Tensor& x) { return keep_input("leaky_relu", "leaky_relu_backward", x); }
Tensor mish(const Tensor& x) { return keep_input("mish", "mish_backward", x); }
Tensor gelu(const Tensor& x) { return keep_input("gelu", "gelu_backward", x); }
Tensor hardtanh(const Tensor& x) { return keep_input("hardtanh", "hardtanh_backward", x); }
Tensor hardtanh_(const Tensor& x) { return keep_input_("hardtanh_", "hardtanh_backward", x); }
Tensor hardswish(const Tensor& x) { return keep_input("hardswish", "hardswish_backward", x); }
Tensor hardswish_(const Tensor& x) { return keep_input_("hardswish_", "hardswish_backward", x); }
Tensor hardsigmoid(const Tensor& x) { return keep_input("hardsigmoid", "hardsigmoid_backward", x); }
Tensor hardsigmoid_(const Tensor& x) { return keep_input_("hardsigmoid_", "hardsigmoid_backward", x); }

namespace {
// clamp_backward (FunctionsManual.cpp): where(self within the bounds, grad, 0), one comparison for each bound
Tensor clamp_backward(const std::vector<const char*>& comparisons, const Tensor& grad, const Tensor& x) {
  const Tensor zero = filled(x.tape(), "scalar_tensor", {}, grad.dtype());
  Tensors inside;
  for (const char* comparison : comparisons) inside.push_back(compare_scalar(comparison, x));
  return where(inside[0], grad, zero);
}

// saves self
Tensor bounded(const char* name, std::initializer_list<const char*> comparisons, const Tensor& x) {
  Op op(x.tape(), name, {&x});
  Saved self = op.save(x);
  return op.finish(empty_like(x), [self = std::move(self), comparisons = std::vector<const char*>(comparisons)](Tensors& g, Needs) {
    return Tensors{clamp_backward(comparisons, g[0], self.unpack())};
  });
}
}  // namespace

Tensor clamp(const Tensor& x) { return bounded("clamp", {"gt", "lt"}, x); }
Tensor clamp_(const Tensor& x) {
  return keep_input_(
      "clamp_",
      [](const Tensor& grad, const Tensor& saved) {
        return clamp_backward({"ge", "le"}, grad, saved);
      },
      x);
}
Tensor clamp_min(const Tensor& x) { return bounded("clamp_min", {"gt"}, x); }
Tensor clamp_max(const Tensor& x) { return bounded("clamp", {"lt"}, x); }

// native_dropout: saves its mask, one byte an element; the gradient is contiguous, or channels-last if it came so.
// p == 1 is a product with a zero.
Tensor dropout(const Tensor& x, double p) {
  if (p == 0.0 || !x.tape().training) return x;
  if (p == 1.0) return mul(x, filled(x.tape(), "zeros", {}, x.dtype()));
  if (!x.tape().dialect.rules.fused_dropout) {  // noise in x's own type, divided by a number in place
    const Tensor noise = nondiff("empty_like", x, x.dtype());
    { const Number keep(x.tape(), x.dtype()); }
    return mul(x, noise);
  }
  Op op(x.tape(), "native_dropout", {&x});
  Tensor y = empty_like(x);
  Saved mask = op.save(empty_like(x, DType::bool_));
  return op.finish(y, [mask = std::move(mask)](Tensors& g, Needs) {
    const Tensor m = mask.unpack();
    Op op(m.tape(), "native_dropout_backward", {});
    op.reads(g[0]);
    op.reads(m);
    const Dims& sizes = g[0].sizes();
    const bool channels_last = is_channels_last(sizes, g[0].strides());
    return Tensors{empty_strided(m.tape(), sizes, channels_last ? channels_last_strides(sizes) : contiguous_strides(sizes), g[0].dtype())};
  });
}

// In place there is no fused kernel: x.mul_(noise), which saves noise of x's own type.
Tensor dropout_(const Tensor& x, double p) {
  if (p == 0.0 || !x.tape().training) return x;
  Tape& tape = x.tape();
  const Tensor noise = p == 1.0 ? filled(tape, "zeros", {}, x.dtype()) : nondiff("empty_like", x, x.dtype());
  return mul_(x, noise);
}

// ---- no gradient ------------------------------------------------------------------------------------------------------

Tensor compare(const char* name, const Tensor& a, const Tensor& b) {
  Op op(a.tape(), name, {});
  op.reads(a);
  op.reads(b);
  const Dims shape = broadcast(a.sizes(), b.sizes());
  return empty_strided(a.tape(), shape, iterator_strides(shape, {&a, &b}), DType::bool_);
}

Tensor compare_scalar(const char* name, const Tensor& a) {
  Op op(a.tape(), name, {});
  op.reads(a);
  const Number number(a.tape(), a.dtype());
  return empty_like(a, DType::bool_);
}

Tensor nondiff(const char* name, const Tensor& a, DType dtype) {
  Op op(a.tape(), name, {});
  op.reads(a);
  return empty_like(a, dtype);
}

Tensor arange(Tape& tape, int64_t n, DType dtype) {
  Op op(tape, "arange", {});
  return empty(tape, {n}, dtype);
}

Tensor filled(Tape& tape, const char* name, const Dims& sizes, DType dtype) {
  Op op(tape, name, {});
  return empty(tape, sizes, dtype);
}

}  // namespace plimsoll
