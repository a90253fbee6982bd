#include "nn/self_attention.h"

#include "ops/reshape.h"

namespace plimsoll {

SelfAttention::SelfAttention(Module& parent, std::string_view name, const SelfAttentionSettings& s)
    : Module(parent, name),
      head_width_(s.width / s.heads),
      heads_last_(s.heads_last),
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
  const auto split = [&](const Tensor& t) { return transpose(view(t, heads), 1, 2); };  // (B, H, T, D)
  Tensor q, k, v;
  if (heads_last_) {
    q = q_(x);
    k = k_(x);
    v = v_(x);
    q = split(q);
    k = split(k);
    v = split(v);
  } else {
    q = split(q_(x));
    k = split(k_(x));
    v = split(v_(x));
  }
  AttentionCall call = call_;
  call.mask = mask;
  Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
  out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, C)
  out = out_(out);
  return out;
}

}  // namespace plimsoll
