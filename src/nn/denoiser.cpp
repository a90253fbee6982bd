#include "nn/denoiser.h"

#include <fmt/format.h>

#include "ops/loss.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

class DenoiserTraining : public Model {
 public:
  DenoiserTraining(Build& build, const Config& c, MakeDenoiser make) : Model(build), config_(c), net_(make(*this, "net", c)) {}

  Tensors make_inputs(int64_t samples, int64_t length, DType dtype) override {
    const Canvas canvas = this->canvas(length);
    Tensors inputs{empty(tape(), net_->latent_sizes(samples, canvas), dtype), empty(tape(), {samples}, DType::int64),
                   empty(tape(), net_->target_sizes(samples, canvas), dtype)};
    for (Tensor& t : net_->make_conditions(samples, canvas, dtype)) inputs.push_back(std::move(t));
    return inputs;
  }

  Output forward(const Batch& batch) override {
    const Tensors conditions(batch.own.begin() + 3, batch.own.end());
    const Tensor prediction = net_->predict(batch.own[0], batch.own[1], conditions);
    return {mse_loss(to(prediction, DType::float32), to(batch.own[2], DType::float32)), {}};
  }

  std::string sample(int64_t length) const override {
    const Canvas c = canvas(length);
    return c.frames > 1 ? fmt::format("{} frames of {} x {}", c.frames, c.height, c.width)
                        : fmt::format("{} x {} pixels", c.height, c.width);
  }

 private:
  Canvas canvas(int64_t side) const {
    return {config_.size({"height"}, side), config_.size({"width"}, side), config_.size({"frames"}, 1),
            config_.find({"text_tokens"}) ? config_.size({"text_tokens"}, 1) : 0};
  }

  Config config_;
  std::unique_ptr<Denoiser> net_;
};

}  // namespace

std::unique_ptr<Model> make_denoiser_training(Build& build, const Config& config, MakeDenoiser make) {
  return std::make_unique<DenoiserTraining>(build, config, make);
}

}  // namespace plimsoll
