// Liger-Kernel's layers: Triton kernels allocate nothing themselves, so what counts is what their autograd functions ask of
// PyTorch and keep.
#pragma once

#include "nn/rotary.h"

namespace plimsoll {

// Kernels that sum a weight's gradient in rows have so many of them, or a multiple: an H100's.
inline constexpr int64_t kMultiprocessors = 132;

// LigerRMSNorm: keeps its input in its own type and one number a row. Gradients are written over those that come in unless
// not `in_place` (Gemma 2).
Tensor liger_rms_norm(const Tensor& x, const Tensor& weight, bool in_place);
// LigerSiLUMulFunction, LigerGELUMulFunction: activation(gate) * up; keeps both factors, whose memory takes the gradients.
Tensor liger_gated_product(const Tensor& gate, const Tensor& up);
// LigerRopeFunction: queries and keys are rotated in place where their memory is dense, tokens first.
std::pair<Tensor, Tensor> liger_rotary_pos_emb(const Tensor& q, const Tensor& k, const CosSin& tables);

}  // namespace plimsoll
