#include "formats/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "formats/input.h"
#include "job/near_key.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::vector<std::string> keys_of(std::string_view path) {
  return path.starts_with('/') ? split_at(path.substr(1), '/') : split_at(path, '.');
}

// Paths of all values that are no objects, objects without keys too.
void leaves(const Json& value, const std::string& path, std::vector<std::string>& out) {
  if (!value.is_object() || value.empty()) {
    if (!path.empty()) out.push_back(path);
    return;
  }
  for (const auto& item : value.items()) leaves(item.value(), path + "/" + item.key(), out);
}

std::string readable(std::string path) {
  if (path.starts_with('/')) path.erase(0, 1);
  for (char& c : path)
    if (c == '/') c = '.';
  return path.starts_with("flags.") ? "--" + path.substr(6) : path;
}

bool no_value(const Json& v) { return v.is_null() || v == "auto"; }

}  // namespace

const Json* Reader::find(std::string_view path) {
  const Json* at = &document.value;
  const std::vector<std::string> keys = keys_of(path);
  const std::string full = "/" + join(keys, "/");
  asked_.insert(full);
  for (const std::string& key : keys) {
    if (!at->is_object()) return nullptr;
    const auto it = at->find(key);
    if (it == at->end()) return nullptr;
    at = &*it;
  }
  read_.insert(full);
  return at->is_null() ? nullptr : at;
}

bool Reader::has(std::string_view path) {
  const Json* v = find(path);
  return v && !no_value(*v);
}

std::string Reader::origin(std::string_view path) const {
  if (!document.places.empty()) {
    std::string full;
    for (const std::string& key : keys_of(path)) {
      full += "/" + key;
      if (const auto it = document.places.find(full); it != document.places.end()) return it->second;
    }
  }
  return document.name + ": " + readable(std::string(path));
}

std::string Reader::text(std::string_view path, const std::string& fallback) {
  const Json* v = find(path);
  if (!v) return fallback;
  if (v->is_number() || v->is_boolean()) return v->dump();
  if (!v->is_string()) throw Error(fmt::format("[{}] is {}, expected a text", origin(path), dump(*v).substr(0, 80)), "write a text");
  return v->get<std::string>();
}

double Reader::number(std::string_view path, double fallback) {
  if (!has(path)) return fallback;
  Json v = *find(path);
  if (v.is_string()) v = parse_scalar(v.get<std::string>());
  if (!v.is_number())
    throw Error(fmt::format("[{}] is {}, expected a number", origin(path), dump(*find(path)).substr(0, 80)), "write a number");
  return v.get<double>();
}

int64_t Reader::integer(std::string_view path, int64_t fallback) {
  const double n = number(path, static_cast<double>(fallback));
  if (!(n >= -9e15 && n <= 9e15) || n != static_cast<double>(static_cast<int64_t>(n)))
    throw Error(fmt::format("[{}] is {}, expected a whole number", origin(path), dump(*find(path)).substr(0, 80)), "write a whole number");
  return static_cast<int64_t>(n);
}

bool Reader::flag(std::string_view path, bool fallback) {
  if (!has(path)) return fallback;
  const Json& v = *find(path);
  if (v.is_boolean()) return v.get<bool>();
  const std::string word = v.is_string() ? lower(v.get<std::string>()) : v.dump();
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0" || word == "none") return false;
  throw Error(fmt::format("[{}] is {}, expected true or false", origin(path), dump(v).substr(0, 80)), "write true or false");
}

bool Reader::set(const char* setting, std::string_view path) {
  if (!has(path)) return false;
  Json value = *find(path);
  if (value.is_string()) value = parse_scalar(value.get<std::string>());
  set(setting, value, path);
  return true;
}

void Reader::set(const char* setting, const Json& value, std::string_view path) { apply_setting(job, setting, value, origin(path)); }

void Reader::set_default(const char* setting, const Json& value, const std::string& trainer) {
  if (!job.origin.contains(setting)) apply_setting(job, setting, value, "default of " + trainer);
}

