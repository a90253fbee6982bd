// A setting that is itself a mapping: from a job file, or as the text of a flag, "key=value,key=value". Both become the same
// Config, and what is wrong in them is named in the same words.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "job/config.h"

namespace plimsoll {

// `value` may also be true: nothing but defaults. Throws an Error with `example` as its way out for what is no mapping, and for a
// key that is not in `known`.
Config fields_of(const nlohmann::json& value, const std::string& source, const std::vector<std::string>& known, const std::string& example);

// {key: value} of texts "key=value". Throws an Error for a text that is none, or a key that is there twice.
nlohmann::json read_pairs(const std::vector<std::string>& pairs, const std::string& source, const std::string& example,
                          ExitCode code = ExitCode::bad_input);

// The value of one key in such a text: "q_proj+v_proj" is a list, the rest what it looks like (job/settings.h, parse_scalar).
nlohmann::json parse_flag_value(const std::string& text);

}  // namespace plimsoll
