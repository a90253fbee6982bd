#include "api/schema.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "api/verbs.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

Json type_schema(KeyType type) {
  switch (type) {
    case KeyType::text: return {{"type", "string"}};
    case KeyType::texts: return {{"type", {"string", "array"}}, {"items", {{"type", "string"}}}};
    case KeyType::number: return {{"type", "number"}};
    case KeyType::integer: return {{"type", "integer"}};
    case KeyType::flag: return {{"type", "boolean"}};
    case KeyType::size: return {{"type", {"integer", "string"}}};
    case KeyType::object: return {{"type", "object"}};
    case KeyType::list: return {{"type", "array"}};
  }
  return Json::object();
}

Json key_schema(const RequestKey& key) {
  Json out = type_schema(key.type);
  out["description"] = key.help;
  if (!key.choices.empty()) out["enum"] = key.choices;
  if (std::isfinite(key.range.low)) out[key.range.above ? "exclusiveMinimum" : "minimum"] = key.range.low;
  if (std::isfinite(key.range.high)) out["maximum"] = key.range.high;
  return out;
}

}  // namespace

Json request_schema(const std::string& verb, const std::vector<RequestKey>& keys) {
  Json properties = Json::object(), required = Json::array();
  for (const RequestKey& k : keys) {
    properties[k.key] = key_schema(k);
    if (k.required) required.push_back(k.key);
  }
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
          {"title", "A request of plimsoll " + verb},
          {"type", "object"},
          {"properties", properties},
          {"required", required},
          {"additionalProperties", false}};
}

std::vector<RequestKey> schema_request_keys() {
  RequestKey verb{"verb", KeyType::text, "whose schemas"};
  verb.required = true;
  return {verb};
}

SchemaRequest schema_request(const nlohmann::json& request) {
  const std::vector<RequestKey> keys = schema_request_keys();
  SchemaRequest out;
  read_value(request_of(request, keys), keys.front(), out.verb);
  return out;
}

ExitCode answer(const SchemaRequest& request, const Show& show) {
  const Verb& verb = find_verb(request.verb);
  const Json asked = request_schema(verb.name, verb.keys());
  const std::string answered(answer_schema(verb.name));
  show([&] { return doc::preformatted(request.request ? dump(asked, 2) + "\n" : answered); },
       [&] {
         return Json{{"schema", 1}, {"command", "schema"}, {"verb", verb.name}, {"request", asked}, {"answer", Json::parse(answered)}};
       });
  return ExitCode::ok;
}

}  // namespace plimsoll
