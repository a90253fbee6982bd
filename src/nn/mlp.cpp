#include "nn/mlp.h"

#include "ops/pointwise.h"

namespace plimsoll {

MLP::MLP(Module& parent, std::string_view name, int64_t width, int64_t inner, double dropout)
    : Module(parent, name),
      linear1_(*this, "0", width, inner),
      dropout1_(*this, "2", dropout),
      linear2_(*this, "3", inner, width),
      dropout2_(*this, "4", dropout) {}

Tensor MLP::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor input = linear1_(x);  // (..., inner)
  input = gelu(input);
  input = dropout1_(input);
  input = linear2_(input);  // (..., width)
  input = dropout2_(input);
  return input;
}

}  // namespace plimsoll
