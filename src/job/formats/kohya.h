// What the reader and the writer of kohya's sd-scripts share.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace plimsoll {

// A file of datasets, as --dataset_config names it.
bool is_kohya_dataset(const nlohmann::json& value);

}  // namespace plimsoll
