#include "model/diffusion/stdiff_motion.h"

#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr Conv2dOptions k3x3{.kernel = 3, .padding = 1};

// Convolutions of 5 x 5, the last of 7 x 7, each after a halving of the resolution but the first.
struct MotionEncoder : Module {
  MotionEncoder(Module& parent, std::string_view name, const StdiffMotionOptions& o) : Module(parent, name) {
    int64_t channels = o.model_channels;
    add(o.image_channels, channels, 5);
    for (int64_t i = 0; i < o.n_downs; ++i, channels *= 2) {
      model.add<MaxPool2d>(PoolOptions{2, 2});
      add(channels, channels * 2, i + 1 < o.n_downs ? 5 : 7);
    }
  }
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return model(x);
  }
  Sequential model{*this, "model"};

 private:
  void add(int64_t in, int64_t out, int64_t kernel) {
    model.add<Conv2d>(in, out, Conv2dOptions{.kernel = kernel, .padding = kernel / 2});
    model.add<Activation>(Act::relu, false);
  }
};

struct ConvGRUCell : Module {
  ConvGRUCell(Module& parent, std::string_view name, int64_t channels)
      : Module(parent, name),
        GateConv(*this, "GateConv", 2 * channels, 2 * channels, k3x3),
        NewStateConv(*this, "NewStateConv", 2 * channels, channels, k3x3) {}

  Tensor operator()(const Tensor& inputs, const Tensor& prev_h) const {
    Forward here(*this);
    Tensor gates;
    {
      const Tensor both = cat({inputs, prev_h}, 1);
      gates = GateConv(both);  // (N, 2 M, h, w)
    }
    Tensor u, r;
    {
      const Tensors halves = split(gates, gates.size(1) / 2, 1);
      u = sigmoid(halves[0]);
      r = sigmoid(halves[1]);
    }
    Tensor h_tilde = mul(r, prev_h);
    h_tilde = cat({inputs, h_tilde}, 1);
    h_tilde = NewStateConv(h_tilde);
    h_tilde = tanh(h_tilde);
    Tensor new_h = rsub_scalar(u);
    new_h = mul(new_h, prev_h);
    return add(new_h, h_tilde);  // (N, M, h, w)
  }

  Conv2d GateConv, NewStateConv;
};

struct Tanh : Module {
  using Module::Module;
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return tanh(x);
  }
};

struct OdeSdeFuncNet : Module {
  OdeSdeFuncNet(Module& parent, std::string_view name, int64_t channels, int64_t n_layers) : Module(parent, name) {
    net.add<Conv2d>(channels, channels, k3x3);
    for (int64_t i = 0; i < n_layers + 1; ++i) {
      net.add<Tanh>();
      net.add<Conv2d>(channels, channels, k3x3);
    }
  }
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    return net(x);
  }
  Sequential net{*this, "net"};
};

struct DiffUnet : Module {
  DiffUnet(Module& parent, std::string_view name, int64_t channels, int64_t n_layers)
      : Module(parent, name),
        diff_unet_f(*this, "diff_unet_f", channels, n_layers),
        diff_unet_g(*this, "diff_unet_g", channels, n_layers) {}

  // On states of (N, M h w).
  Sde equation(const Dims& feature) const {
    Sde sde;
    sde.drift = [this, feature](const Tensor& y) {
      const Tensor x = diff_unet_f(reshape(y, feature));
      return flatten(x, 1);
    };
    sde.diffusion = [this, feature](const Tensor& y) {
      Tensor x = diff_unet_g(reshape(y, feature));
      x = tanh(x);
      return flatten(x, 1);
    };
    for (const Parameter* p : parameters())
      if (p->value.requires_grad()) sde.parameters.push_back(p->value);
    return sde;
  }

  OdeSdeFuncNet diff_unet_f, diff_unet_g;
};

}  // namespace

struct DiffModel::Parts {
  Parts(Module& model, const StdiffMotionOptions& o)
      : motion_encoder(model, "motion_encoder", o),
        conv_gru_cell(model, "conv_gru_cell", o.motion_channels()),
        diff_unet(model, "diff_unet", o.motion_channels(), o.n_layers) {}
  MotionEncoder motion_encoder;
  ConvGRUCell conv_gru_cell;
  DiffUnet diff_unet;
};

DiffModel::DiffModel(Module& parent, std::string_view name, const StdiffMotionOptions& options)
    : Module(parent, name), options_(options), parts_(std::make_unique<Parts>(*this, options)) {}

DiffModel::~DiffModel() = default;

Tensor DiffModel::context_encode(const Tensor& observed) {
  Forward here(*this);
  const int64_t n = observed.size(0), frames = observed.size(1) - 1;
  const Tensor differences = sub(slice(observed, 1, 1, frames + 1), slice(observed, 1, 0, frames));  // (N, To - 1, C, H, W)
  const Tensor features = parts_->motion_encoder(flatten(differences, 0, 1));                        // (N (To - 1), M, h, w)
  const int64_t c = features.size(1), height = features.size(2), width = features.size(3);
  const Tensor h = reshape(features, {n, frames, c, height, width});
  Tensor m = filled(tape(), "zeros", {c, height, width}, DType::float32);
  m = expand(unsqueeze(m, 0), {n, -1, -1, -1});
  for (int64_t i = 0; i < frames; ++i) m = parts_->conv_gru_cell(select(h, 1, i), m);
  return m;
}

Tensor DiffModel::future_predict(const Tensor& context, int64_t observed, int64_t predicted) {
  Forward here(*this);
  const Dims feature = context.sizes();
  // Frames are numbered from 0, in fp32; recorded rows count in fp64.
  const TimeGrid grid{static_cast<double>(observed - 1), predicted + 1, options_.dt, !tape().dialect.recorder};
  SdeSolution solution = sdeint_adjoint(parts_->diff_unet.equation(feature), flatten(context, 1), grid);
  if (tape().dialect.rules.cycles_await_collection) uncollected_.push_back(std::move(solution.path));
  const Tensor future = reshape(solution.states, {predicted + 1, feature[0], feature[1], feature[2], feature[3]});
  return slice(future, 0, 1, predicted + 1);
}

}  // namespace plimsoll
