// Need and verdict for every combination of some settings and devices: `plan --matrix gpu=rtx-4090,a100-80gb,batch=1,2,4`.
#pragma once

#include "api/plan.h"

namespace plimsoll {

ExitCode answer_matrix(const SearchRequest& request, const Job& job, const Show& show);

}  // namespace plimsoll
