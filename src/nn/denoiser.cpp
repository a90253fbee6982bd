#include "nn/denoiser.h"

#include <fmt/format.h>

#include "ops/loss.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// diffusers' scripts with everything cached: latents, timesteps, target, conditions.
class CachedStep : public DenoiserStep {
 public:
  explicit CachedStep(Denoiser& net) : net_(net) {}

  Tensors make_inputs(int64_t samples, const Canvas& canvas, DType dtype) override {
    Tape& tape = net_.tape();
    Tensors inputs{empty(tape, net_.latent_sizes(samples, canvas), dtype), empty(tape, {samples}, DType::int64),
                   empty(tape, net_.target_sizes(samples, canvas), dtype)};
    for (Tensor& t : net_.make_conditions(samples, canvas, dtype)) inputs.push_back(std::move(t));
    return inputs;
  }

  Output forward(const Tensors& inputs) override {
    const Tensors conditions(inputs.begin() + 3, inputs.end());
    const Tensor prediction = net_.predict(inputs[0], inputs[1], conditions);
    return {mse_loss(to(prediction, DType::float32), to(inputs[2], DType::float32)), {}};
  }

 private:
  Denoiser& net_;
};

}  // namespace

Tensors Denoiser::make_conditions(int64_t samples, const Canvas& canvas, DType dtype) {
  Tensors made;
  for (const Condition& c : conditions(samples, canvas, dtype)) made.push_back(empty(tape(), c.sizes, c.dtype));
  return made;
}

DenoiserModel::DenoiserModel(Build& build, const Config& c, MakeDenoiser make)
    : Model(build), config_(c), net_(make(*this, "net", c)), step_(std::make_unique<CachedStep>(*net_)) {
  // Bytes of what else a trainer keeps on the device: encoders, cached samples.
  if (c.find({"resident"})) buffer("resident", {c.size({"resident"}, 1)}, DType::uint8);
}

Tensors DenoiserModel::make_inputs(int64_t samples, int64_t length, DType dtype) {
  return step_->make_inputs(samples, canvas(length), dtype);
}

std::string DenoiserModel::sample(int64_t length) const {
  const Canvas c = canvas(length);
  return c.frames > 1 ? fmt::format("{} frames of {} x {}", c.frames, c.height, c.width) : fmt::format("{} x {} pixels", c.height, c.width);
}

Canvas DenoiserModel::canvas(int64_t side) const {
  return {config_.size({"height"}, side), config_.size({"width"}, side), config_.size({"frames"}, 1),
          config_.find({"text_tokens"}) ? config_.size({"text_tokens"}, 1) : 0};
}

std::unique_ptr<Model> make_denoiser_training(Build& build, const Config& config, MakeDenoiser make) {
  return std::make_unique<DenoiserModel>(build, config, make);
}

}  // namespace plimsoll
