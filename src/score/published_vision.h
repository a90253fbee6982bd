// Published rows of networks for images and videos: diffusion transformers, video classifiers, segmentation.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "score/published_model.h"

namespace plimsoll {

// The family is empty where the row is of none of these.
PublishedModel published_vision_model(const nlohmann::json& row, nlohmann::json& config);

}  // namespace plimsoll
