#include "api/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "formats/input.h"
#include "hardware/detect.h"
#include "hardware/lookup.h"
#include "job/job_file.h"
#include "job/settings.h"
#include "model/resolve.h"
#include "util/parse_bytes.h"
#include "util/text.h"

namespace plimsoll {

namespace {

std::vector<TargetDevice> devices_here() {
  std::vector<TargetDevice> out;
  for (const DetectedDevice& d : detect(Surroundings::here()).devices)
    if (d.visible != Visible::no && !d.split) out.push_back(target_device(d));
  if (out.empty())
    throw Error("[gpu] this machine has no visible GPU", "`plimsoll doctor` says what was looked at; or name a device: --gpu rtx-4090",
                ExitCode::no_hardware);
  return out;
}

// "24GiB": a device that is only a size.
std::optional<TargetDevice> device_of_size(const std::string& text) {
  if (text.empty() || !std::isdigit(static_cast<unsigned char>(text[0])) || !std::isalpha(static_cast<unsigned char>(text.back())))
    return std::nullopt;
  const Bytes size = parse_bytes(text, "--gpu");
  if (size.count <= 0) throw Error("[gpu] a device of " + text + " has no memory", "give a size above 0", ExitCode::usage);
  TargetDevice d;
  d.spec.vendor = "NVIDIA";
  d.name = d.spec.name = text;
  d.capacity = Capacity{size, size, size, "as given"};
  return d;
}

[[noreturn]] void wrong_value(const char* key, const nlohmann::json& value, const std::string& hint) {
  throw Error(fmt::format("[request] {} {} is not understood", key, printable(dump(value), 80)), hint);
}

// A text, or a list of texts.
std::vector<std::string> joined(std::vector<std::string> keys, std::initializer_list<const char*> more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

}  // namespace

std::vector<std::string> texts(const Config& request, const char* key, const std::string& hint) {
  const nlohmann::json* value = request.find({key});
  if (!value) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) wrong_value(key, *value, hint);
  std::vector<std::string> out;
  for (const nlohmann::json& item : *value) {
    if (!item.is_string()) wrong_value(key, *value, hint);
    out.push_back(item.get<std::string>());
  }
  return out;
}

Job JobRequest::job() const {
  Job job;
  if (!job_file.empty()) read_job_file(job, job_file);
  read_input(job, run);
  for (const auto& [key, setting] : settings) apply_setting(job, key, setting.value, setting.origin);
  resolve_model(job);
  check(job.host);
  check_framework(job);
  return job;
}

std::vector<TargetDevice> DeviceRequest::devices() const {
  std::vector<TargetDevice> out;
  for (const std::string& name : names) {
    if (name == "this") {
      for (TargetDevice& d : devices_here()) out.push_back(std::move(d));
    } else if (std::optional<TargetDevice> sized = device_of_size(name)) {
      out.push_back(*sized);
    } else {
      out.push_back(target_device(find_device(name)));
    }
  }
  if (group == "all")
    for (const DeviceSpec& d : catalogue()) out.push_back(target_device(d));
  if (!in_use.empty()) {
    if (out.empty()) throw Error("[in-use] --in-use without a device", "add --gpu NAME", ExitCode::usage);
    for (TargetDevice& d : out) d.others = parse_bytes(in_use, "--in-use");
  }
  return out;
}

std::optional<DeviceSpec> only_device(const std::vector<TargetDevice>& devices) {
  return devices.size() == 1 ? std::optional(devices[0].spec) : std::nullopt;
}

std::vector<Fit> fits_of(Runs& runs, const Job& job, const std::vector<TargetDevice>& devices) {
  Fitting fitting(runs, job);
  std::vector<Fit> fits;
  for (const TargetDevice& d : devices) fits.push_back(fitting.on(d));
  return fits;
}

ExitCode exit_code_of(const std::vector<Fit>& fits) {
  auto any = [&](Verdict v) { return std::any_of(fits.begin(), fits.end(), [v](const Fit& f) { return f.verdict == v; }); };
  if (any(Verdict::fits) || fits.empty()) return ExitCode::ok;
  if (any(Verdict::tight)) return ExitCode::tight;
  return any(Verdict::does_not_fit) ? ExitCode::no : ExitCode::ok;
}

Config request_of(const nlohmann::json& request, std::vector<std::string> keys) {
  if (!request.is_object())
    throw Error(fmt::format("[request] {} is not an object", printable(dump(request), 80)), R"(e.g. {"run": "gpt2"})", ExitCode::usage);
  for (const auto& item : request.items())
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end())
      throw Error("[request] '" + printable(item.key(), 80) + "' is not known", did_you_mean(item.key(), keys), ExitCode::usage);
  return Config("request", request);
}

std::vector<std::string> with_job_keys(std::vector<std::string> keys) { return joined(std::move(keys), {"run", "job", "settings"}); }
std::vector<std::string> with_device_keys(std::vector<std::string> keys) { return joined(std::move(keys), {"gpu", "gpus", "in_use"}); }

JobRequest job_request(const Config& request) {
  JobRequest out;
  out.run = texts(request, "run", R"("run" is a model, a path, or the words of a command: ["python", "train.py"])");
  out.job_file = request.text({"job"}, "");
  if (const nlohmann::json* settings = request.find({"settings"})) {
    if (!settings->is_object()) wrong_value("settings", *settings, R"(e.g. {"batch": 8, "precision": "bf16"}: docs/job-file.md)");
    for (const auto& item : settings->items()) out.settings[item.key()] = {item.value(), "settings"};
  }
  return out;
}

DeviceRequest device_request(const Config& request) {
  DeviceRequest out;
  for (const std::string& text : texts(request, "gpu", R"("gpu" is a name, a size, "this", or a list of them)"))
    for (std::string& name : split_at(text, ',')) out.names.push_back(std::move(name));
  out.group = request.text({"gpus"}, "");
  if (!out.group.empty() && out.group != "all") wrong_value("gpus", out.group, R"("gpus" can only be "all"; names are for "gpu")");
  out.in_use = text_or_number(request, "in_use");
  return out;
}

std::string text_or_number(const Config& request, const char* key) {
  const nlohmann::json* value = request.find({key});
  if (!value) return "";
  if (value->is_number_integer()) return value->dump();
  if (value->is_string() && *value != "") return value->get<std::string>();
  wrong_value(key, *value, R"(a size is a number of bytes, or a text like "24GiB")");
}

}  // namespace plimsoll
