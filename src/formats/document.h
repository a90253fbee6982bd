// Something a user has: a configuration, the header of a file of weights, a training command as it was typed.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/weights.h"

namespace plimsoll {

struct Document {
  enum class Kind : uint8_t { json, yaml, toml, safetensors, gguf, command, text };

  std::string path;                     // empty: typed
  std::string name;                     // for messages and origins: the file's name, "command line"
  Kind kind = Kind::text;               // by its content, not by its name
  nlohmann::json value;                 // null for text; a command: see job/command_line.h; weights: what their header says beside tensors
  std::string text;                     // empty for weights
  bool comments = false;                // JSON with comments, which most trainers refuse
  std::vector<std::string> duplicates;  // keys that are there twice in JSON: the last one counts
  std::vector<WeightTensor> tensors;    // of weights

  std::map<std::string, std::string> places;  // "/optimizer/lr" -> where that value came from, if not from this document

  int depth = 0;  // files that named it, one the other

  std::string folder() const;  // of path
};

// Reads and parses a file of any kind. Weights: only the header.
Document read_document(const std::string& path);
Document parse_document(std::string text, const std::string& path);  // one whose text is at hand

// Values on top of the document's own, e.g. flags on top of a file; a key with dots reaches into it, and one that is discarded goes.
// `place` + key is their origin.
void overlay(Document& document, const nlohmann::json& values, const std::string& place);

}  // namespace plimsoll
