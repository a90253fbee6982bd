#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "api/verbs.h"
#include "cli/command.h"

namespace plimsoll {

namespace {

using SetUp = std::function<ExitCode()> (*)(CLI::App&);

// The flags of each verb that has a file of its own here.
SetUp flags_of_verb(const std::string& name) {
  static const std::map<std::string, SetUp> kFlags{
      {"estimate", set_up_estimate},     {"compare", set_up_compare}, {"explain", set_up_explain},
      {"report", set_up_report},         {"plan", set_up_plan},       {"watch", set_up_watch},
      {"ai-toolkit", set_up_ai_toolkit}, {"measure", set_up_measure}, {"score", set_up_score},
      {"replay", set_up_replay},         {"run", set_up_run},         {"list", set_up_list},
      {"doctor", set_up_doctor},         {"schema", set_up_schema},   {"man", set_up_man},
      {"completion", set_up_completion}, {"capture", set_up_capture}};
  const auto it = kFlags.find(name);
  return it == kFlags.end() ? nullptr : it->second;
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands = [] {
    std::vector<Command> out;
    for (const Verb& v : verbs()) {
      if (const SetUp set_up = flags_of_verb(v.name))
        out.push_back({v.name, v.summary, set_up});
      else if (v.answer)
        out.push_back({v.name, v.summary, [&v](CLI::App& app) { return set_up_verb(app, v); }});
    }
    return out;
  }();
  return kCommands;
}

void OutputFlags::add_to(CLI::App& app) {
  constexpr const char* kGroup = "Output";
  app.add_flag("--json", json, "one JSON document on stdout, sizes in bytes: --format json")->group(kGroup);
  app.add_option("--format", format, "how the answer is written (default text)")
      ->check(CLI::IsMember({"text", "markdown", "md", "html", "json"}))
      ->type_name("FORMAT")
      ->group(kGroup);
  app.add_flag("--ascii", ascii, "no Unicode in text output")->group(kGroup);
  app.add_option("--color", colour, "colours in text output (default auto)")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN")
      ->group(kGroup);
}

OutputForm OutputFlags::form() const {
  if (json && format != "text" && format != "json")
    throw Error("[format] --json and --format " + format + " are two forms of one answer", "leave one of them out", ExitCode::usage);
  return json ? OutputForm::json : parse_form(format);
}

Show OutputFlags::show(OnProgress progress) const {
  Show out = [form = form(), style = Style::detect(colour, ascii)](const auto& document, const auto& data) {
    std::cout << rendered(form, document, data, style);
  };
  out.notes = [](const std::string& lines) { std::cerr << lines; };
  out.progress = std::move(progress);
  return out;
}

}  // namespace plimsoll
