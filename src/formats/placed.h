// The values of a file of settings with their places in its text, so that one can be replaced, or a key added, and every other byte stays.
// YAML's places come from yaml-cpp's marks, TOML's from toml++'s source regions, JSON's from a scan of text that is known to be JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/document.h"

namespace plimsoll {

struct PlacedMember;

struct Placed {
  enum class Kind : uint8_t { scalar, mapping, sequence };
  Kind kind = Kind::scalar;
  size_t begin = 0, end = 0;  // bytes of the text; a value that is left out (`key:`) has none: begin is behind the colon
  bool flow = false;          // {...} or [...]
  bool header = false;        // TOML: a table under its own [name]
  std::string refused;        // why it cannot be replaced, nor what it holds: an alias, an anchor that others use
  std::vector<PlacedMember> members;
};

struct PlacedMember {
  std::string key;  // of a sequence: its number
  size_t key_begin = 0;
  Placed value;
};

// Trees of the whole text. What the parser refuses throws an Error.
Placed place_json(const std::string& text);
Placed place_yaml(const std::string& text, const std::string& name);
Placed place_toml(const std::string& text, const std::string& name);

// A value for the key at `path` (names, and numbers in sequences); a discarded one: the key goes.
struct KeyEdit {
  std::vector<std::string> path;
  nlohmann::json value;
};

// The text with these values. Throws an Error that says why where that cannot be done without touching anything else.
std::string edit_settings(const std::string& text, Document::Kind kind, const std::string& name, const std::vector<KeyEdit>& edits);

// The same on values: what the edited text has to be read as.
void edit_value(nlohmann::json& value, const KeyEdit& edit);

// One line, in the language's own signs.
std::string render(const nlohmann::json& value, Document::Kind kind);

std::string shown(const std::vector<std::string>& path);  // "train.datasets[0].resolution"

}  // namespace plimsoll
