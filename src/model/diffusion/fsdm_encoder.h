// The set encoder of fsdm.cpp: a vision transformer over the stacked patches of a set of images; and the embedding of time that it shares
// with the DiT.
#pragma once

#include "model/diffusion/fsdm_config.h"
#include "nn/layers.h"

namespace plimsoll {

// Dense, SiLU, Dense on the embedding of a step.
struct FsdmTimeEmbed : Module {
  FsdmTimeEmbed(Module& parent, std::string_view name, int64_t frequencies, int64_t width);
  Tensor operator()(const Tensor& t) const;  // (B) to (B, width)

  int64_t frequencies;
  Linear dense1, dense2;
};

class FsdmEncoder : public Module {
 public:
  struct Output {
    Tensor pooled;  // (B, hdim)
    Tensor tokens;  // (B, patches, hdim)
  };

  FsdmEncoder(Module& parent, std::string_view name, const FsdmConfig& config);
  ~FsdmEncoder() override;
  // set: (B, sample_size, 3, H, W), time: (B * sample_size, hdim)
  Output operator()(const Tensor& set, const Tensor& time);

 private:
  struct Parts;
  Tensor pos_embedding_, cls_token_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace plimsoll
