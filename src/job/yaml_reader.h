// YAML text to JSON values, with the line in every error. Anchors, aliases and merge keys (`<<`) work; repeated keys, a
// second document and self-holding aliases are errors, and what aliases add up to is bounded. Written on the parser's events: yaml-cpp's
// own tree keeps the first of repeated keys, and its LoadAll never ends on a stray comma.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace YAML {
class EventHandler;
}

namespace plimsoll {

nlohmann::json parse_yaml_text(const std::string& text, const std::string& name);

// Every event of the text's documents; errors of the parser name the file and the line.
void handle_yaml_events(const std::string& text, const std::string& name, YAML::EventHandler& handler);

}  // namespace plimsoll
