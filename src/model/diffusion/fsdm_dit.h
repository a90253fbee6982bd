// The DiT of fsdm.cpp, whose cross-attention looks at the encoder's tokens.
#pragma once

#include "model/diffusion/fsdm_config.h"
#include "nn/module.h"

namespace plimsoll {

class FsdmDiT : public Module {
 public:
  FsdmDiT(Module& parent, std::string_view name, const FsdmConfig& config);
  ~FsdmDiT() override;
  // images: (B, 3, H, W), t: (B) int64, context: (B, tokens, hdim)
  Tensor operator()(const Tensor& images, const Tensor& t, const Tensor& context);

 private:
  struct Parts;
  const FsdmConfig& config_;
  Tensor pos_embed_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace plimsoll
