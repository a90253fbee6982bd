#include "cli/job_flags.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "job/fields.h"
#include "job/settings.h"

namespace plimsoll {

namespace {

nlohmann::json key_values(const std::vector<std::string>& pairs, const char* flag) {
  return read_pairs(pairs, flag, fmt::format("e.g. {} key=8", flag), ExitCode::usage);
}

}  // namespace

void JobFlags::add_input_to(CLI::App& app) {
  app.add_option("input", input, "a preset or family, a configuration file, a directory that holds some, or -- and a training command")
      ->type_name("MODEL|FILE|DIR|-- COMMAND");
}

void JobFlags::add_to(CLI::App& app) {
  constexpr const char* kGroup = "The run";
  app.add_option("--job", job_file, "job file, YAML or JSON")->type_name("FILE")->group(kGroup);
  app.add_option("--as", as, "the reader of the file or command, where its content does not tell: axolotl, gsa, kohya, ...")
      ->type_name("NAME")
      ->group(kGroup);
  for (const Setting& s : job_settings()) {
    const std::string key = s.key;
    if (key == "config") {
      app.add_option("--config", config, "override a key of the model's configuration (repeatable)")
          ->allow_extra_args(false)
          ->type_name("KEY=VALUE")
          ->group(kGroup);
    } else if (key == "optimizer_args") {
      app.add_option("--optimizer-args", optimizer_args, "an argument of the optimizer (repeatable)")
          ->allow_extra_args(false)
          ->type_name("KEY=VALUE")
          ->group(kGroup);
    } else if (*s.value == '\0') {
      app.add_flag(flag_of(s), values[key], s.help)->type_name("")->group(kGroup);
    } else if (*s.value == '=') {  // a switch that may have a value
      app.add_flag(flag_of(s), values[key], s.help)->type_name(fmt::format("[{}]", s.value))->group(kGroup);
    } else {
      app.add_option(flag_of(s), values[key], s.help)->type_name(s.value)->group(kGroup);
    }
  }
}

JobRequest JobFlags::request() const {
  JobRequest out{input, job_file, {}, {}, as};
  for (const auto& [key, text] : values)
    if (!text.empty()) out.set(key, parse_scalar(text), "--" + key);
  if (!config.empty()) out.set("config", key_values(config, "--config"), "--config");
  if (!optimizer_args.empty()) out.set("optimizer_args", key_values(optimizer_args, "--optimizer-args"), "--optimizer-args");
  return out;
}

}  // namespace plimsoll
