#include "api/schema.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "api/schemas/schemas.h"
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

// One line for what fits into one.
std::string readable(const Json& value, const std::string& indent = "") {
  constexpr size_t kWidth = 140;
  const std::string line = value.dump();
  if (!value.is_structured() || indent.size() + line.size() <= kWidth) return line;
  std::string out;
  const std::string inner = indent + " ";
  for (const auto& item : value.items())
    out += (out.empty() ? "\n" : ",\n") + inner + (value.is_object() ? Json(item.key()).dump() + ": " : "") + readable(item.value(), inner);
  return (value.is_object() ? "{" : "[") + out + "\n" + indent + (value.is_object() ? "}" : "]");
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

std::vector<std::string> schema_names() {
  std::vector<std::string> out;
  for (const Verb& v : verbs())
    if (v.shape) out.emplace_back(v.name);
  out.emplace_back("run-events");
  out.emplace_back("error");
  return out;
}

std::string answer_schema(const std::string& name) {
  const auto text = [&](const Shape& shape, const std::string& title) { return readable(json_schema(shape, title)) + "\n"; };
  if (name == "error") return text(error_shape(), "What plimsoll answers when it cannot");
  if (name == "run-events") return text(run_events_shape(), "A line of the events of plimsoll run");
  for (const Verb& v : verbs())
    if (name == v.name && v.shape) return text(v.shape(), "The answer of plimsoll " + name);
  return "";
}

Json error_json(const std::string& verb, int code, const std::string& message, const std::string& hint) {
  return {{"schema", 1}, {"command", "error"}, {"verb", verb}, {"code", code}, {"message", message}, {"hint", hint}};
}

std::vector<RequestKey> schema_request_keys() {
  RequestKey verb{"verb", KeyType::text, "whose schemas"};
  verb.choices = schema_names();
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
  const std::string answered = answer_schema(request.verb);
  if (answered.empty())
    throw Error("[schema] '" + printable(request.verb, 60) + "' has no schema", did_you_mean(request.verb, schema_names()),
                ExitCode::usage);
  Json asked;
  for (const Verb& v : verbs())
    if (request.verb == v.name && v.answer) asked = request_schema(v.name, v.keys());
  if (request.request && asked.is_null())
    throw Error("[schema] " + request.verb + " takes no request", "plimsoll schema " + request.verb, ExitCode::usage);
  show([&] { return doc::preformatted(request.request ? dump(asked, 2) + "\n" : answered); },
       [&] {
         return Json{{"schema", 1}, {"command", "schema"}, {"verb", request.verb}, {"request", asked}, {"answer", Json::parse(answered)}};
       });
  return ExitCode::ok;
}

}  // namespace plimsoll
