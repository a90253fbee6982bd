// Networks that predict the noise in latents, and the training step that diffusers' scripts give them: latents and text states are
// at hand (cached), the prediction is compared with its target in fp32.
#pragma once

#include "job/config.h"
#include "nn/model.h"
#include "nn/parameter_groups.h"

namespace plimsoll {

// What is generated: an image, or a video of several frames.
struct Canvas {
  int64_t height = 0, width = 0;  // pixels
  int64_t frames = 1;
  int64_t text_tokens = 0;  // 0: the network's usual number
};

// An input beside latents and timestep.
struct Condition {
  // Of the texts: states, pooled texts, masks. The rest is what a trainer makes itself, in every step.
  enum class Kind : uint8_t { text, positions, sizes, guidance };
  Dims sizes;
  DType dtype = DType::float32;
  Kind kind = Kind::text;
};
using Conditions = std::vector<Condition>;

class Denoiser : public Module {
 public:
  using Module::Module;
  virtual Dims latent_sizes(int64_t samples, const Canvas& canvas) const = 0;  // as the network takes them, packed or not
  virtual Dims target_sizes(int64_t samples, const Canvas& canvas) const { return latent_sizes(samples, canvas); }
  virtual Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) = 0;
  virtual Tensor predict(const Tensor& latents, const Tensor& timestep, const Tensors& conditions) = 0;
  // False: the prediction points from the noise to the image, and the AI Toolkit turns it round.
  virtual bool predicts_noise() const { return true; }
  // What the AI Toolkit makes of its timesteps (of 1000) for this network; what else lives as long follows.
  virtual Tensors toolkit_times(const Tensor& timestep, DType) const { return {timestep}; }
  // Positions are one for all samples: (tokens, axes).
  Tensors make_conditions(int64_t samples, const Canvas& canvas, DType dtype);
};

using MakeDenoiser = std::unique_ptr<Denoiser> (*)(Module& parent, std::string_view name, const Config& config);

// One step of training: its inputs, and its loss.
class DenoiserStep {
 public:
  virtual ~DenoiserStep() = default;
  virtual Tensors make_inputs(int64_t samples, const Canvas& canvas, DType dtype) = 0;
  virtual Output forward(const Tensors& inputs) = 0;
  virtual ParameterGroups parameter_groups() const { return {}; }
};

// A denoiser and the step that trains it, at first that of diffusers' scripts.
class DenoiserModel : public Model, public GroupsParameters {
 public:
  DenoiserModel(Build& build, const Config& config, MakeDenoiser make);
  Denoiser& net() { return *net_; }
  void train_by(std::unique_ptr<DenoiserStep> step) { step_ = std::move(step); }

  Tensors make_inputs(int64_t samples, int64_t length, DType dtype) override;
  Output forward(const Batch& batch) override { return step_->forward(batch.own); }
  std::string sample(int64_t length) const override;
  ParameterGroups parameter_groups() const override { return step_->parameter_groups(); }

 private:
  Canvas canvas(int64_t side) const;

  Config config_;
  std::unique_ptr<Denoiser> net_;
  std::unique_ptr<DenoiserStep> step_;
};

// A model that trains the one denoiser which `make` builds under it. Config keys height, width, frames and text_tokens stand for a
// square of the job's seq.
std::unique_ptr<Model> make_denoiser_training(Build& build, const Config& config, MakeDenoiser make);

// The body of every builder: trains the one network Net.
template <class Net>
std::unique_ptr<Model> make_training_of(Build& build, const Config& config) {
  return make_denoiser_training(build, config, [](Module& parent, std::string_view name, const Config& c) -> std::unique_ptr<Denoiser> {
    return std::make_unique<Net>(parent, name, c);
  });
}

}  // namespace plimsoll
