// How diffusers tells a network the time of its latents: sines and cosines, and two linear layers.
#pragma once

#include "nn/layers.h"

namespace plimsoll {

// get_timestep_embedding: (N) -> (N, width) in fp32; `flip` puts the cosines first.
Tensor get_timestep_embedding(const Tensor& timesteps, int64_t width, bool flip);

// diffusers' Timesteps.
struct Timesteps : Module {
  Timesteps(Module& parent, std::string_view name, int64_t width, bool flip = true) : Module(parent, name), width(width), flip(flip) {}
  Tensor operator()(const Tensor& timesteps) const;
  int64_t width;
  bool flip;
};

// Linear, activation, linear.
struct TimestepEmbedding : Module {
  TimestepEmbedding(Module& parent, std::string_view name, int64_t in, int64_t width, std::string act = "silu");
  Tensor operator()(const Tensor& x) const;  // (N, in) -> (N, width)
  Linear linear_1, linear_2;
  std::string act;
};

}  // namespace plimsoll
