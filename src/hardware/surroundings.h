// The edge of the world for detection: where /proc and /sys are, which libraries to open, the environment. Everything that
// looks at the machine goes through here, so a test gives a folder and a stub library instead.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll {

struct Surroundings {
  std::string root;  // put before every path; empty for this machine, "/host" for a host mounted into a container
  // Libraries to try, in order; a driver library is only ever opened when it is first asked for.
  std::vector<std::string> nvml{"libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"};
  std::vector<std::string> rocm_smi{"librocm_smi64.so.1", "librocm_smi64.so", "/opt/rocm/lib/librocm_smi64.so"};
  std::map<std::string, std::string> environment;
  std::function<std::optional<std::string>(const std::string& name)> sysctl;  // macOS; empty elsewhere

  // This machine, with the environment variables that detection reads.
  static Surroundings here();

  std::optional<std::string> variable(const std::string& name) const;
  // A file's text, at most 1 MiB of it, without trailing blanks. Nothing when it is absent, unreadable or a folder.
  std::optional<std::string> read(const std::string& path) const;
  // A file that holds one number.
  std::optional<int64_t> read_number(const std::string& path) const;
  // Names in a folder, sorted; empty when it cannot be read.
  std::vector<std::string> list(const std::string& path) const;
  bool exists(const std::string& path) const;
};

// All of `text` as a decimal number, else nothing.
std::optional<int64_t> whole_number(const std::string& text);
// "key: value" or "KEY=value" lines; the first of a repeated key stays.
std::map<std::string, std::string> key_values(const std::string& text, char separator);
// What a driver or file said, fit to print: control characters and bytes that are not ASCII as \xNN, at most 120 characters.
std::string printable(const std::string& text);

}  // namespace plimsoll
