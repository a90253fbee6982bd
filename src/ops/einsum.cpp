#include "ops/einsum.h"

#include <cassert>

#include "ops/autocast.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct Equation {
  explicit Equation(std::string_view text)
      : comma(text.find(',')), arrow(text.find("->")), left(text.substr(0, comma)), right(text.substr(comma + 1, arrow - comma - 1)) {
    assert(comma != std::string_view::npos && arrow != std::string_view::npos);
    const std::string_view result = text.substr(arrow + 2);
    kept = static_cast<int>(result.size());
    order = result;
    for (char label = 'a'; label <= 'z'; ++label)
      if (text.find(label) != std::string_view::npos && result.find(label) == std::string_view::npos) order += label;
  }
  size_t comma, arrow;
  std::string_view left, right;
  std::string order;  // labels of the result, then those that are summed
  int kept = 0;       // labels of the result
};

// A view with one dimension for every label of the equation, in its order.
Tensor spread(Tensor x, std::string_view labels, const std::string& order) {
  Dims places;
  int next = static_cast<int>(labels.size());
  for (const char label : order) {
    const size_t at = labels.find(label);
    if (at == std::string_view::npos) x = unsqueeze(x, -1);
    places.push_back(at == std::string_view::npos ? next++ : static_cast<int>(at));
  }
  return permute(x, places);
}

Dims joined(std::initializer_list<const Dims*> parts) {
  Dims out;
  for (const Dims* part : parts)
    for (const int64_t d : *part) out.push_back(d);
  return out;
}

int64_t product_of(const Tensor& x, const Dims& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n = checked_mul(n, x.size(static_cast<int>(d)));
  return n;
}

// sumproduct_pair of Linear.cpp: both sides become batches of matrices, which are copied where their strides do not allow it. A
// dimension of size 1 counts as the right side's.
Tensor sumproduct_pair(const Tensor& left, const Tensor& right, const Dims& summed) {
  Dims both, only_left, only_right;
  for (int d = 0; d < left.dim(); ++d) {
    bool is_summed = false;
    for (const int64_t s : summed) is_summed |= s == d;
    if (is_summed) continue;
    const bool in_left = left.size(d) != 1, in_right = right.size(d) != 1;
    (in_left && in_right ? both : in_left ? only_left : only_right).push_back(d);
  }
  const int64_t batch = product_of(left, both), inner = product_of(left, summed);
  const Tensor a = reshape(permute(left, joined({&both, &only_left, &summed, &only_right})), {batch, product_of(left, only_left), inner});
  const Tensor b =
      reshape(permute(right, joined({&both, &summed, &only_right, &only_left})), {batch, inner, product_of(right, only_right)});
  const Dims order = joined({&both, &only_left, &summed, &only_right});
  Dims sizes, back = Dims::filled(order.size(), 0);
  for (int i = 0; i < order.size(); ++i) {
    const int d = static_cast<int>(order[i]);
    const bool is_summed = i >= both.size() + only_left.size() && i < both.size() + only_left.size() + summed.size();
    sizes.push_back(is_summed ? 1 : std::max(left.size(d), right.size(d)));
    back[d] = i;
  }
  return permute(view(bmm(a, b), sizes), back);
}

}  // namespace

// On autocast's lower-precision list, which casts the operands from the first to the last.
Tensor einsum(std::string_view text, const Tensor& first, const Tensor& second) {
  const Tensor a = autocast_low(first), b = autocast_low(second);
  if (a.dtype() != b.dtype())
    throw Error("[einsum] " + std::string(dtype_name(a.dtype())) + " and " + std::string(dtype_name(b.dtype())) + " are not multiplied",
                "this model runs with fp32 weights: choose precision fp32 or amp");
  const Equation equation(text);
  const Tensor left = spread(a, equation.left, equation.order), right = spread(b, equation.right, equation.order);
  // A sum over one element is none.
  Dims summed, sizes;
  for (int d = equation.kept; d < left.dim(); ++d)
    if (left.size(d) != 1 && right.size(d) != 1) summed.push_back(d);
  const Tensor out = summed.empty() ? mul(left, right) : sumproduct_pair(left, right, summed);
  for (int d = 0; d < equation.kept; ++d) sizes.push_back(out.size(d));
  return equation.kept == out.dim() ? out : view(out, sizes);
}

}  // namespace plimsoll
