// An adapter that is said in part, on top of one that was chosen before: `--like axolotl --lora r=64` keeps axolotl's targets.
#pragma once

#include "job/tuning.h"

namespace plimsoll {

// What `value` does not say stays as it was chosen; `true` says nothing. Throws an Error as parse_adapter does.
AdapterSettings parse_adapter_over(const AdapterSettings& chosen, const nlohmann::json& value);

}  // namespace plimsoll
