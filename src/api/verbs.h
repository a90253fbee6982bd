// The verbs, one row each: a name, the keys of its request, its answer and the shape of that. The command line, the library and the
// schemas are made from them.
#pragma once

#include <string>
#include <vector>

#include "api/answer_schema.h"
#include "api/request_keys.h"
#include "api/show.h"

namespace plimsoll {

const char* version();

struct Verb {
  const char* name;
  const char* summary;
  std::vector<RequestKey> (*keys)();
  // A JSON request in, what the command of that name prints out. Null: a program of the command line, which answers no question.
  ExitCode (*answer)(const nlohmann::json& request, const Show& show);
  // Of the JSON that it answers or prints. Null: it prints none.
  Shape (*shape)();
  const char* examples = nullptr;  // below the help of a command that has no file of its own
};
const std::vector<Verb>& verbs();
// A verb that answers. Throws an Error with the nearest name.
const Verb& find_verb(const std::string& name);

// Throws an Error for a verb that is not known, for text that is no JSON, and for what the verb itself does not understand; Cancelled when
// `progress` ends it.
ExitCode ask(const std::string& verb, const std::string& request, nlohmann::ordered_json& out, const OnProgress& progress = {});

}  // namespace plimsoll
