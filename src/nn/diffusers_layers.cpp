#include "nn/diffusers_layers.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "util/checked.h"

namespace plimsoll {

std::vector<int64_t> sizes_in(const Config& config, const char* key, std::vector<int64_t> fallback, size_t count) {
  const nlohmann::json* list = config.find({key});
  if (!list) return fallback;
  if (!list->is_array() || list->empty() || (count && list->size() != count))
    throw Error(fmt::format("[{}] {} is {}", config.source(), key, dump(*list).substr(0, 80)),
                count ? fmt::format("give a list of {} sizes", count) : "give a list of sizes");
  std::vector<int64_t> out;
  for (const nlohmann::json& size : *list) out.push_back(Config(config.source() + ": " + key, {{"size", size}}).size({"size"}, 1));
  return out;
}

std::vector<int64_t> indices_in(const Config& config, const char* key) {
  const nlohmann::json* list = config.find({key});
  if (!list) return {};
  if (!list->is_array())
    throw Error(fmt::format("[{}] {} is {}", config.source(), key, dump(*list).substr(0, 80)), "give a list of numbers of layers: [0, 1]");
  std::vector<int64_t> out;
  for (const nlohmann::json& i : *list) out.push_back(Config(config.source() + ": " + key, {{"layer", i}}).integer({"layer"}, 0));
  return out;
}

bool rms_norm_or_none(const Config& config, const char* key) {
  const std::string name = config.text({key}, "");
  if (!name.empty() && name != "rms_norm")
    throw Error(fmt::format("[{}] {} '{}' cannot be simulated", config.source(), key, name), "known: rms_norm, null");
  return !name.empty();
}

int64_t tokens_along(const char* model, const char* side, int64_t pixels, int64_t per_token) {
  const int64_t below = pixels / per_token * per_token;
  if (pixels != below)
    throw Error(fmt::format("[{}] {} {} is not a multiple of {} pixels", model, side, pixels, per_token),
                fmt::format("take {}{}", below > 0 ? fmt::format("{} or ", below) : "", checked_add(below, per_token)));
  return pixels / per_token;
}

// ---- norms --------------------------------------------------------------------------------------------------------

FusedRMSNorm::FusedRMSNorm(Module& parent, std::string_view name, int64_t width, bool affine) : Module(parent, name) {
  if (affine) weight = parameter("weight", {width});
}

Tensor FusedRMSNorm::operator()(const Tensor& x) const {
  Forward here(*this);
  return rms_norm(x, weight);
}

DiffusersRMSNorm::DiffusersRMSNorm(Module& parent, std::string_view name, int64_t width, bool affine) : Module(parent, name) {
  if (affine) weight = parameter("weight", {width});
}

Tensor DiffusersRMSNorm::operator()(const Tensor& x) const {
  Forward here(*this);
  return diffusers_rms_norm(x, weight);
}

Tensor diffusers_rms_norm(const Tensor& x, const Tensor& weight) {
  Tensor variance;
  {
    const Tensor squares = pow(to(x, DType::float32), 2);
    variance = mean(squares, {-1}, true);
  }
  Tensor hidden;
  {
    const Tensor scale = rsqrt(add_scalar(variance));
    hidden = mul(x, scale);
  }
  if (!weight) return to(hidden, x.dtype());
  if (is_half(weight.dtype())) hidden = to(hidden, weight.dtype());
  hidden = mul(hidden, weight);
  return hidden;
}

FP32LayerNorm::FP32LayerNorm(Module& parent, std::string_view name, int64_t width, bool affine) : Module(parent, name) {
  if (!affine) return;
  weight = parameter("weight", {width});
  bias = parameter("bias", {width});
}

Tensor FP32LayerNorm::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor y;
  {
    const Tensor input = to(x, DType::float32);
    const Tensor w = weight ? to(weight, DType::float32) : Tensor(), b = bias ? to(bias, DType::float32) : Tensor();
    y = layer_norm(input, 1, w, b);
  }
  return to(y, x.dtype());
}

// ---- feed-forward ---------------------------------------------------------------------------------------------------

