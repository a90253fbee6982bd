// A page about a file of memory events: a trace file, or a recorded memory snapshot.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll {

// None when the words do not name such a file. Throws an Error for one that is damaged.
std::optional<nlohmann::ordered_json> run_page(const std::vector<std::string>& words, const std::function<void(size_t, size_t)>& progress);

}  // namespace plimsoll
