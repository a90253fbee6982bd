// Every configuration that can be read, one file each; formats.cpp lists them.
#pragma once

#include <vector>

#include "formats/model_description.h"
#include "formats/reader.h"
#include "formats/settings_encoder.h"

namespace plimsoll {

// In a directory, or when one names another, what is read later wins.
enum class Rank : uint8_t { weights, model, adapter, launcher, trainer, job };

struct Format {
  const char* name;         // "axolotl"
  const char* description;  // "axolotl's YAML"
  Rank rank;
  bool (*matches)(const Document& document);  // by content
  void (*read)(Reader& reader);
  // The model that the file is about, once the job is built; null: it is about none.
  ModelDescription (*model)(Reader& reader) = nullptr;
  // How it says settings; null: it has none to say.
  const SettingsEncoder& (*writes)() = nullptr;
};

const std::vector<Format>& formats();
const Format* format_of(const Document& document);  // null: none of them
// Whether the file is a configuration or a script that one of them reads; what cannot be parsed is none.
bool is_configuration(const std::string& path);
const Format* format_named(const std::string& name);

// Whether all of these keys (dotted paths) are there.
bool has_keys(const Document& document, std::initializer_list<std::string_view> paths);

}  // namespace plimsoll
