// From a foreign configuration to a Job: each value keeps the place it came from, and each setting that does not do what it says
// becomes a finding. One reader per format is in job/formats.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "formats/document.h"
#include "job/job.h"

namespace plimsoll {

class Reader {
 public:
  Reader(Job& job, const Document& document) : job(job), document(document) {}

  // The value at "vram.batch_size" or "/flags/lr" (a path with slashes when keys hold dots), which counts as read from then on;
  // null when it is absent or null.
  const nlohmann::json* find(std::string_view path);
  std::string text(std::string_view path, const std::string& fallback = "");  // throws when it is no text
  double number(std::string_view path, double fallback);                      // also a number in quotes, 5e8 too
  int64_t integer(std::string_view path, int64_t fallback);
  bool flag(std::string_view path, bool fallback);  // also yes/no, 1/0, "true"
  // "auto" and null are no value.
  bool has(std::string_view path);

  // A setting of the job (job/settings.h) from the value at `path`, if there is one.
  bool set(const char* setting, std::string_view path);
  // A value that was worked out from the one at `path`.
  void set(const char* setting, const nlohmann::json& value, std::string_view path);
  // A value that this trainer has when nothing is said: origin "default of axolotl".
  void set_default(const char* setting, const nlohmann::json& value, const std::string& trainer);
  // A key of the model's own configuration.
  bool config(const char* key, std::string_view path);
  void config(const char* key, const nlohmann::json& value, const std::string& origin);

  // Keys that say nothing about memory: never reported as unknown.
  void ignore(std::initializer_list<std::string_view> paths);
  // When the setting is there: what it does instead.
  void finding(Effect effect, std::string_view path, const std::string& what, const std::string& why = "");
  // The same without a setting of its own.
  void note(Effect effect, const std::string& what, const std::string& why = "");

  // A part of the run that the answer does not hold, named with its article: "the VAE".
  void missing(const std::string& part, const std::string& what, const std::string& why = "");

  // Another file that this one names, beside it or from the working directory; a finding when it is not there.
  bool include(std::string_view path);

  // Whatever was not read becomes a finding of effect unknown: one for each key that looks like one that is known or like a setting that
  // decides memory, and one for all others.
  void finish();

  std::string origin(std::string_view path) const;  // "config.json: vram.batch_size"

  Job& job;
  const Document& document;

 private:
  std::vector<std::string> known_beside(const std::string& leaf) const;

  std::set<std::string> read_;   // keys that are there
  std::set<std::string> asked_;  // these, and keys that are not
};

}  // namespace plimsoll
