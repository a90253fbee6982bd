// What the few-shot diffusion model of fsdm.cpp is made of.
#pragma once

#include <set>

#include "job/config.h"
#include "util/checked.h"

namespace plimsoll {

struct FsdmConfig {
  explicit FsdmConfig(const Config& c);
  int64_t patches() const { return checked_mul(grid, grid); }

  int64_t sample_size, image_size, patch_size, diffusion_steps;
  double dropout;
  int64_t hidden_size, depth, num_heads, mlp_dim;
  std::set<int64_t> cross_attn_blocks;
  bool use_remat;
  int64_t hdim, encoder_depth, encoder_heads, encoder_dim_head, encoder_mlp_dim;
  int64_t grid;                   // patches along one side
  int64_t context_pool_size = 0;  // tokens that the context is averaged to; 0: all
};

}  // namespace plimsoll