FeedForwardKind feed_forward_kind(const Config& config) {
  const std::string name = config.text({"activation_fn"}, "gelu-approximate");
  if (name == "gelu" || name == "gelu-approximate") return FeedForwardKind::gelu;
  if (name == "geglu") return FeedForwardKind::geglu;
  if (name == "swiglu") return FeedForwardKind::swiglu;
  if (name == "linear-silu") return FeedForwardKind::linear_silu;
  throw Error(fmt::format("[{}] activation_fn '{}' is not known", config.source(), name),
              "known: gelu, gelu-approximate, geglu, swiglu, linear-silu");
}

namespace {
bool is_gated(FeedForwardKind kind) { return kind == FeedForwardKind::geglu || kind == FeedForwardKind::swiglu; }
}  // namespace

DiffusersFeedForward::Activation::Activation(Module& parent, int64_t width, int64_t inner, FeedForwardKind kind)
    : Module(parent, "0"), kind(kind), proj(*this, "proj", width, is_gated(kind) ? checked_mul(2, inner) : inner) {}

Tensor DiffusersFeedForward::Activation::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor hidden = proj(x);  // (B, T, inner), twice that with a gate
  if (is_gated(kind)) {
    const Tensors half = chunk(hidden, 2, -1);
    hidden.reset();
    const Tensor gate = kind == FeedForwardKind::geglu ? gelu(half[1]) : silu(half[1]);
    return mul(half[0], gate);
  }
  hidden = kind == FeedForwardKind::gelu ? gelu(hidden) : silu(hidden);
  return hidden;
}

DiffusersFeedForward::Net::Net(Module& parent, int64_t width, int64_t inner, FeedForwardKind kind, double p)
    : Module(parent, "net"), act(*this, width, inner, kind), dropout(*this, "1", p), out(*this, "2", inner, width) {}

DiffusersFeedForward::DiffusersFeedForward(Module& parent, std::string_view name, int64_t width, FeedForwardKind kind, int64_t inner,
                                           double dropout)
    : Module(parent, name), net_(*this, width, inner ? inner : checked_mul(4, width), kind, dropout) {}

Tensor DiffusersFeedForward::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor hidden = net_.act(x);  // (B, T, inner)
  hidden = net_.dropout(hidden);
  hidden = net_.out(hidden);  // (B, T, C)
  return hidden;
}

// ---- embeddings -----------------------------------------------------------------------------------------------------

TextProjection::TextProjection(Module& parent, std::string_view name, int64_t in, int64_t width, bool gelu)
    : Module(parent, name), linear_1(*this, "linear_1", in, width), linear_2(*this, "linear_2", width, width), is_gelu(gelu) {}

Tensor TextProjection::operator()(const Tensor& caption) const {
  Forward here(*this);
  Tensor hidden = linear_1(caption);  // (..., width)
  hidden = is_gelu ? gelu(hidden) : silu(hidden);
  hidden = linear_2(hidden);
  return hidden;
}

namespace {
constexpr int64_t kTimeChannels = 256;
}

TimestepTextEmbeddings::TimestepTextEmbeddings(Module& parent, std::string_view name, int64_t width, int64_t pooled_width, bool guidance)
    : Module(parent, name),
      time_proj(*this, "time_proj", kTimeChannels),
      timestep_embedder(*this, "timestep_embedder", kTimeChannels, width),
      guidance_embedder(guidance ? std::make_unique<TimestepEmbedding>(*this, "guidance_embedder", kTimeChannels, width) : nullptr),
      text_embedder(*this, "text_embedder", pooled_width, width) {}

Tensor TimestepTextEmbeddings::operator()(const Tensor& timestep, const Tensor& guidance, const Tensor& pooled) const {
  Forward here(*this);
  const Tensor timesteps_proj = time_proj(timestep);  // (N, 256)
  const Tensor timesteps_emb = timestep_embedder(to(timesteps_proj, pooled.dtype()));
  if (!guidance_embedder) {
    const Tensor projections = text_embedder(pooled);
    return add(timesteps_emb, projections);
  }
  const Tensor guidance_proj = time_proj(guidance);
  const Tensor guidance_emb = (*guidance_embedder)(to(guidance_proj, pooled.dtype()));
  const Tensor time_guidance_emb = add(timesteps_emb, guidance_emb);
  const Tensor projections = text_embedder(pooled);
  return add(time_guidance_emb, projections);
}

}  // namespace plimsoll
