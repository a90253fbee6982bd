// A JSON Schema held against values: the words that ours use, what does not hold, and which of its keys no value had. An object that is
// described alike in several places, or in several schemas, is one object there.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace plimsoll {

class JsonSchema {
 public:
  using Json = nlohmann::ordered_json;

  // The keys that values had, of objects by their description.
  using Seen = std::set<std::pair<size_t, std::string>>;

  explicit JsonSchema(Json schema, std::shared_ptr<Seen> seen = std::make_shared<Seen>())
      : schema_(std::move(schema)), seen_(std::move(seen)) {}

  // Empty when the value is as described.
  std::vector<std::string> problems(const Json& value) {
    std::vector<std::string> out;
    check(schema_, "", value, "", out);
    return out;
  }

  // Keys that are described and that no value had so far, by their place in the schema: "/$defs/fit/correction". An object all of whose
  // keys may be left out is a table by names, of which nobody has all.
  std::vector<std::string> never_seen() const {
    std::vector<std::string> out;
    collect(schema_, "", out);
    return out;
  }

 private:
  using Problems = std::vector<std::string>;

  static bool is_of_type(const Json& value, const std::string& type) {
    return type == "object"    ? value.is_object()
           : type == "array"   ? value.is_array()
           : type == "string"  ? value.is_string()
           : type == "boolean" ? value.is_boolean()
           : type == "null"    ? value.is_null()
           : type == "integer" ? value.is_number_integer()
                               : type == "number" && value.is_number();
  }

  static std::string shown(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60); }

  void check(const Json& schema, const std::string& path, const Json& value, const std::string& at, Problems& out) {
    const auto wrong = [&](const std::string& what) { out.push_back(at + ": " + what); };
    for (const auto& [word, rule] : schema.items()) {
      if (word == "type") {
        const Json types = rule.is_array() ? rule : Json::array({rule});
        if (std::none_of(types.begin(), types.end(), [&](const Json& type) { return is_of_type(value, type.get<std::string>()); }))
          wrong(shown(value) + " is not of type " + rule.dump());
      } else if (word == "const") {
        if (value != rule) wrong(shown(value) + " is not " + rule.dump());
      } else if (word == "enum") {
        if (std::find(rule.begin(), rule.end(), value) == rule.end()) wrong(shown(value) + " is not one of " + rule.dump());
      } else if (word == "properties") {
        if (!value.is_object()) continue;
        for (const auto& [key, inner] : rule.items()) {
          if (!value.contains(key)) continue;
          seen_->emplace(id_of(rule), key);
          check(inner, path + "/" + key, value[key], at + "/" + key, out);
        }
      } else if (word == "required") {
        if (!value.is_object()) continue;
        for (const Json& key : rule)
          if (!value.contains(key.get<std::string>())) wrong("no " + key.dump());
      } else if (word == "additionalProperties") {
        check_others(schema, rule, path, value, at, out);
      } else if (word == "items") {
        if (!value.is_array()) continue;
        for (size_t i = 0; i < value.size(); ++i) check(rule, path + "/[]", value[i], at + "/" + std::to_string(i), out);
      } else if (word == "$ref") {
        const std::string name = rule.get<std::string>().substr(std::string("#/$defs/").size());
        check(schema_.at("$defs").at(name), "/$defs/" + name, value, at, out);
      } else if (word == "oneOf") {
        check_choice(rule, path, value, at, out);
      } else if (word == "minimum" || word == "exclusiveMinimum" || word == "maximum") {
        if (!value.is_number()) continue;
        const double number = value.get<double>(), bound = rule.get<double>();
        if (word == "minimum" ? number < bound : word == "maximum" ? number > bound : number <= bound)
          wrong(shown(value) + " is beyond " + rule.dump());
      } else if (word != "$schema" && word != "title" && word != "description" && word != "$defs") {
        wrong("the schema has the word '" + word + "', which this test does not know");
      }
    }
  }

  void check_others(const Json& schema, const Json& rule, const std::string& path, const Json& value, const std::string& at,
                    Problems& out) {
    if (!value.is_object()) return;
    for (const auto& [key, inner] : value.items()) {
      if (schema.contains("properties") && schema["properties"].contains(key)) continue;
      if (rule == false)
        out.push_back(at + ": '" + key + "' is not in the schema");
      else
        check(rule, path + "/*", inner, at + "/" + key, out);
    }
  }

  // What tells alternatives apart: the type of the value, and the names that its `kind` or `event` may be.
  static bool is_of_another_kind(const Json& alternative, const Json& value) {
    if (!alternative.contains("type")) return value.is_null();
    const Json& type = alternative["type"];
    const Json types = type.is_array() ? type : Json::array({type});
    if (std::none_of(types.begin(), types.end(), [&](const Json& each) { return is_of_type(value, each.get<std::string>()); })) return true;
    if (!value.is_object() || !alternative.contains("properties")) return false;
    for (const char* key : {"kind", "event"}) {
      if (!value.contains(key) || !alternative["properties"].contains(key)) continue;
      const Json& names = alternative["properties"][key];
      if (names.contains("enum") && std::find(names["enum"].begin(), names["enum"].end(), value[key]) == names["enum"].end()) return true;
    }
    return false;
  }

  void check_choice(const Json& alternatives, const std::string& path, const Json& value, const std::string& at, Problems& out) {
    std::vector<size_t> possible;
    for (size_t i = 0; i < alternatives.size(); ++i)
      if (!is_of_another_kind(alternatives[i], value)) possible.push_back(i);
    if (possible.size() != 1) return out.push_back(at + ": " + std::to_string(possible.size()) + " of its descriptions may be meant");
    check(alternatives[possible[0]], place(alternatives, possible[0], path), value, at, out);
  }

  static std::string place(const Json& alternatives, size_t i, const std::string& path) {
    const Json& a = alternatives[i];
    if (!a.contains("properties") || !a["properties"].contains("kind") || !a["properties"]["kind"].contains("enum")) return path;
    return path + "/" + a["properties"]["kind"]["enum"][0].get<std::string>() + ":";
  }

  void collect(const Json& schema, const std::string& path, Problems& out) const {
    if (!schema.is_object()) return;
    if (schema.contains("properties") && !schema["required"].empty()) {
      const Json& properties = schema["properties"];
      for (const auto& [key, inner] : properties.items()) {
        if (!seen_->contains({id_of(properties), key}))
          out.push_back(path + "/" + key);
        else
          collect(inner, path + "/" + key, out);
      }
    }
    if (schema.contains("items")) collect(schema["items"], path + "/[]", out);
    if (schema.contains("additionalProperties")) collect(schema["additionalProperties"], path + "/*", out);
    if (schema.contains("oneOf"))
      for (size_t i = 0; i < schema["oneOf"].size(); ++i) collect(schema["oneOf"][i], place(schema["oneOf"], i, path), out);
    if (schema.contains("$defs"))
      for (const auto& [name, inner] : schema["$defs"].items()) collect(inner, "/$defs/" + name, out);
  }

  size_t id_of(const Json& properties) const {
    const auto [known, added] = ids_.try_emplace(&properties);
    if (added) known->second = std::hash<std::string>{}(properties.dump());
    return known->second;
  }

  const Json schema_;
  std::shared_ptr<Seen> seen_;
  mutable std::map<const Json*, size_t> ids_;
};

}  // namespace plimsoll
