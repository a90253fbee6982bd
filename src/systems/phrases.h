// Texts of reports in the languages they can be written in. English is the key, so that a report's code reads as the report does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

enum class Language : uint8_t { english, vietnamese };
Language parse_language(const std::string& text);  // "en", "vi"

class Phrases {
 public:
  explicit Phrases(Language language) : language_(language) {}
  // Numbers in the text stand for themselves: "batch 4 instead of 8" is one phrase for all numbers. What has no translation stays English.
  std::string operator()(std::string_view english) const;

 private:
  Language language_;
};

// Whether there is a translation, for tests.
bool has_translation(std::string_view english);

}  // namespace plimsoll
