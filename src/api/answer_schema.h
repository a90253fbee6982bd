// The shape of a JSON answer, described once: what each key is, in which unit, and what it means. The JSON Schema of a verb is made from it
// (schemas/VERB.json), and tests hold real answers against that. Objects are closed: a key that is written and not described is a mistake.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace plimsoll {

struct ShapeMember;

struct Shape {
  enum class Type : uint8_t { text, integer, number, flag, list, object, map, choice, part, any };
  Type type = Type::any;
  std::string meaning;  // one sentence, with the unit where there is one
  bool or_null = false;
  std::vector<std::string> names;  // of a text: all there are; empty: any
  std::string constant;            // JSON text; the only value there is
  std::vector<ShapeMember> members;
  std::vector<Shape> inner;  // of a list or a map its values; of a choice all that it may be; of a part nothing, or the part itself
  std::string part;          // the name under which a part is described once, in the schema's $defs
};

// A key that may be left out.
constexpr bool kSometimes = false;

struct ShapeMember {
  std::string key;
  Shape shape;
  bool always = true;
};

using ShapeMembers = std::vector<ShapeMember>;
ShapeMembers operator+(ShapeMembers a, const ShapeMembers& b);

// Makers of shapes.
namespace shape {

Shape text(std::string meaning);
Shape word(std::vector<std::string> names, std::string meaning);  // one of these texts
Shape texts(std::string meaning);                                 // a list
Shape integer(std::string meaning);
Shape bytes(std::string meaning);  // a whole number of them
Shape number(std::string meaning);
Shape flag(std::string meaning);
Shape list(Shape of, std::string meaning);
Shape object(ShapeMembers members, std::string meaning = "");
Shape map(Shape of, std::string meaning);  // an object with any keys
Shape any(std::string meaning);            // JSON of the user's own
Shape one_of(std::vector<Shape> shapes, std::string meaning = "");
Shape null_or(Shape shape);
// The same shape in several places, described once under that name. Inside of itself it is named alone.
Shape part(std::string name, Shape shape, std::string meaning);
Shape part(std::string name, std::string meaning);

// The names of an enumeration up to its last value, by the function that prints them.
template <class Enum, class Print>
std::vector<std::string> names_up_to(Enum last, Print print) {
  std::vector<std::string> out;
  for (int i = 0; i <= static_cast<int>(last); ++i) out.emplace_back(print(static_cast<Enum>(i)));
  return out;
}
template <class Enum>
std::vector<std::string> names_up_to(Enum last) {
  return names_up_to(last, [](Enum e) { return to_string(e); });
}

}  // namespace shape

// An answer of that verb: `schema` and `command`, then its members.
Shape answer_shape(const std::string& verb, int schema, const ShapeMembers& members);
// The same with `kind`, where a verb has several: answers of these kinds have that shape.
Shape answer_shape(const std::string& verb, int schema, const std::vector<std::string>& kinds, const ShapeMembers& members);

nlohmann::ordered_json json_schema(const Shape& shape, const std::string& title);

}  // namespace plimsoll
