// Few-shot diffusion models with a set encoder (thanhlamauto/few-shot-diffusion-models-jax, "lag" conditioning): a vision transformer
// reads each set of images with one of them left out, and its tokens are what a DiT's cross-attention looks at while it removes the
// noise from that one. Names follow the flax modules.
#include <fmt/format.h>

#include "model/diffusion/fsdm_dit.h"
#include "model/diffusion/fsdm_encoder.h"
#include "model/family.h"
#include "ops/copy_slices.h"
#include "ops/index.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// The loss of one step: noise at random steps of a schedule, mean squared error of what the DiT makes of it.
struct FSDM : Model {
  FSDM(Build& build, const Config& c) : Model(build), config(c) {}

  Tensors make_inputs(int64_t samples, int64_t, DType dtype) override {
    const int64_t side = config.image_size;
    return {empty(tape(), {samples, config.sample_size, 3, side, side}, dtype), empty(tape(), {samples}, DType::int64),
            empty(tape(), {checked_mul(samples, config.sample_size), 3, side, side}, dtype),
            empty(tape(), {config.diffusion_steps}, dtype)};
  }

  std::string sample(int64_t) const override {
    return fmt::format("{} images of {} x {}", config.sample_size, config.image_size, config.image_size);
  }

  Output forward(const Batch& batch) override {
    const Tensor &x = batch.own[0], &t = batch.own[1], &noise = batch.own[2], &alphas = batch.own[3];
    const int64_t images = checked_mul(x.size(0), config.sample_size);
    const Tensor time = time_embed(t);  // (B, hdim)
    const LeftOut encoded = leave_one_out(x, time);
    const Tensor context = pool(view(encoded.tokens, {images, config.patches(), config.hdim}));  // (images, tokens, hdim)
    const Tensor flat = reshape(x, {images, 3, config.image_size, config.image_size});
    const Tensor steps = repeat_interleave(t, config.sample_size, 0);  // (images)
    const Tensor alpha = unsqueeze(unsqueeze(unsqueeze(index(alphas, steps), 1), 2), 3);
    const Tensor noisy = add_noise(flat, noise, alpha);
    Tensor error = dit(noisy, steps, context);  // (images, 3, H, W)
    error = sub(error, noise);
    error = pow(error, 2);
    error = mean(error, {1, 2, 3}, false);
    return {mean(error, {}, false), {}};
  }

 private:
  // What the loop over the images of a set leaves behind.
  struct LeftOut {
    Tensor tokens;  // (B, sample_size, patches, hdim)
    Tensor set;     // the last one
    FsdmEncoder::Output last;
    Tensors pooled;  // not used by lag conditioning
  };

  LeftOut leave_one_out(const Tensor& x, const Tensor& time) {
    const int64_t b = x.size(0), ns = config.sample_size;
    LeftOut o;
    o.tokens = filled(tape(), "zeros", {b, ns, config.patches(), config.hdim}, x.dtype());
    for (int64_t i = 0; i < ns; ++i) {
      o.set = without(x, i);
      o.last = encoder(o.set, reshape(expand(unsqueeze(time, 1), {-1, ns, -1}), {checked_mul(b, ns), -1}));
      o.tokens = copy_into_slice_(o.tokens, o.last.tokens);
      o.pooled.push_back(unsqueeze(o.last.pooled, 1));
    }
    return o;
  }

  // The set without its image i, and zeros in the place of the last one.
  Tensor without(const Tensor& x, int64_t i) const {
    const Tensor rest = cat({getitem(x, 1, 0, i), getitem(x, 1, i + 1, config.sample_size)}, 1);
    const Tensor zeros = filled(tape(), "zeros", {x.size(0), 1, 3, config.image_size, config.image_size}, x.dtype());
    return cat({rest, zeros}, 1);
  }

  Tensor add_noise(const Tensor& x, const Tensor& noise, const Tensor& alpha) const {
    Tensor signal = sqrt(alpha);
    signal = mul(signal, x);
    Tensor share = rsub_scalar(alpha);
    share = sqrt(share);
    share = mul(share, noise);
    return add(signal, share);
  }

  Tensor pool(const Tensor& context) const {
    if (config.context_pool_size == 0) return context;
    const int64_t images = context.size(0), tokens = config.context_pool_size;
    return mean(reshape(context, {images, tokens, config.patches() / tokens, config.hdim}), {2}, false);
  }

  FsdmConfig config;
  FsdmEncoder encoder{*this, "encoder", config};
  FsdmTimeEmbed time_embed{*this, "time_embed", config.hdim / 4, config.hdim};
  FsdmDiT dit{*this, "dit", config};
};

std::unique_ptr<Model> make_fsdm(Build& build, const Config& config) { return std::make_unique<FSDM>(build, config); }

}  // namespace

const Family& fsdm_family() {
  static const Family kFamily{
      .name = "fsdm",
      .library = "thanhlamauto/few-shot-diffusion-models-jax",
      .models = {{"fsdm", {}, InputKind::own, 0, make_fsdm}},
      .presets = {{"fsdm-lag", R"({"sample_size":6})", 0},
                  {"fsdm-lag-ultra-low-mem", R"({"sample_size":3,"dropout":0.2})", 0},
                  {"fsdm-lag-minimal", R"({"sample_size":3,"num_heads":4,"encoder_heads":8,"dropout":0.2})", 0},
                  {"fsdm-lag-optimized",
                   R"({"sample_size":4,"num_heads":6,"dropout":0.2,"context_pool_size":64,"cross_attn_layers":"2,3,4,5","use_remat":true})",
                   0}},
      .programs = {.jax = true},
      .levers = {{"sample_size", 6, Shrink::one_less, "{} images in a set instead of {}", "less time; smaller sets"},
                 {"depth", 6, Shrink::one_less, "{} layers instead of {}", "less time; a smaller model"}},
  };
  return kFamily;
}

}  // namespace plimsoll
