#include "nn/classification.h"

#include "nn/transformer.h"
#include "ops/loss.h"
#include "ops/reshape.h"

namespace plimsoll {

Classification::Classification(const Config& config) {
  const nlohmann::json* names = config.find({"id2label"});
  num_labels = config.size({"num_labels"}, names ? static_cast<int64_t>(names->size()) : 2);
  if (names && static_cast<int64_t>(names->size()) != num_labels)
    throw Error("[" + config.source() + "] num_labels " + std::to_string(num_labels) + " does not match the " +
                    std::to_string(names->size()) + " entries of id2label",
                "give one of the two");
  const std::string problem = config.text({"problem_type"}, num_labels == 1 ? "regression" : "single_label_classification");
  regression = problem == "regression";
  if (regression || (problem == "single_label_classification" && num_labels > 1)) return;
  throw Error("[" + config.source() + "] problem_type " + problem + " with num_labels " + std::to_string(num_labels) +
                  " is not supported: samples have one label each",
              "use single_label_classification with num_labels of 2 or more, or regression");
}

Tensor Classification::loss(const Tensor& logits, const Tensor& labels) const {
  if (!regression) return flat_cross_entropy(logits, labels, false);
  if (num_labels > 1) return mse_loss(logits, labels);
  return mse_loss(squeeze(logits, 1), labels);
}

}  // namespace plimsoll
