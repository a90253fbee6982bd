// Timesteps as diffusers' U-Nets embed them.
#pragma once

#include "measure/layers.h"

namespace plimsoll::measure {

Tensor timestep_embedding(const Tensor& timesteps, int64_t channels);

struct TimestepEmbedding : Unit {
  TimestepEmbedding(const Unit& parent, std::string_view name, int64_t channels, int64_t width);
  Tensor operator()(const Tensor& t_emb) const;
  Linear linear_1, linear_2;
};

}  // namespace plimsoll::measure
