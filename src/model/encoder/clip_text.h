// CLIP's model of texts, which CLIP itself has beside its model of images.
#pragma once

#include "nn/text_encoder.h"

namespace plimsoll {

std::unique_ptr<TextEncoder> make_clip_text_model(Module& parent, std::string_view name, const Config& config);

}  // namespace plimsoll
