#include "report/help_bundle.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "diagnose/tar.h"
#include "job/config.h"
#include "report/diagnosis_report.h"
#include "report/estimate_report.h"
#include "report/hardware_report.h"
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

}  // namespace

WrittenBundle write_bundle(const HelpBundle& b, const PrivateNames& names) {
  Redaction redact(names);
  std::vector<std::pair<std::string, std::string>> files;
  const auto add = [&](const std::string& name, const std::string& content) { files.emplace_back(name, content.substr(0, kLargest)); };
  if (b.diagnosis) {
    add("error.txt", b.diagnosis->symptom ? b.diagnosis->excerpt : "no out-of-memory was found in the log\n");
    add("diagnosis.txt", diagnosis_text(*b.diagnosis, Style{false, false}));
    add("diagnosis.json", dump(diagnosis_json(*b.diagnosis), 2) + "\n");
  }
  add("hardware.json", dump(machine_json(b.machine), 2) + "\n");
  add("hardware.txt", machine_text(b.machine, Style{false, false}));
  if (!b.command.empty()) add("command.txt", b.command + "\n");
  for (const auto& [name, text] : b.configuration) add("config/" + name.substr(0, 90), text);
  if (b.estimate) {
    add("estimate.json", dump(estimate_json(*b.estimate), 2) + "\n");
    add("estimate.txt", estimate_text(*b.estimate, Style{false, false}, {}));
  }
  for (const auto& [name, text] : files) redact.learn(text);  // a name in one is taken out of all
  WrittenBundle out;
  for (auto& [name, text] : files) {
    name = redact(name).substr(0, 100);
    text = redact(text);
    out.files.push_back(name);
  }
  for (const auto& [kind, n] : redact.left_out()) out.left_out.push_back(fmt::format("{} {}", n, kind));
  files.insert(files.begin(), {"README.txt", readme(b, out)});
  out.files.insert(out.files.begin(), "README.txt");
  out.archive = tar_archive(files);
  return out;
}

}  // namespace plimsoll
