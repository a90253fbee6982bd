#include "nn/vision.h"

#include <algorithm>

#include "ops/conv.h"
#include "ops/loss.h"
#include "ops/pool.h"
#include "util/text.h"

namespace plimsoll {

Conv2d::Conv2d(Module& parent, std::string_view name, int64_t in, int64_t out, const Conv2dOptions& o)
    : Module(parent, name), options(o) {
  weight = parameter("weight", {out, in / o.groups, o.kernel.h, o.kernel.w});
  if (o.bias) bias = parameter("bias", {out});
}

Tensor Conv2d::operator()(const Tensor& x) const {
  Forward here(*this);
  return conv2d(x, weight, bias,
                {options.stride.h, options.stride.w, options.padding.h, options.padding.w, options.dilation.h, options.dilation.w,
                 options.groups});
}

Tensor AdaptiveAvgPool2d::operator()(const Tensor& x) const {
  Forward here(*this);
  return adaptive_avg_pool2d(x, out.h, out.w);
}

Tensor Sequential::operator()(const Tensor& x) const {
  Tensor input = x;
  for (const Step& step : steps_) input = step.run(input);
  return input;
}

Output ImageClassifier::forward(const Batch& batch) {
  if (!batch.pixel_values) throw Error("[torchvision] a network for images got no pixels", "set inputs to image");
  if (build().checkpointing)
    throw Error("[torchvision] checkpoint true: gradient_checkpointing_enable is a method of transformers models",
                "switch checkpointing off");
  const Tensor logits = (*this)(batch.pixel_values);  // (N, classes)
  return {cross_entropy(logits, batch.labels), {}};
}

void require_known_arguments(const Config& config, const char* family, std::initializer_list<const char*> known) {
  std::vector<std::string> names{"num_classes", "weights", "progress"};
  names.insert(names.end(), known.begin(), known.end());
  for (const auto& [key, value] : config.values().items()) {
    if (std::find(names.begin(), names.end(), key) == names.end() && !value.is_null())
      throw Error(std::string("[") + family + "] argument " + key + " is not known", did_you_mean(key, names));
  }
}

}  // namespace plimsoll