bool Reader::config(const char* key, std::string_view path) {
  const Json* v = find(path);
  if (!v) return false;
  config(key, *v, origin(path));
  return true;
}

void Reader::config(const char* key, const Json& value, const std::string& origin) {
  Json values = job.config.values();
  values[key] = value;
  job.config = Config(job.config.source(), std::move(values));
  job.origin[std::string("config.") + key] = origin;
}

void Reader::ignore(std::initializer_list<std::string_view> paths) {
  for (const std::string_view path : paths) find(path);
}

void Reader::finding(Effect effect, std::string_view path, const std::string& what, const std::string& why) {
  const Json* v = find(path);
  if (!v) return;
  job.findings.push_back(
      {effect, fmt::format("{} = {}", readable(std::string(path)), printable(v->is_string() ? v->get<std::string>() : dump(*v), 80)),
       document.name, what, why});
}

void Reader::note(Effect effect, const std::string& what, const std::string& why) {
  job.findings.push_back({effect, "", document.name, what, why});
}

void Reader::missing(const std::string& part, const std::string& what, const std::string& why) {
  job.findings.push_back({Effect::missing, part, document.name, what, why});
}

bool Reader::include(std::string_view path) {
  if (!find(path)) return false;
  const std::string named = text(path);
  std::error_code error;
  for (const fs::path& candidate : {fs::path(document.folder()) / named, fs::path(named)}) {
    if (!fs::is_regular_file(candidate, error)) continue;
    Document named_document = read_document(candidate.string());
    named_document.depth = document.depth + 1;
    if (named_document.depth > 4)
      throw Error(fmt::format("[{}] files name each other without end", origin(path)), "a file cannot name itself");
    read_input_document(job, named_document);
    return true;
  }
  missing("the file " + printable(named, 120), "it is not here: what it says is not part of this answer", origin(path));
  return false;
}

// Keys that are read where the leaf is, and are not there.
std::vector<std::string> Reader::known_beside(const std::string& leaf) const {
  const std::string parent = leaf.substr(0, leaf.rfind('/') + 1);
  std::vector<std::string> known;
  for (const std::string& path : asked_)
    if (path.starts_with(parent) && path.find('/', parent.size()) == std::string::npos && !read_.contains(path))
      known.push_back(path.substr(parent.size()));
  return known;
}

void Reader::finish() {
  for (const std::string& key : document.duplicates) {
    const std::string twice = fmt::format("'{}' is there twice", printable(key, 60));
    const bool said = std::any_of(job.findings.begin(), job.findings.end(), [&](const Finding& f) { return f.what.starts_with(twice); });
    if (!said) note(Effect::conflict, twice + ": the last one counts", "json.load");
  }
  constexpr size_t kMostKeys = 12;  // that have a line each
  size_t said = 0;
  std::vector<std::string> all, unread;
  leaves(document.value, "", all);
  for (const std::string& leaf : all) {
    bool read = false;  // itself, or an object that it is in
    for (size_t end = leaf.size(); !read && end != 0 && end != std::string::npos; end = leaf.rfind('/', end - 1))
      read = read_.contains(leaf.substr(0, end));
    if (read) continue;
    const std::string meant = near_key(leaf.substr(leaf.rfind('/') + 1), known_beside(leaf));
    const bool listed = said < kMostKeys && (!meant.empty() || concerns_memory(readable(leaf)));
    if (!listed) {
      unread.push_back(readable(leaf));
      continue;
    }
    ++said;
    finding(Effect::unknown, leaf,
            meant.empty() ? "not known here, and it may matter for memory" : fmt::format("not known: did you mean {}?", meant));
  }
  if (unread.empty()) return;
  const size_t shown = std::min<size_t>(unread.size(), 20);
  std::string list = join({unread.begin(), unread.begin() + static_cast<long>(shown)}, ", ");
  if (shown < unread.size()) list += fmt::format(" and {} more", unread.size() - shown);
  note(Effect::unknown, fmt::format("taken to say nothing about memory: {}", printable(list, 600)));
}

}  // namespace plimsoll
