// Every architecture's builder; registry.cpp lists them by name.
#pragma once

#include "job/config.h"
#include "nn/model.h"

namespace plimsoll {

std::unique_ptr<Model> make_gpt2(Build& build, const Config& config);
std::unique_ptr<Model> make_llama(Build& build, const Config& config);

}  // namespace plimsoll
