// Builders of transformers' encoders of sounds, images and texts, and of what is built around them.
#pragma once

#include "job/config.h"
#include "nn/model.h"

namespace plimsoll {

std::unique_ptr<Model> make_bart(Build& build, const Config& config);
std::unique_ptr<Model> make_clip(Build& build, const Config& config);
std::unique_ptr<Model> make_deberta_v2(Build& build, const Config& config);
std::unique_ptr<Model> make_deberta_v2_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_llava(Build& build, const Config& config);
std::unique_ptr<Model> make_modernbert(Build& build, const Config& config);
std::unique_ptr<Model> make_modernbert_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen2_vl(Build& build, const Config& config);
std::unique_ptr<Model> make_siglip(Build& build, const Config& config);
std::unique_ptr<Model> make_whisper(Build& build, const Config& config);

}  // namespace plimsoll
