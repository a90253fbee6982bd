// STDiff's motion path: features of the observed frames, integrated into the future by a stochastic differential equation; and what both of
// its halves are configured by.
#pragma once

#include "measure/layers.h"

namespace plimsoll {
class Config;
}

namespace plimsoll::measure {

struct StdiffLevel {
  int64_t channels, head_dim;
  bool down_attention, up_attention;
};

struct StdiffSettings {
  explicit StdiffSettings(const Config& c);

  int64_t motion_channels() const { return model_channels << n_downs; }

  int64_t height, width, observed, predicted, image_channels, model_channels, n_downs, n_layers, in_channels, out_channels,
      layers_per_block, groups;
  double dt;
  bool autoregressive;
  std::vector<StdiffLevel> levels;  // from full resolution down
};

struct MotionEncoder : Unit {
  MotionEncoder(const Unit& parent, std::string_view name, const StdiffSettings& c);
  Tensor operator()(Tensor x) const;
  UnitList<Conv2d> convolutions;
};

struct ConvGRUCell : Unit {
  ConvGRUCell(const Unit& parent, std::string_view name, int64_t channels);
  Tensor operator()(const Tensor& inputs, const Tensor& prev_h) const;
  Conv2d GateConv, NewStateConv;
};

struct OdeSdeFuncNet : Unit {
  OdeSdeFuncNet(const Unit& parent, std::string_view name, int64_t channels, int64_t n_layers);
  Tensor operator()(Tensor x) const;
  UnitList<Conv2d> net;
};

struct DiffModel : Unit {
  DiffModel(const Unit& parent, std::string_view name, const StdiffSettings& c);
  Tensor context_encode(const Tensor& observed) const;
  Tensor future_predict(const Tensor& context, const std::vector<uint64_t>& seeds) const;

  const StdiffSettings& c;
  MotionEncoder motion_encoder;
  ConvGRUCell conv_gru_cell;
  size_t first_parameter;
  OdeSdeFuncNet diff_unet_f, diff_unet_g;
  size_t end_parameter;
};

}  // namespace plimsoll::measure
