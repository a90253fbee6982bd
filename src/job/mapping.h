// A setting that has parts: a mapping in a job file, or the text of a flag ("world=8,bucket_view=true"). Both become the same
// Config, and a key that the setting does not have is an error that names the nearest one.
#pragma once

#include <vector>

#include "job/config.h"

namespace plimsoll {

struct MappingForm {
  std::string source;              // the setting, as errors name it: "ddp"
  std::vector<std::string> known;  // its keys
  std::string example;             // what may follow the flag: "world=8"
};

// `value` is a mapping, "key=value,key=value", or true for nothing but defaults.
Config read_mapping(const nlohmann::json& value, const MappingForm& form);

// {key: value} of texts "key=value". Throws an Error with this exit code for a text that is none, or a key that is there twice.
nlohmann::json read_pairs(const std::vector<std::string>& pairs, const std::string& source, const std::string& hint,
                          ExitCode code = ExitCode::bad_input);

// The value of one key in a flag: "q_proj+v_proj" is a list, the rest is what it looks like (job/settings.h, parse_scalar).
nlohmann::json parse_flag_value(const std::string& text);

}  // namespace plimsoll
