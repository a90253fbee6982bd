// Builders of diffusers' transformers: one per class, each in the file of its name.
#pragma once

#include "nn/denoiser.h"

namespace plimsoll {

std::unique_ptr<Model> make_chroma(Build& build, const Config& config);
std::unique_ptr<Model> make_dit(Build& build, const Config& config);
std::unique_ptr<Model> make_flux(Build& build, const Config& config);
std::unique_ptr<Model> make_hidream(Build& build, const Config& config);
std::unique_ptr<Model> make_hunyuan_video(Build& build, const Config& config);
std::unique_ptr<Model> make_lumina2(Build& build, const Config& config);
std::unique_ptr<Model> make_omnigen2(Build& build, const Config& config);
std::unique_ptr<Model> make_pixart(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen_image(Build& build, const Config& config);
std::unique_ptr<Model> make_sd3(Build& build, const Config& config);
std::unique_ptr<Model> make_wan(Build& build, const Config& config);

// The body of every builder: trains the one network Net.
template <class Net>
std::unique_ptr<Model> make_training_of(Build& build, const Config& config) {
  return make_denoiser_training(build, config, [](Module& parent, std::string_view name, const Config& c) -> std::unique_ptr<Denoiser> {
    return std::make_unique<Net>(parent, name, c);
  });
}

}  // namespace plimsoll
