// Where an answer goes: a terminal, a document, the caller of the library. Each form is made only when it is asked for, while what it is
// about is alive.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "report/style.h"
#include "util/error.h"

namespace plimsoll {

using Show = std::function<void(const std::function<std::string(const Style&)>& text, const std::function<nlohmann::ordered_json()>& json)>;

}  // namespace plimsoll
