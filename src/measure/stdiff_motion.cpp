#include "measure/stdiff_motion.h"

#include <nlohmann/json.hpp>

#include "job/config_list.h"
#include "measure/sde.h"

namespace plimsoll::measure {

namespace {

// One for all levels, or one for each; null: a single head.
int64_t head_dim(const Config& c, size_t level, size_t levels) {
  const nlohmann::json* value = c.find({"head", "attention_head_dim"});
  if (!value) return c.is_null("head") || c.is_null("attention_head_dim") ? 0 : 128;
  if (!value->is_array()) return c.size({"head", "attention_head_dim"}, 128);
  if (value->size() != levels) throw Error("[measure] stdiff: not as many attention_head_dim as block_out_channels", "give one for each");
  return (*value)[level].is_null() ? 0 : Config("attention_head_dim", {{"head_dim", (*value)[level]}}).size({"head_dim"}, 1);
}

}  // namespace

StdiffSettings::StdiffSettings(const Config& c)
    : height(c.size({"H", "height"}, 64)),
      width(c.size({"Wd", "width"}, 512)),
      observed(c.size({"To", "observed"}, 3)),
      predicted(c.size({"Tp", "predicted"}, 3)),
      image_channels(c.size({"image_channels"}, 1)),
      model_channels(c.size({"model_channels"}, 64)),
      n_downs(c.size({"n_downs"}, 2)),
      n_layers(c.size({"n_layers"}, 2)),
      in_channels(c.size({"in_channels"}, 2)),
      out_channels(c.size({"out_channels"}, 1)),
      layers_per_block(c.size({"layers_per_block"}, 2)),
      groups(c.size({"norm_num_groups"}, 32)),
      dt(c.number({"dt"}, 0.1)),
      autoregressive(c.flag({"autoregressive"}, true)) {
  if (c.text({"part"}, "whole") != "whole") throw Error("[measure] stdiff is trained as a whole", "leave part out");
  const std::vector<int64_t> channels = size_list(c, c.find({"ch"}) ? "ch" : "block_out_channels", {128, 256, 256, 512, 512});
  const size_t n = channels.size();
  std::vector<std::string> down(n, "AttnDownBlock2D"), up(n, "AttnUpBlock2D");
  down.front() = "DownBlock2D";
  up.back() = "UpBlock2D";
  down = name_list(c, "down_block_types", down);
  up = name_list(c, "up_block_types", up);
  if (down.size() != n || up.size() != n)
    throw Error("[measure] stdiff: not as many block types as block_out_channels", "give one for each");
  for (size_t i = 0; i < n; ++i) levels.push_back({channels[i], head_dim(c, i, n), down[i] != "DownBlock2D", up[n - 1 - i] != "UpBlock2D"});
}

MotionEncoder::MotionEncoder(const Unit& parent, std::string_view name, const StdiffSettings& c)
    : Unit(parent, name), convolutions(*this, "model") {
  int64_t channels = c.model_channels;
  convolutions.add(c.image_channels, channels, 5, 1, 2);
  for (int64_t i = 0; i < c.n_downs; ++i, channels *= 2) {
    const int64_t kernel = i + 1 < c.n_downs ? 5 : 7;
    convolutions.add(channels, channels * 2, kernel, 1, kernel / 2);
  }
}

Tensor MotionEncoder::operator()(Tensor x) const {
  const Within here(place);
  for (size_t i = 0; i < convolutions.size(); ++i) {
    if (i > 0) x = torch::max_pool2d(x, {2, 2}, {2, 2});
    x = convolutions[i](x);
    x = torch::relu(x);
  }
  return x;
}

ConvGRUCell::ConvGRUCell(const Unit& parent, std::string_view name, int64_t channels)
    : Unit(parent, name),
      GateConv(*this, "GateConv", 2 * channels, 2 * channels, 3, 1, 1),
      NewStateConv(*this, "NewStateConv", 2 * channels, channels, 3, 1, 1) {}

Tensor ConvGRUCell::operator()(const Tensor& inputs, const Tensor& prev_h) const {
  const Within here(place);
  Tensor gates;
  {
    const Tensor both = torch::cat({inputs, prev_h}, 1);
    gates = GateConv(both);  // (N, 2 M, h, w)
  }
  Tensor u, r;
  {
    const Tensors halves = gates.split(gates.size(1) / 2, 1);
    u = torch::sigmoid(halves[0]);
    r = torch::sigmoid(halves[1]);
  }
  Tensor h_tilde = r * prev_h;
  h_tilde = torch::cat({inputs, h_tilde}, 1);
  h_tilde = NewStateConv(h_tilde);
  h_tilde = torch::tanh(h_tilde);
  Tensor new_h = torch::rsub(u, 1.0);
  new_h = new_h * prev_h;
  return new_h + h_tilde;  // (N, M, h, w)
}

OdeSdeFuncNet::OdeSdeFuncNet(const Unit& parent, std::string_view name, int64_t channels, int64_t n_layers)
    : Unit(parent, name), net(*this, "net") {
  for (int64_t i = 0; i < n_layers + 2; ++i) net.add(channels, channels, 3, 1, 1, i == n_layers + 1);
}

Tensor OdeSdeFuncNet::operator()(Tensor x) const {
  const Within here(place);
  x = net[0](x);
  for (size_t i = 1; i < net.size(); ++i) {
    x = torch::tanh(x);
    x = net[i](x);
  }
  return x;
}

DiffModel::DiffModel(const Unit& parent, std::string_view name, const StdiffSettings& c)
    : Unit(parent, name),
      c(c),
      motion_encoder(*this, "motion_encoder", c),
      conv_gru_cell(*this, "conv_gru_cell", c.motion_channels()),
      first_parameter(build.parameters.size()),
      diff_unet_f(*this, "diff_unet.diff_unet_f", c.motion_channels(), c.n_layers),
      diff_unet_g(*this, "diff_unet.diff_unet_g", c.motion_channels(), c.n_layers),
      end_parameter(build.parameters.size()) {}

Tensor DiffModel::context_encode(const Tensor& observed) const {
  const Within here(place);
  const int64_t n = observed.size(0), frames = observed.size(1) - 1;
  const Tensor differences = observed.slice(1, 1, frames + 1) - observed.slice(1, 0, frames);  // (N, To - 1, C, H, W)
  const Tensor features = motion_encoder(differences.flatten(0, 1));                           // (N (To - 1), M, h, w)
  const Tensor h = features.reshape({n, frames, features.size(1), features.size(2), features.size(3)});
  Tensor m = torch::zeros({features.size(1), features.size(2), features.size(3)});
  m = m.unsqueeze(0).expand({n, -1, -1, -1});
  for (int64_t i = 0; i < frames; ++i) m = conv_gru_cell(h.select(1, i), m);
  return m;
}

Tensor DiffModel::future_predict(const Tensor& context, const std::vector<uint64_t>& seeds) const {
  const Within here(place);
  const Shape feature = context.sizes().vec();
  Equation e;
  e.drift = [this, feature](const Tensor& y) {
    const Tensor x = diff_unet_f(y.reshape(feature));
    return x.flatten(1);
  };
  e.diffusion = [this, feature](const Tensor& y) {
    Tensor x = diff_unet_g(y.reshape(feature));
    x = torch::tanh(x);
    return x.flatten(1);
  };
  for (size_t i = first_parameter; i < end_parameter; ++i) e.parameters.push_back(build.parameters[i].value);
  const Tensor states = integrate(e, context.flatten(1), static_cast<double>(c.observed - 1), c.predicted + 1, c.dt, seeds);
  const Tensor future = states.reshape({c.predicted + 1, feature[0], feature[1], feature[2], feature[3]});
  return future.slice(0, 1, c.predicted + 1);
}

}  // namespace plimsoll::measure
