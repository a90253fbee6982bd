#include "formats/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "formats/foreign_file.h"
#include "formats/gguf_reader.h"
#include "formats/safetensors_reader.h"
#include "formats/toml_reader.h"
#include "job/job_file.h"
#include "job/yaml_reader.h"
#include "util/error.h"
#include "util/mapped_file.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Python's json writes NaN, Infinity and -Infinity, which JSON does not have: texts of the same names take their place.
std::string without_special_numbers(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted && text[i] == '\\' && i + 1 < text.size()) {
      out += text[i++];
    } else if (!quoted) {
      bool replaced = false;
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
        if (text.compare(i, word.size(), word) != 0) continue;
        out += fmt::format("\"{}\"", word);
        i += word.size() - 1;
        replaced = true;
        break;
      }
      if (replaced) continue;
    }
    out += text[i];
  }
  return out;
}

// Keys that an object has twice, with the path of the object.
std::vector<std::string> repeated_keys(const std::string& text) {
  std::vector<std::string> repeated;
  std::vector<std::vector<std::string>> open;
  const auto see = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end && !open.empty()) open.pop_back();
    if (event == Json::parse_event_t::key && !open.empty()) {
      const auto key = parsed.get<std::string>();
      auto& keys = open.back();
      if (std::find(keys.begin(), keys.end(), key) != keys.end())
        repeated.push_back(key);
      else if (keys.size() < 10000)
        keys.push_back(key);
    }
    return true;
  };
  const Json whole = Json::parse(text, see, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  return whole.is_discarded() ? std::vector<std::string>{} : repeated;
}

void parse_json(Document& d, const std::string& text) {
  const std::string plain = without_special_numbers(text);
  if (Json::accept(plain)) {
    d.value = parse_json_text(plain, d.name);
  } else if (Json::accept(plain, /*ignore_comments=*/true)) {
    d.value = parse_json_text(plain, d.name, /*comments=*/true);
    d.comments = true;
  } else {
    parse_json_text(plain, d.name);  // throws with the line
  }
  d.kind = Document::Kind::json;
  if (text.size() < (1 << 20)) d.duplicates = repeated_keys(plain);
}

bool looks_like_json(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && (text[first] == '{' || text[first] == '[');
}

// Headers of weights, read in place; false for anything else.
bool parse_weights(Document& d, std::string_view bytes, const std::string& extension) {
  if (bytes.starts_with("PK\3\4"))
    throw Error("[input] " + d.name + " is a zip archive, as torch.save writes it",
                "save the weights as safetensors, or name the model's config.json");
  if (looks_like_safetensors(bytes) || extension == ".safetensors") {
    parse_safetensors(bytes, d);
  } else if (looks_like_gguf(bytes) || extension == ".gguf") {
    parse_gguf(bytes, d);
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string Document::folder() const { return path.empty() ? std::string(".") : fs::path(path).parent_path().string(); }

Document parse_document(std::string text, const std::string& path) {
  Document d;
  d.path = path;
  d.name = fs::path(path).filename().string();
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  const std::string extension = fs::path(path).extension().string();
  const bool script = extension == ".sh" || extension == ".slurm" || extension == ".sbatch" || text.starts_with("#!");
  if (looks_like_json(text) && extension != ".toml") {
    parse_json(d, text);
  } else if (extension == ".toml" || (!script && looks_like_toml(text))) {  // a script may begin with NAME=value, too
    d.value = parse_toml_text(text, d.name);
    d.kind = Document::Kind::toml;
  } else if (!script) {
    d.value = parse_yaml_text(text, d.name);
    d.kind = Document::Kind::yaml;
  }
  d.text = std::move(text);
  return d;
}

void overlay(Document& document, const Json& values, const std::string& place) {
  if (!document.value.is_object()) document.value = Json::object();
  for (const auto& item : values.items()) {
    Json *at = &document.value, *parent = at;
    std::string path;
    std::vector<std::string> keys = split_at(item.key(), '.');
    if (keys.size() > 16) keys = {item.key()};  // no setting lies so deep
    for (const std::string& key : keys) {
      if (!at->is_object()) *at = Json::object();
      parent = at;
      at = &(*at)[key];
      path += "/" + key;
    }
    if (item.value().is_discarded()) {
      parent->erase(keys.back());
      continue;
    }
    *at = item.value();
    document.places[path] = place + item.key();
  }
}

Document read_document(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) {  // a pipe has no beginning to look at
    const MappedFile file(path);
    Document d;
    d.path = path;
    d.name = fs::path(path).filename().string();
    if (parse_weights(d, file.bytes(), fs::path(path).extension().string())) return d;
    refuse_foreign_file(path, file.bytes());
  }
  return parse_document(read_text_file(path), path);
}

}  // namespace plimsoll
