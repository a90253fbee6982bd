// Where a training command says its micro-batch, its accumulation and its loader's workers, and how it is told others: a flag, a word
// key=value, an environment variable, a key of a configuration file. Known for the trainers that job/formats reads; told by templates for
// all others. A file is never changed: the command gets a copy in its place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "supervise/launch.h"

namespace plimsoll {

struct RunValues {
  int64_t batch = 0;         // 0: not known
  int64_t accumulation = 0;  // 0: not known
  int64_t workers = -1;      // -1: not known
  bool operator==(const RunValues&) const = default;
};
std::string to_string(const RunValues& values);  // "batch 4 x 2, 2 workers"

class RunSettings {
 public:
  virtual ~RunSettings() = default;
  virtual RunValues now() const = 0;  // as the command says them
  virtual std::string how() const = 0;
  // Copies of files go to `folder`. Throws an Error where that cannot be done safely.
  virtual Launch say(const RunValues& values, const std::string& folder) const = 0;
};

// NAME=TEMPLATE, where a template holds {batch}, {accumulation} or {workers}. NAME is a flag (--name), an environment variable (NAME in
// capitals), FILE:key.path, or a key that the command or a file that it names says already. `given`: values that cannot be read from it.
std::unique_ptr<RunSettings> settings_by_templates(const std::vector<std::string>& command, const std::vector<std::string>& templates,
                                                   const RunValues& given);

// Of a trainer that is known, also inside of a shell's script; null: it is none. `why` then says so.
std::unique_ptr<RunSettings> settings_of_trainer(const std::vector<std::string>& command, std::string* why);

}  // namespace plimsoll
