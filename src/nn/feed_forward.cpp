#include "nn/feed_forward.h"

#include "nn/transformer.h"

namespace plimsoll {

FeedForward::FeedForward(Module& parent, std::string_view name, const FeedForwardSettings& s)
    : UnaryModule(parent, name),
      first_(*this, s.first, s.width, s.inner, s.bias),
      second_(*this, s.second, s.inner, s.width, s.bias),
      act_(s.act),
      dropout_(*this, "dropout", s.dropout) {}

Tensor FeedForward::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor hidden = first_(x);  // (..., inner)
  hidden = activation(act_, hidden);
  hidden = second_(hidden);  // (..., width)
  hidden = dropout_(hidden);
  return hidden;
}

}  // namespace plimsoll
