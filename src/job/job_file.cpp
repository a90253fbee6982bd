#include "job/job_file.h"

#include <nlohmann/json.hpp>
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "job/settings.h"

namespace plimsoll {

namespace {

constexpr int kMaxDepth = 64;
constexpr int64_t kMaxFile = 64 << 20;

std::string at(const std::string& name, const YAML::Mark& mark) { return fmt::format("{}:{}", name, mark.line + 1); }

nlohmann::json to_json(const YAML::Node& node, const std::string& name, int depth) {
  if (depth > kMaxDepth) throw Error(fmt::format("[yaml] {} nests deeper than {}", at(name, node.Mark()), kMaxDepth), "flatten it");
  switch (node.Type()) {
    case YAML::NodeType::Undefined:
    case YAML::NodeType::Null: return nullptr;
    case YAML::NodeType::Scalar: {
      if (node.Tag() == "!") return node.Scalar();  // quoted
      const std::string& s = node.Scalar();
      if (s == "yes" || s == "on") return true;
      if (s == "no" || s == "off") return false;
      return parse_scalar(s);
    }
    case YAML::NodeType::Sequence: {
      nlohmann::json out = nlohmann::json::array();
      for (const YAML::Node& item : node) out.push_back(to_json(item, name, depth + 1));
      return out;
    }
    case YAML::NodeType::Map: {
      nlohmann::json out = nlohmann::json::object();
      for (const auto& item : node) {
        if (!item.first.IsScalar())
          throw Error(fmt::format("[yaml] {} has a key that is not a word", at(name, item.first.Mark())), "keys are plain words");
        const std::string key = item.first.Scalar();
        if (key == "<<") throw Error(fmt::format("[yaml] {} uses a merge key '<<'", at(name, item.first.Mark())), "write the settings out");
        if (out.contains(key)) throw Error(fmt::format("[yaml] {} repeats '{}'", at(name, item.first.Mark()), key), "keep one of them");
        out[key] = to_json(item.second, name, depth + 1);
      }
      return out;
    }
  }
  return nullptr;
}

int line_of(const std::string& text, size_t byte) {
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(std::min(byte, text.size())), '\n'));
}

}  // namespace

std::string read_text_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw Error("[file] " + path + " is a directory", "name a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("[file] cannot open " + path, "check the path and its permissions");
  std::ostringstream text;
  std::string chunk(1 << 16, '\0');
  int64_t total = 0;
  while (in.read(chunk.data(), static_cast<long>(chunk.size())) || in.gcount() > 0) {
    total += in.gcount();
    if (total > kMaxFile) throw Error("[file] " + path + " is larger than 64 MiB", "this is not a configuration file");
    text.write(chunk.data(), in.gcount());
  }
  return text.str();
}

nlohmann::json parse_json_text(const std::string& text, const std::string& name) {
  int depth = 0;
  for (char c : text) {  // bounds the parser's recursion on hostile input
    depth += c == '{' || c == '[';
    depth -= c == '}' || c == ']';
    if (depth > 1000) throw Error("[json] " + name + " nests deeper than 1000", "this is not a configuration file");
  }
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    std::string why = e.what();
    if (const size_t colon = why.rfind(": "); colon != std::string::npos) why = why.substr(colon + 2);
    throw Error(fmt::format("[json] {}:{}: {}", name, line_of(text, e.byte), why), "fix the JSON at that line");
  } catch (const nlohmann::json::exception& e) {  // a number that does not fit in a double
    throw Error(fmt::format("[json] {}: {}", name, e.what()), "fix that value");
  }
}

nlohmann::json parse_yaml_text(const std::string& text, const std::string& name) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) throw Error("[yaml] " + name + " holds more than one document", "keep one");
    return documents.empty() ? nlohmann::json::object() : to_json(documents[0], name, 0);
  } catch (const YAML::Exception& e) {
    throw Error(fmt::format("[yaml] {}: {}", at(name, e.mark), e.msg), "fix the YAML at that line");
  }
}

void read_job_text(Job& job, const std::string& text, const std::string& name) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && text[first] == '{';
  const nlohmann::json values = json ? parse_json_text(text, name) : parse_yaml_text(text, name);
  if (!values.is_object())
    throw Error(fmt::format("[job] {} holds {}, not settings", name, values.type_name()), "write lines like 'batch: 8'");
  for (const auto& item : values.items()) apply_setting(job, item.key(), item.value(), name);
}

void read_job_file(Job& job, const std::string& path) { read_job_text(job, read_text_file(path), path); }

}  // namespace plimsoll
