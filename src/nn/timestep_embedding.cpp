#include "nn/timestep_embedding.h"

#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

Tensor get_timestep_embedding(const Tensor& timesteps, int64_t width, bool flip) {
  Tape& tape = timesteps.tape();
  const int64_t half = width / 2;
  Tensor exponent = arange(tape, half, DType::float32);
  exponent = mul_scalar(exponent);
  exponent = div_scalar(exponent);
  Tensor emb = exp(exponent);  // (half)
  {
    const Tensor time = to(unsqueeze(timesteps, 1), DType::float32);
    emb = mul(time, unsqueeze(emb, 0));  // (N, half)
  }
  emb = mul_scalar(emb);
  {
    const Tensor sine = sin(emb), cosine = cos(emb);
    emb = cat({sine, cosine}, -1);  // (N, 2 half)
  }
  if (flip) emb = cat({slice(emb, 1, half, 2 * half), slice(emb, 1, 0, half)}, -1);
  if (width % 2 == 1) emb = constant_pad_nd(emb, {0, 1, 0, 0});
  return emb;
}

Tensor Timesteps::operator()(const Tensor& timesteps) const {
  Forward here(*this);
  return get_timestep_embedding(timesteps, width, flip);
}

TimestepEmbedding::TimestepEmbedding(Module& parent, std::string_view name, int64_t in, int64_t width, std::string act_fn)
    : Module(parent, name), linear_1(*this, "linear_1", in, width), linear_2(*this, "linear_2", width, width), act(std::move(act_fn)) {}

Tensor TimestepEmbedding::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor sample = linear_1(x);  // (N, width)
  sample = activation(act, sample);
  sample = linear_2(sample);
  return sample;
}

}  // namespace plimsoll
