#include "api/answer_schema.h"

#include <map>
#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;
using Type = Shape::Type;

Shape make(Type type, std::string meaning) {
  Shape out;
  out.type = type;
  out.meaning = std::move(meaning);
  return out;
}

Shape holding(Type type, Shape inner, std::string meaning) {
  Shape out = make(type, std::move(meaning));
  out.inner.push_back(std::move(inner));
  return out;
}

Shape constant(const Json& value, std::string meaning) {
  Shape out = make(Type::any, std::move(meaning));
  out.constant = value.dump();
  return out;
}

const char* type_name(Type type) {
  switch (type) {
    case Type::text: return "string";
    case Type::integer: return "integer";
    case Type::number: return "number";
    case Type::flag: return "boolean";
    case Type::list: return "array";
    case Type::object:
    case Type::map: return "object";
    case Type::choice:
    case Type::part:
    case Type::any: return nullptr;
  }
  return nullptr;
}

class SchemaWriter {
 public:
  Json write(const Shape& s) {
    Json out = Json::object();
    if (!s.meaning.empty()) out["description"] = s.meaning;
    if (s.type == Type::part) return add_part(s, std::move(out));
    if (!s.constant.empty()) {
      out["const"] = Json::parse(s.constant);
    } else if (s.type == Type::choice) {
      for (const Shape& each : s.inner) out["oneOf"].push_back(write(each));
      if (s.or_null) out["oneOf"].push_back({{"type", "null"}});
    } else if (const char* type = type_name(s.type)) {
      out["type"] = s.or_null ? Json{type, "null"} : Json(type);
    }
    if (!s.names.empty()) {
      out["enum"] = s.names;
      if (s.or_null) out["enum"].push_back(nullptr);
    }
    if (s.type == Type::list) out["items"] = write(s.inner.front());
    if (s.type == Type::map) out["additionalProperties"] = write(s.inner.front());
    if (s.type == Type::object) add_members(s, out);
    return out;
  }

  const std::map<std::string, Json>& parts() const { return parts_; }

 private:
  Json add_part(const Shape& s, Json out) {
    if (!s.inner.empty() && !parts_.contains(s.part)) {
      parts_[s.part];  // it may hold itself
      parts_[s.part] = write(s.inner.front());
    }
    const Json reference{{"$ref", "#/$defs/" + s.part}};
    if (s.or_null)
      out["oneOf"] = Json::array({reference, {{"type", "null"}}});
    else
      out.update(reference);
    return out;
  }

  void add_members(const Shape& s, Json& out) {
    out["properties"] = Json::object();
    Json required = Json::array();
    for (const ShapeMember& m : s.members) {
      out["properties"][m.key] = write(m.shape);
      if (m.always) required.push_back(m.key);
    }
    out["required"] = std::move(required);
    out["additionalProperties"] = false;
  }

  std::map<std::string, Json> parts_;
};

}  // namespace

ShapeMembers operator+(ShapeMembers a, const ShapeMembers& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

namespace shape {

Shape text(std::string meaning) { return make(Type::text, std::move(meaning)); }

Shape word(std::vector<std::string> names, std::string meaning) {
  Shape out = text(std::move(meaning));
  out.names = std::move(names);
  return out;
}

Shape texts(std::string meaning) { return list(text(""), std::move(meaning)); }
Shape integer(std::string meaning) { return make(Type::integer, std::move(meaning)); }
Shape bytes(std::string meaning) { return make(Type::integer, std::move(meaning) + ", in bytes"); }
Shape number(std::string meaning) { return make(Type::number, std::move(meaning)); }
Shape flag(std::string meaning) { return make(Type::flag, std::move(meaning)); }
Shape list(Shape of, std::string meaning) { return holding(Type::list, std::move(of), std::move(meaning)); }

Shape object(ShapeMembers members, std::string meaning) {
  Shape out = make(Type::object, std::move(meaning));
  out.members = std::move(members);
  return out;
}

Shape map(Shape of, std::string meaning) { return holding(Type::map, std::move(of), std::move(meaning)); }
Shape any(std::string meaning) { return make(Type::any, std::move(meaning)); }

Shape one_of(std::vector<Shape> shapes, std::string meaning) {
  Shape out = make(Type::choice, std::move(meaning));
  out.inner = std::move(shapes);
  return out;
}

Shape null_or(Shape shape) {
  shape.or_null = true;
  return shape;
}

Shape part(std::string name, std::string meaning) {
  Shape out = make(Type::part, std::move(meaning));
  out.part = std::move(name);
  return out;
}

Shape part(std::string name, Shape shape, std::string meaning) {
  Shape out = part(std::move(name), std::move(meaning));
  out.inner.push_back(std::move(shape));
  return out;
}

}  // namespace shape

Shape answer_shape(const std::string& verb, int schema, const ShapeMembers& members) {
  return shape::object(
      ShapeMembers{
          {"schema", constant(schema, "the version of this shape: it changes when a key is renamed, removed or given another meaning")},
          {"command", constant(verb, "the verb that answered")}} +
      members);
}

Shape answer_shape(const std::string& verb, int schema, const std::vector<std::string>& kinds, const ShapeMembers& members) {
  return answer_shape(verb, schema, ShapeMembers{{"kind", shape::word(kinds, "which of the verb's answers this is")}} + members);
}

Json json_schema(const Shape& shape, const std::string& title) {
  SchemaWriter writer;
  const Json body = writer.write(shape);
  Json out{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}};
  out.update(body);
  if (!writer.parts().empty()) out["$defs"] = writer.parts();
  return out;
}

}  // namespace plimsoll
