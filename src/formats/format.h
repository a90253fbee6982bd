// Every configuration that can be read, one file each; formats.cpp lists them.
#pragma once

#include <vector>

#include "formats/model_description.h"
#include "formats/reader.h"
#include "formats/settings_encoder.h"

namespace plimsoll {

// In a directory, or when one names another, what is read later wins.
enum class Rank : uint8_t { weights, model, adapter, launcher, trainer, job };

// The keys and words of a document by which it is known whose it is: none of them is anybody else's, or all together are not. Empty: there
// are none, and the document is not read.
using Evidence = std::vector<std::string>;

struct Format {
  const char* name;         // "axolotl"
  const char* description;  // "axolotl's YAML"
  Rank rank;
  Evidence (*evidence)(const Document& document);  // by content
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

// Reads the document into the job, with a note of what it was recognised by.
void read_as(const Format& format, const Document& document, Job& job);

// Whether all of these keys (dotted paths) are there.
bool has_keys(const Document& document, std::initializer_list<std::string_view> paths);
// Those of these keys that are there; of a command its flags, as "--vram".
Evidence keys_there(const Document& document, std::initializer_list<std::string_view> paths);

}  // namespace plimsoll
