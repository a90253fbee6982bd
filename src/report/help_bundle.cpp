#include "report/help_bundle.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "diagnose/secret_words.h"
#include "diagnose/tar.h"
#include "job/config.h"
#include "report/diagnosis_report.h"
#include "report/estimate_report.h"
#include "report/hardware_report.h"
#include "report/renderers.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr size_t kLargest = 1 << 20;  // of one file: configurations are smaller

std::string readme(const HelpBundle& b, const WrittenBundle& w) {
  std::string out = "A request for help with the memory of a training run, written by plimsoll explain --bundle.\n\n";
  if (b.diagnosis && b.diagnosis->symptom) out += "What happened: " + b.diagnosis->symptom->kind + "; diagnosis.txt says more.\n\n";
  out += "Files\n";
  for (const std::string& f : w.files) out += "  " + f + "\n";
  out += "\nLeft out before writing\n";
  for (const std::string& l : w.left_out) out += "  " + l + "\n";
  if (w.left_out.empty()) out += "  nothing was found that had to be\n";
  out +=
      "  the log beyond the error and its traceback, weights, data, and all other files\n\nLook through the files before you send them.\n";
  return out;
}

using Json = nlohmann::ordered_json;

// By values, so that it stays JSON.
Json redacted(Redaction& redact, const Json& value, const std::string& name = "") {
  if (value.is_string()) return redact.value(name, value.get<std::string>());
  if (value.is_number() && is_secret_name(name)) return redact.value(name, value.dump());
  if (!value.is_structured()) return value;
  Json out = value.is_object() ? Json::object() : Json::array();
  for (const auto& item : value.items()) {
    if (value.is_object()) {
      out[redact(item.key())] = redacted(redact, item.value(), item.key());
    } else {
      out.push_back(redacted(redact, item.value(), name));
    }
  }
  return out;
}

}  // namespace

WrittenBundle write_bundle(const HelpBundle& b, const PrivateNames& names) {
  struct File {
    std::string name, text;
    std::optional<Json> json;
  };
  std::vector<File> parts;
  const auto add_text = [&](std::string name, const std::string& text) {
    parts.push_back({std::move(name), text.substr(0, kLargest), {}});
  };
  const auto add_json = [&](std::string name, Json json) { parts.push_back({std::move(name), "", std::move(json)}); };
  const Style plain{false, false};
  if (b.diagnosis) {
    add_text("error.txt", b.diagnosis->symptom ? b.diagnosis->excerpt : "no out-of-memory was found in the log\n");
    add_text("diagnosis.txt", doc::to_text(diagnosis_document(*b.diagnosis, true), plain));
    add_json("diagnosis.json", diagnosis_json(*b.diagnosis));
  }
  add_json("hardware.json", machine_json(b.machine));
  add_text("hardware.txt", doc::to_text(machine_document(b.machine), plain));
  if (!b.command.empty()) add_text("command.txt", b.command + "\n");
  for (const auto& [name, text] : b.configuration) add_text("config/" + name, text);
  if (b.estimate) {
    add_json("estimate.json", estimate_json(*b.estimate));
    add_text("estimate.txt", doc::to_text(estimate_document(*b.estimate), plain));
  }
  Redaction redact(names);
  for (const File& f : parts) redact.learn(f.json ? dump(*f.json) : f.text);  // a name in one is taken out of all
  WrittenBundle out;
  std::vector<std::pair<std::string, std::string>> files;
  for (const File& f : parts) {
    files.emplace_back(redact(f.name).substr(0, 100), f.json ? dump(redacted(redact, *f.json), 2) + "\n" : redact(f.text));
    out.files.push_back(files.back().first);
  }
  for (const auto& [kind, n] : redact.left_out()) out.left_out.push_back(fmt::format("{} {}", n, kind));
  files.insert(files.begin(), {"README.txt", readme(b, out)});
  out.files.insert(out.files.begin(), "README.txt");
  out.archive = tar_archive(files);
  return out;
}

}  // namespace plimsoll
