#include "cli/parse_error.h"

#include <fmt/format.h>

#include <optional>
#include <regex>

#include "cli/app_tree.h"
#include "util/text.h"

namespace plimsoll {

namespace {

const CLI::App& parsed_command(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : *parsed.front();
}

std::string help_command(const CLI::App& command) {
  return command.get_parent() ? fmt::format("{} {} -h", command.get_parent()->get_name(), command.get_name()) : command.get_name() + " -h";
}

Error usage(const std::string& message, const std::string& hint) { return Error(message, hint, ExitCode::usage); }

// The help of the flag that a message begins with, else where help is.
std::string hint_for(const CLI::App& command, const std::string& name) {
  for (const OptionEntry& o : entry_of(command).options)
    for (const std::string& n : o.names)
      if (n == name && !o.help.empty()) return fmt::format("{} {}: {}", n, o.value, o.help);
  return help_command(command);
}

// CLI11's sentences about values, each with what it is about.
std::optional<Error> value_error(const CLI::App& command, const std::string& text) {
  static const std::regex kNotListed(R"(^(\S+): (.*) not in \{(.*)\}$)"), kRange(R"(^(\S+): Value (\S+) not in range (\S+) to (\S+)$)"),
      kNotPositive(R"(^(\S+): Number less or equal to 0: (.*)$)"), kNegative(R"(^(\S+): Number less then 0: (.*)$)"),
      kRefused(R"(^(\S+): ('.*' is .*)$)"), kConvert(R"(^Could not convert: (\S+) = (.*)$)"),
      kMissing(R"(^(\S+): 1 required (.*) missing$)");
  std::smatch m;
  if (std::regex_match(text, m, kNotListed))
    return usage(fmt::format("{} '{}' is not known", m[1].str(), printable(m[2].str(), 60)),
                 m[1] == "--gpus" ? "--gpus is only `all`; names are for --gpu, and how many there are for plimsoll plan --num-gpus"
                                  : did_you_mean(m[2].str(), split_at(m[3].str(), ',')));
  if (std::regex_match(text, m, kRange))
    return usage(fmt::format("{} {} is not between {} and {}", m[1].str(), m[2].str(), m[3].str(), m[4].str()), hint_for(command, m[1]));
  if (std::regex_match(text, m, kNotPositive))
    return usage(fmt::format("{} {} is not above 0", m[1].str(), m[2].str()), hint_for(command, m[1]));
  if (std::regex_match(text, m, kNegative)) return usage(fmt::format("{} {} is below 0", m[1].str(), m[2].str()), hint_for(command, m[1]));
  if (std::regex_match(text, m, kRefused)) return usage(fmt::format("{} {}", m[1].str(), m[2].str()), hint_for(command, m[1]));
  if (std::regex_match(text, m, kConvert))
    return usage(fmt::format("{} '{}' is not a number", m[1].str(), printable(m[2].str(), 60)), hint_for(command, m[1]));
  if (std::regex_match(text, m, kMissing))
    return usage(fmt::format("{} needs a value: {} {}", m[1].str(), m[1].str(), m[2].str()), hint_for(command, m[1]));
  return std::nullopt;
}

}  // namespace

Error error_of(const CLI::App& app, const CLI::ParseError& refused) {
  const CLI::App& command = parsed_command(app);
  const std::string text = refused.what(), kind = refused.get_name();
  if (dynamic_cast<const CLI::ExtrasError*>(&refused))
    return usage(fmt::format("'{}' is too much for {}", printable(join(command.remaining(true), " "), 80), command.get_name()),
                 help_command(command) + " shows what it takes");
  if (kind == "RequiredError") {
    for (const OptionEntry& o : entry_of(command).options)
      if (o.positional) return usage(fmt::format("{} needs {}", command.get_name(), o.value.empty() ? o.names[0] : o.value), o.help);
    return usage(text, help_command(command));
  }
  if (auto error = value_error(command, text)) return *error;
  if (const size_t colon = text.find(": "); kind == "ArgumentMismatch" && text.starts_with("--"))
    return usage(text.substr(0, colon) + " is given more than once", "leave all but one out");
  const size_t colon = text.find(": ");
  return usage(text, hint_for(command, text.substr(0, colon)));
}

}  // namespace plimsoll
