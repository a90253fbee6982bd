// Builders of autoencoders that are families of their own.
#pragma once

#include "job/config.h"
#include "nn/model.h"

namespace plimsoll {

std::unique_ptr<Model> make_causal_autoencoder(Build& build, const Config& config);

}  // namespace plimsoll
