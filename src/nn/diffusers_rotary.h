// Rotary positions as diffusers' transformers make and apply them: tables of every axis side by side, neighbours turned.
#pragma once

#include "nn/rotary.h"

namespace plimsoll {

// get_1d_rotary_pos_embed with repeat_interleave_real: fp32 tables (S, dim) of positions (S), by way of `dtype`.
CosSin get_1d_rotary_pos_embed(int64_t dim, const Tensor& pos, DType dtype);

// FluxPosEmbed: ids (S, axes) -> tables (S, sum of the axes' dims), computed in fp64.
struct FluxPosEmbed : Module {
  FluxPosEmbed(Module& parent, std::string_view name, std::vector<int64_t> axes_dim)
      : Module(parent, name), axes_dim(std::move(axes_dim)) {}
  CosSin operator()(const Tensor& ids) const;
  std::vector<int64_t> axes_dim;
};

// Throws unless every axis has an even number of dims and together they are those of a head.
void require_rotary_axes(const Config& config, const char* key, const std::vector<int64_t>& axes, const char* head_key, int64_t head_dim);

// apply_rotary_emb. x: (B, S, H, D)
Tensor apply_rotary_emb(const Tensor& x, const CosSin& tables);

}  // namespace plimsoll
