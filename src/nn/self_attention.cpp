#include "nn/self_attention.h"

#include "ops/reshape.h"

namespace plimsoll {

SelfAttention::SelfAttention(Module& parent, std::string_view name, const SelfAttentionSettings& s)
    : Module(parent, name),
      head_width_(s.width / s.heads),
      call_(s.call),
      first_(*this, std::string(s.query_first ? "q" : "k") + s.suffix, s.width, s.width),
      second_(*this, std::string(s.query_first ? "k" : "v") + s.suffix, s.width, s.width),
      third_(*this, std::string(s.query_first ? "v" : "q") + s.suffix, s.width, s.width),
      out_(*this, std::string("out") + s.suffix, s.width, s.width),
      q_(s.query_first ? first_ : third_),
      k_(s.query_first ? second_ : first_),
      v_(s.query_first ? third_ : second_) {}

Tensor SelfAttention::operator()(const Tensor& x, const Tensor& mask, Tensor* weights) const {
  Forward here(*this);
  const Dims heads{x.size(0), x.size(1), -1, head_width_};
  const Tensor q = transpose(view(q_(x), heads), 1, 2);  // (B, H, T, D)
  const Tensor k = transpose(view(k_(x), heads), 1, 2);
  const Tensor v = transpose(view(v_(x), heads), 1, 2);
  AttentionCall call = call_;
  call.mask = mask;
  Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
  out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, C)
  out = out_(out);
  return out;
}

}  // namespace plimsoll
