#include "nn/text_encoder.h"

#include "ops/loss.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct TextEncoderTraining : Model {
  TextEncoderTraining(Build& build, const Config& c, MakeTextEncoder make) : Model(build), net(make(*this, "net", c)) {}

  Tensors make_inputs(int64_t samples, int64_t length, DType dtype) override {
    return {empty(tape(), {samples, length}, DType::int64), empty(tape(), net->result_sizes(samples, length), dtype)};
  }

  Output forward(const Batch& batch) override {
    const TextStates out = net->encode(batch.own[0], false);
    const Tensor states = net->result(out);
    return {mse_loss(to(states, DType::float32), to(batch.own[1], DType::float32)), {}};
  }

  std::string sample(int64_t length) const override { return std::to_string(length) + " tokens"; }

  std::unique_ptr<TextEncoder> net;
};

}  // namespace

std::unique_ptr<Model> make_text_encoder_training(Build& build, const Config& config, MakeTextEncoder make) {
  return std::make_unique<TextEncoderTraining>(build, config, make);
}

}  // namespace plimsoll
