#include "job/job_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "job/settings.h"
#include "job/yaml_reader.h"

namespace plimsoll {

namespace {

constexpr int64_t kMaxFile = 64 << 20;

int line_of(const std::string& text, size_t byte) {
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(std::min(byte, text.size())), '\n'));
}

}  // namespace

std::string read_text_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(status)) throw Error("[file] " + path + " is a directory", "name a file");
  // a pipe that nobody writes to would be waited for without end; those of the shell have a writer
  const bool of_shell = path == "/dev/stdin" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) && !of_shell)
    throw Error("[file] " + path + " is a pipe or a device, not a file", "name a file; - is standard input");
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

nlohmann::json parse_json_text(const std::string& text, const std::string& name, bool comments) {
  int depth = 0;
  for (char c : text) {  // bounds the parser's recursion on hostile input
    depth += c == '{' || c == '[';
    depth -= c == '}' || c == ']';
    if (depth > 1000) throw Error("[json] " + name + " nests deeper than 1000", "this is not a configuration file");
  }
  try {
    return nlohmann::json::parse(text, nullptr, true, comments);
  } catch (const nlohmann::json::parse_error& e) {
    std::string why = e.what();
    if (const size_t colon = why.rfind(": "); colon != std::string::npos) why = why.substr(colon + 2);
    throw Error(fmt::format("[json] {}:{}: {}", name, line_of(text, e.byte), why), "fix the JSON at that line");
  } catch (const nlohmann::json::exception& e) {  // a number that does not fit in a double
    throw Error(fmt::format("[json] {}: {}", name, e.what()), "fix that value");
  }
}

void read_job_text(Job& job, const std::string& text, const std::string& name) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && text[first] == '{';
  const nlohmann::json values = json ? parse_json_text(text, name) : parse_yaml_text(text, name);
  if (!values.is_object())
    throw Error(fmt::format("[job] {} holds {}, not settings", name, values.type_name()), "write lines like 'batch: 8'");
  apply_settings(job, values, name);
}

void read_job_file(Job& job, const std::string& path) { read_job_text(job, read_text_file(path), path); }

}  // namespace plimsoll
