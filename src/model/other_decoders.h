// Builders of decoders whose code is in no library of the Hub: litgpt's one class, and the first Qwen's beside its weights.
#pragma once

#include "job/config.h"
#include "nn/model.h"

namespace plimsoll {

std::unique_ptr<Model> make_litgpt(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen(Build& build, const Config& config);

}  // namespace plimsoll
