// How torchtitan spreads a run over processes, from its configuration: the degrees of its ParallelDims as a `torchtitan` setting, or, where
// its own code is not simulated, as the nearest settings of PyTorch.
#pragma once

#include "formats/reader.h"

namespace plimsoll {

// Wants the precision read. `knows_model`: torchtitan's code of the model is simulated.
void read_torchtitan_layout(Reader& r, bool knows_model);

}  // namespace plimsoll
