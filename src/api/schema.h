// The JSON Schemas of the verbs: of a request, made from its keys; of an answer, made from its shape. The files in schemas/ are the latter,
// for those who have no plimsoll at hand.
#pragma once

#include "api/request_keys.h"
#include "api/show.h"

namespace plimsoll {

struct SchemaRequest {
  std::string verb;
  bool request = false;  // the text is the schema of the request, not of the answer
};

nlohmann::ordered_json request_schema(const std::string& verb, const std::vector<RequestKey>& keys);
// Whose answers have one: verbs, and `error`.
std::vector<std::string> schema_names();
// The text of schemas/NAME.json; empty where there is none.
std::string answer_schema(const std::string& name);

// What stands in the place of an answer.
nlohmann::ordered_json error_json(const std::string& verb, int code, const std::string& message, const std::string& hint);

std::vector<RequestKey> schema_request_keys();
SchemaRequest schema_request(const nlohmann::json& request);
ExitCode answer(const SchemaRequest& request, const Show& show);

}  // namespace plimsoll
