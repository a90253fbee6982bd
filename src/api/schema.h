// The JSON Schemas of the verbs: of a request, made from its keys; of an answer, a file in schemas/ that is part of the binary.
#pragma once

#include <string_view>

#include "api/request_keys.h"
#include "api/show.h"

namespace plimsoll {

struct SchemaRequest {
  std::string verb;
  bool request = false;  // the text is the schema of the request, not of the answer
};

nlohmann::ordered_json request_schema(const std::string& verb, const std::vector<RequestKey>& keys);
// The text of schemas/VERB.json; empty where there is none.
std::string_view answer_schema(std::string_view verb);

std::vector<RequestKey> schema_request_keys();
SchemaRequest schema_request(const nlohmann::json& request);
ExitCode answer(const SchemaRequest& request, const Show& show);

}  // namespace plimsoll
