// What OLMo and OLMo 2 have in common.
#pragma once

#include "nn/decoder_config.h"

namespace plimsoll {

// Reads their configuration over what is set already: norms and where they are.
DecoderConfig olmo_decoder(DecoderConfig d, const Config& c);

}  // namespace plimsoll
