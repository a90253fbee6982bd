#include "cli/job_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "job/fields.h"
#include "job/settings.h"

namespace plimsoll {

namespace {

// "a=1,b=2" as two pairs: a comma before another key, outside brackets and quotes.
std::vector<std::string> single_pairs(const std::string& text) {
  std::vector<std::string> out{""};
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0 ? c == quote : c == '"' || c == '\'') quote = quote != 0 ? 0 : c;
    if (quote == 0) depth += c == '[' || c == '{' || c == '(' ? 1 : c == ']' || c == '}' || c == ')' ? -1 : 0;
    const size_t key =
        std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", i + 1), text.size());
    const bool next = c == ',' && depth == 0 && quote == 0 && key > i + 1 && key < text.size() && text[key] == '=' &&
                      std::isalpha(static_cast<unsigned char>(text[i + 1]));
    if (next)
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

nlohmann::json key_values(const std::vector<std::string>& given, const char* flag) {
  std::vector<std::string> pairs;
  for (const std::string& text : given)
    for (std::string& pair : single_pairs(text)) pairs.push_back(std::move(pair));
  return read_pairs(pairs, flag, fmt::format("e.g. {} key=8", flag), ExitCode::usage);
}

const char* group_of(const Setting& s) {
  const std::string key = s.key;
  if (key == "batch" || key == "seq" || s.group == SettingGroup::model) return kCommonGroup;
  if (s.programs == Programs::jax || key == "framework") return "JAX";
  switch (s.group) {
    case SettingGroup::model:
    case SettingGroup::batch: return "Batch";
    case SettingGroup::precision: return "Precision";
    case SettingGroup::adapters: return "Adapters and quantization";
    case SettingGroup::activations: return "Memory savers";
    case SettingGroup::loss: return "Loss";
    case SettingGroup::optimizer: return "Optimizer";
    case SettingGroup::loop: return "Training loop";
    case SettingGroup::parallel: return "Several GPUs";
    case SettingGroup::framework: return "Software";
    case SettingGroup::host: return "Data loader and host";
  }
  return kCommonGroup;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
}

// A job file's {r: 16, target_modules: [q, v]} as the flag has it: r=16,target_modules=q+v.
std::string as_pairs(std::string mapping) {
  for (size_t open; (open = mapping.find('[')) != std::string::npos;) {
    const size_t close = std::min(mapping.find(']', open), mapping.size());
    std::string names = mapping.substr(open + 1, close - open - 1);
    replace_all(names, ", ", "+");
    mapping.replace(open, close + 1 - open, names);
  }
  replace_all(mapping, ": ", "=");
  replace_all(mapping, ", ", ",");
  return mapping;
}

// The help of a setting is about job files and flags: a flag's is about flags.
std::string help_of_flag(const Setting& s) {
  std::string out = s.help;
  if (const size_t flag = out.find("; the flag: "); flag != std::string::npos) {
    const std::string example = out.substr(flag + 12);
    const size_t shown = out.find(", e.g. ");
    out = out.substr(0, std::min(shown, flag)) + ", e.g. " + example;
    return out;
  }
  for (size_t open = 0; (open = out.find('{', open)) != std::string::npos; ++open) {
    const size_t close = out.find('}', open);
    if (close == std::string::npos || close == open + 1) continue;
    out.replace(open, close + 1 - open, as_pairs(out.substr(open + 1, close - open - 1)));
  }
  return out;
}

std::string value_of_flag(const Setting& s) {
  std::string out = s.value;
  replace_all(out, "{KEY: VALUE}", "KEY=VALUE,...");
  if (out == "[N]") return "N+N+...";
  if (out == "[NAME]") return "A+B+...";
  return out;
}

std::string names_of_flag(const Setting& s) {
  const std::string key = s.key;
  return (key == "batch" ? "-b," : key == "seq" ? "-s," : "") + flag_of(s);
}

}  // namespace

const std::vector<std::string>& job_flag_groups() {
  static const std::vector<std::string> kGroups{
      "Precision", "Adapters and quantization", "Memory savers", "Optimizer", "Batch", "Loss", "Training loop", "Several GPUs", "JAX",
      "Software",  "Data loader and host"};
  return kGroups;
}

void JobFlags::add_input_to(CLI::App& app) {
  app.add_option("input", input, "a preset or family, a configuration file, a directory that holds some, or -- and a training command")
      ->type_name("MODEL|FILE|DIR|-- COMMAND");
}

void JobFlags::add_to(CLI::App& app) {
  app.add_option("--job", job_file, "job file, YAML or JSON")->type_name("FILE")->group(kCommonGroup);
  app.add_option("--as", as, "the reader of the file or command, where its content does not tell: axolotl, gsa, kohya, ...")
      ->type_name("NAME")
      ->group(kCommonGroup);
  for (const Setting& s : job_settings()) {
    const std::string key = s.key, help = help_of_flag(s), value = value_of_flag(s);
    const char* group = group_of(s);
    if (key == "config") {
      app.add_option("--config", config, "override keys of the model's configuration, e.g. num_hidden_layers=8 (repeatable)")
          ->allow_extra_args(false)
          ->type_name("KEY=VALUE,...")
          ->group(group);
    } else if (key == "optimizer_args") {
      app.add_option("--optimizer-args", optimizer_args, "arguments of the optimizer, e.g. fused=true (repeatable)")
          ->allow_extra_args(false)
          ->type_name("KEY=VALUE,...")
          ->group(group);
    } else if (value.empty()) {
      app.add_flag(names_of_flag(s), values[key], help)->type_name("")->group(group);
    } else if (value[0] == '=') {  // a switch that may have a value
      app.add_flag(names_of_flag(s), values[key], help)->type_name(fmt::format("[{}]", value))->group(group);
    } else {
      app.add_option(names_of_flag(s), values[key], help)->type_name(value)->group(group);
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
