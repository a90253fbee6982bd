#include "nn/patch_embedding.h"

#include <nlohmann/json.hpp>

#include "ops/conv.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// transformers accepts a number or a pair.
std::pair<int64_t, int64_t> read_pair(const Config& c, const char* key, int64_t fallback) {
  const nlohmann::json* value = c.find({key});
  if (!value || !value->is_array()) {
    const int64_t n = c.size({key}, fallback);
    return {n, n};
  }
  if (value->size() != 2 || !(*value)[0].is_number_integer() || !(*value)[1].is_number_integer() || (*value)[0] <= 0 || (*value)[1] <= 0)
    throw Error("[" + c.source() + "] " + key + " is " + dump(*value).substr(0, 80) + ", expected a number or [height, width]",
                std::string("set ") + key + " to whole numbers above 0");
  return {(*value)[0].get<int64_t>(), (*value)[1].get<int64_t>()};
}

}  // namespace

PatchConfig::PatchConfig(const Config& c, int64_t default_patch) : num_channels(c.size({"num_channels"}, 3)) {
  std::tie(image_h, image_w) = read_pair(c, "image_size", 224);
  std::tie(patch_h, patch_w) = read_pair(c, "patch_size", default_patch);
  if (num_patches() == 0)
    throw Error("[" + c.source() + "] image_size " + std::to_string(image_h) + " is smaller than patch_size " + std::to_string(patch_h),
                "choose a smaller patch_size");
}

PatchProjection::PatchProjection(Module& parent, std::string_view name, const PatchConfig& c, int64_t width)
    : Module(parent, name), weight(parameter("weight", {width, c.num_channels, c.patch_h, c.patch_w})), bias(parameter("bias", {width})) {}

Tensor PatchProjection::operator()(const Tensor& pixel_values) const {
  Forward here(*this);
  Conv2dArgs args;
  args.stride_h = weight.size(2);
  args.stride_w = weight.size(3);
  return conv2d(pixel_values, weight, bias, args);
}

PatchEmbeddings::PatchEmbeddings(Module& parent, std::string_view name, const PatchConfig& c, int64_t width)
    : Module(parent, name), config(c), projection(*this, "projection", c, width) {}

Tensor PatchEmbeddings::operator()(const Tensor& pixel_values) const {
  Forward here(*this);
  if (pixel_values.size(1) != config.num_channels)
    throw Error("[patch_embeddings] images of " + std::to_string(pixel_values.size(1)) + " channels do not fit num_channels " +
                    std::to_string(config.num_channels),
                "set num_channels to the channels of the images");
  Tensor patches = transpose(flatten(projection(pixel_values), 2), 1, 2);  // (B, patches, width)
  require_input_grad(build(), patches);
  return patches;
}

}  // namespace plimsoll
