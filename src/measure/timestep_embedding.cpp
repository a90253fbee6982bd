#include "measure/timestep_embedding.h"

namespace plimsoll::measure {

Tensor timestep_embedding(const Tensor& timesteps, int64_t channels) {
  const int64_t half = channels / 2;
  Tensor exponent = torch::arange(half, torch::kFloat32);
  exponent = exponent * -std::log(10000.0);
  exponent = exponent / static_cast<double>(half);
  Tensor emb = torch::exp(exponent);
  {
    const Tensor steps = timesteps.unsqueeze(1).to(torch::kFloat32);
    emb = steps * emb.unsqueeze(0);  // (B, half)
  }
  emb = emb * 1.0;
  {
    const Tensor sines = torch::sin(emb), cosines = torch::cos(emb);
    emb = torch::cat({sines, cosines}, -1);  // (B, channels)
  }
  return torch::cat({emb.slice(1, half, 2 * half), emb.slice(1, 0, half)}, -1);
}

TimestepEmbedding::TimestepEmbedding(const Unit& parent, std::string_view name, int64_t channels, int64_t width)
    : Unit(parent, name), linear_1(*this, "linear_1", channels, width), linear_2(*this, "linear_2", width, width) {}

Tensor TimestepEmbedding::operator()(const Tensor& t_emb) const {
  const Within here(place);
  Tensor sample = linear_1(t_emb);
  sample = torch::silu(sample);
  return linear_2(sample);
}

}  // namespace plimsoll::measure
