// What a configuration of Llama says.
#pragma once

#include "nn/decoder.h"

namespace plimsoll {

DecoderConfig llama_config(const Config& config);

}  // namespace plimsoll
