// The verbs of the library: a JSON request in, what the command of that name prints with --json out.
#pragma once

#include <string>
#include <vector>

#include "api/show.h"

namespace plimsoll {

const char* version();

struct Verb {
  const char* name;
  ExitCode (*answer)(const nlohmann::json& request, const Show& show);
};
const std::vector<Verb>& verbs();

// Throws an Error for a verb that is not known, for text that is no JSON, and for what the verb itself does not understand.
ExitCode ask(const std::string& verb, const std::string& request, nlohmann::ordered_json& out);

}  // namespace plimsoll
