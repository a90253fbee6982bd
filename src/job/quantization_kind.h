// Whose quantisation it is: bitsandbytes' types are loaded by transformers and prepared by PEFT, the others by the trainers that have them.
#pragma once

#include "job/tuning.h"

namespace plimsoll {

bool is_bitsandbytes(const QuantizationSettings& q);

}  // namespace plimsoll
