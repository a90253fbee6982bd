#include "nn/diffusers_attention.h"

#include "ops/attention.h"
#include "ops/reshape.h"

namespace plimsoll {

Tensor unflatten_heads(const Tensor& x, int64_t head_dim) { return view(x, {x.size(0), x.size(1), -1, head_dim}); }

Tensor dispatch_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask) {
  AttentionArgs args;
  args.mask = mask && mask.dim() == 2 ? unsqueeze(unsqueeze(mask, 1), 1) : mask;
  const Dims heads_first{0, 2, 1, 3};
  const Tensor q = permute(query, heads_first), k = permute(key, heads_first), v = permute(value, heads_first);
  return permute(scaled_dot_product_attention(q, k, v, args), heads_first);
}

}  // namespace plimsoll
