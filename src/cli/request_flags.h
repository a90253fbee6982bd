// Flags of a command from the rows of its request (api/request_keys.h): --total-batch from "total_batch".
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>

#include "api/request_keys.h"
#include "cli/number_between.h"

namespace plimsoll {

inline std::string flag_of_key(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

inline CLI::Option* add_flag_for(CLI::App& app, const std::string& name, bool& value, const std::string& help) {
  return app.add_flag(name, value, help);
}

// Without a word the switch is neither on nor off: --no-NAME turns it off.
inline CLI::Option* add_flag_for(CLI::App& app, const std::string& name, std::optional<bool>& value, const std::string& help) {
  return app.add_flag_function(
      name + ",!--no-" + name.substr(2), [&value](int64_t count) { value = count > 0; }, help);
}

// A list is separated by commas, so that what follows it is no part of it.
inline CLI::Option* add_flag_for(CLI::App& app, const std::string& name, std::vector<std::string>& value, const std::string& help) {
  return app.add_option(name, value, help)->delimiter(',')->allow_extra_args(false);
}

template <class T>
CLI::Option* add_flag_for(CLI::App& app, const std::string& name, T& value, const std::string& help) {
  return app.add_option(name, value, help);
}

// `request` outlives the parsing.
template <class Request>
void add_flags(CLI::App& app, const Keys<Request>& keys, Request& request) {
  for (const Key<Request>& k : keys) {
    if (!k.flag) continue;
    CLI::Option* option = std::visit(
        [&](const auto& member) {
          if constexpr (std::is_same_v<std::decay_t<decltype(member)>, SizeText<Request>>)
            return add_flag_for(app, flag_of_key(k.key), request.*member.member, k.help);
          else
            return add_flag_for(app, flag_of_key(k.key), request.*member, k.help);
        },
        k.member);
    if (*k.value != '\0') option->type_name(k.value);
    if (*k.group != '\0') option->group(k.group);
    if (k.range == kAboveZero)
      option->check(above_zero());
    else if (k.range.limited())
      option->check(number_between(k.range.low, k.range.high));
  }
}

}  // namespace plimsoll
