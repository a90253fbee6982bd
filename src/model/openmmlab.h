// Builders of OpenMMLab's networks: recognizers of videos (mmaction2) and segmentation (mmsegmentation).
#pragma once

#include "job/config.h"
#include "nn/model.h"

namespace plimsoll {

std::unique_ptr<Model> make_mmseg(Build& build, const Config& config);
std::unique_ptr<Model> make_tsn(Build& build, const Config& config);

}  // namespace plimsoll
