// Builders of more decoders: those of transformers that are alone in their file, litgpt's one class, and the first Qwen's beside its
// weights.
#pragma once

#include "job/config.h"
#include "nn/model.h"

namespace plimsoll {

std::unique_ptr<Model> make_gemma3(Build& build, const Config& config);
std::unique_ptr<Model> make_smollm3(Build& build, const Config& config);
std::unique_ptr<Model> make_litgpt(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen(Build& build, const Config& config);

}  // namespace plimsoll
