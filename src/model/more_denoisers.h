// Builders of diffusers' transformers, continued: FLUX.2 and those of videos that are trained like it.
#pragma once

#include "nn/denoiser.h"

namespace plimsoll {

std::unique_ptr<Model> make_cogvideox(Build& build, const Config& config);
std::unique_ptr<Model> make_flux2(Build& build, const Config& config);
std::unique_ptr<Model> make_ltx_video(Build& build, const Config& config);

}  // namespace plimsoll
