#include "api/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "estimate/typed_keys.h"
#include "formats/command_line.h"
#include "formats/format.h"
#include "formats/input.h"
#include "formats/like.h"
#include "hardware/detect.h"
#include "hardware/device_words.h"
#include "hardware/lookup.h"
#include "job/adapter_over.h"
#include "job/job_file.h"
#include "job/settings.h"
#include "model/resolve.h"
#include "model/usual_recipe.h"
#include "util/parse_bytes.h"
#include "util/shell.h"
#include "util/text.h"

namespace plimsoll {

namespace {

std::vector<TargetDevice> devices_here() {
  std::vector<TargetDevice> out = visible_devices();
  if (out.empty())
    throw Error("[gpu] this machine has no visible GPU", "`plimsoll doctor` says what was looked at; or name a device: --gpu rtx-4090",
                ExitCode::no_hardware);
  return out;
}

// "24GiB": a device that is only a size.
std::optional<TargetDevice> device_of_size(const std::string& text) {
  const bool number_first = !text.empty() && std::isdigit(static_cast<unsigned char>(text[0]));
  if (!number_first || !std::isalpha(static_cast<unsigned char>(text.back()))) return std::nullopt;
  if (text.find('-') != std::string::npos) return std::nullopt;  // "3060-12gb" is a name
  const Bytes size = parse_bytes(text, "--gpu");
  if (size.count <= 0) throw Error("[gpu] a device of " + text + " has no memory", "give a size above 0", ExitCode::usage);
  TargetDevice d;
  d.spec.vendor = "NVIDIA";
  d.name = d.spec.name = text;
  d.capacity = Capacity{size, size, size, "as given"};
  return d;
}

// A card of which only the size on its box is known.
TargetDevice card_of(double gigabytes) {
  DeviceSpec card;
  card.vendor = "NVIDIA";
  card.nominal_gb = gigabytes;
  card.id = fmt::format("{:g}gb", gigabytes);
  card.name = fmt::format("a {:g} GB card", gigabytes);
  return target_device(card);
}

std::vector<TargetDevice> devices_named(const std::string& typed) {
  if (typed == "this") return devices_here();
  const DeviceWords words = read_device_words(typed);
  if (words.card_gb) return {card_of(*words.card_gb)};
  if (std::optional<TargetDevice> sized = device_of_size(words.name)) return {*sized};
  return {target_device(find_device(words.name))};
}

[[noreturn]] void wrong_value(const char* key, const nlohmann::json& value, const std::string& hint) {
  throw Error(fmt::format("[request] {} {} is not understood", key, printable(dump(value), 80)), hint);
}

// Several words are a command. One that begins with a model is a slip: two models, or the value of a flag that takes it after '='.
void check_words(const std::vector<std::string>& run) {
  std::error_code error;
  if (run.size() < 2 || !is_model_name(run[0]) || std::filesystem::exists(run[0], error)) return;
  if (format_of(command_document(run))) return;  // a trainer of that name: litgpt
  const std::string first = printable(run[0], 80), second = printable(run[1], 80);
  if (is_model_name(run[1]))
    throw Error(fmt::format("[input] two models: {} and {}", first, second),
                fmt::format("one at a time, or side by side: plimsoll compare {} {}", first, second), ExitCode::usage);
  if (format_of(command_document(run))) return;  // a program with a model's name: litgpt
  throw Error(fmt::format("[input] {} is a model, and '{}' after it is not understood", first, second),
              "a switch takes its value after '=': --checkpointing=false; the words of a training command begin with its program",
              ExitCode::usage);
}

// What the trainer is told of the settings: whether there is an adapter, and what the base is in.
LikeRequest like_request(const Job& job, const Patch& settings) {
  LikeRequest out{job.model, {}, ""};
  for (const char* key : {"lora", "lokr", "ia3", "ln_tuning"})
    if (settings.contains(key)) out.adapter = settings.turns_on(key);
  if (settings.turns_on("qlora")) out.adapter = true, out.quantization = "nf4";
  if (settings.turns_on("quantization"))
    if (const std::optional<QuantizationSettings> q = patched(Job(), {{"quantization", settings["quantization"]}}, "").tuning.quantization)
      out.quantization = q->bits() == 8 ? "int8" : "nf4";
  return out;
}

void take_defaults(Job& job, const JobRequest& request, bool alone) {
  const std::string trainer = request.settings.text("like");
  if (!alone)
    throw Error(
        fmt::format("[like] --like {} is for a model that is named alone, and this input says its own recipe", printable(trainer, 40)),
        "leave --like out; or name the model: plimsoll estimate llama-3.1-8b --like trl", ExitCode::usage);
  if (const nlohmann::json* model = request.settings.find("model")) apply_setting(job, "model", *model, request.origin.at("model"));
  read_like(job, trainer, like_request(job, request.settings));
}

// Settings that say a part of what the trainer has defaults for: the rest stays the trainer's.
bool completes_defaults(Job& job, const std::string& key, const nlohmann::json& value, const std::string& given_by) {
  TuningSettings& tuning = job.tuning;
  if (key == "like") return true;
  if (tuning.adapter && key == to_string(tuning.adapter->kind) && value != false && !value.is_null()) {
    tuning.adapter = parse_adapter_over(*tuning.adapter, value);
    job.origin[key] = given_by;
    return true;
  }
  return key == "quantization" && tuning.quantization && value == tuning.quantization->type;
}

}  // namespace

std::vector<TargetDevice> visible_devices() {
  std::vector<TargetDevice> out;
  for (const DetectedDevice& d : detect(Surroundings::here()).devices)
    if (d.visible != Visible::no && !d.split) out.push_back(target_device(d));
  return out;
}

void JobRequest::set(const std::string& key, nlohmann::json value, const std::string& given_by) {
  settings.set(key, std::move(value));
  origin[key] = given_by;
}

void JobRequest::add(const JobRequest& other) {
  for (const auto& [key, value] : other.settings)
    if (!settings.contains(key)) set(key, value, other.origin.at(key));
}

Job JobRequest::job() const {
  Job job;
  check_words(run);
  if (!job_file.empty()) read_job_file(job, job_file);
  // Readers ask for it: defaults of transformers' trainers differ by version.
  if (const nlohmann::json* version = settings.find("transformers"))
    apply_setting(job, "transformers", *version, origin.at("transformers"));
  const bool named_alone = read_input(job, run, as) || (run.empty() && settings.contains("model"));
  const bool alone = named_alone && job_file.empty(), like = settings.contains("like");
  if (like) take_defaults(job, *this, alone);
  for (const auto& [key, value] : settings)
    if (!like || !completes_defaults(job, key, value, origin.at(key))) apply_setting(job, key, value, origin.at(key));
  resolve_model(job);
  if (alone) like ? take_usual_length(job) : take_usual_recipe(job);
  Problems problems;
  check(job.host, problems);
  check_framework(job, problems);
  require_none(problems);
  if (const nlohmann::json* config = settings.find("config"); config && config->is_object()) {
    std::vector<std::string> typed;
    for (const auto& item : config->items()) typed.push_back(item.key());
    check_typed_keys(job, typed, origin.at("config"));
  }
  return job;
}

std::vector<TargetDevice> DeviceRequest::devices() const {
  std::vector<TargetDevice> out;
  for (const std::string& name : names)
    for (TargetDevice& d : devices_named(name)) out.push_back(std::move(d));
  if (group == "all")
    for (const DeviceSpec& d : catalogue()) out.push_back(target_device(d));
  if (!in_use.empty()) {
    if (out.empty()) throw Error("[in-use] --in-use without a device", "add --gpu NAME", ExitCode::usage);
    for (TargetDevice& d : out) d.others = parse_bytes(in_use, "--in-use");
  }
  return out;
}

int64_t DeviceRequest::count() const {
  int64_t most = 1;
  for (const std::string& name : names) {
    if (name == "this") continue;
    const int64_t count = read_device_words(name).count;
    if (count > 1 && names.size() > 1)
      throw Error(fmt::format("[gpu] '{}' counts devices, beside others", printable(name, 60)),
                  "name one kind of device, or leave the count out", ExitCode::usage);
    most = std::max(most, count);
  }
  return most;
}

std::vector<std::string> DeviceRequest::notes() const {
  std::vector<std::string> out;
  for (const std::string& name : names)
    if (name != "this")
      if (std::string note = read_device_words(name).note; !note.empty()) out.push_back(std::move(note));
  return out;
}

std::optional<DeviceSpec> only_device(const std::vector<TargetDevice>& devices) {
  return devices.size() == 1 ? std::optional(devices[0].spec) : std::nullopt;
}

std::vector<Fit> fits_of(Runs& runs, const Job& job, const std::vector<TargetDevice>& devices) {
  Fitting fitting(runs, job);
  std::vector<Fit> fits;
  for (const TargetDevice& d : devices) fits.push_back(fitting.replay_on(d));
  return fits;
}

ExitCode exit_code_of(const std::vector<Fit>& fits) {
  auto any = [&](Verdict v) { return std::any_of(fits.begin(), fits.end(), [v](const Fit& f) { return f.verdict == v; }); };
  if (any(Verdict::fits) || fits.empty()) return ExitCode::ok;
  if (any(Verdict::tight)) return ExitCode::tight;
  return any(Verdict::does_not_fit) ? ExitCode::no : ExitCode::ok;
}

const std::vector<RequestKey>& job_keys() {
  static const std::vector<RequestKey> kKeys{
      {"run", KeyType::texts, R"(a model, a file, a directory, or the words of a training command: ["python", "train.py"])"},
      {"job", KeyType::text, "the path of a job file, which is read first"},
      {"settings", KeyType::object, R"(settings of the run, as in a job file: {"batch": 8, "precision": "bf16"}; they win over both)"},
      {"as", KeyType::text, "the reader of the file or command, where its content does not tell: axolotl, gsa, kohya, ..."}};
  return kKeys;
}

const std::vector<RequestKey>& device_keys() {
  static const std::vector<RequestKey> kKeys{
      {"gpu", KeyType::texts, R"(devices to fit: names of the catalogue, sizes like "24GiB", or "this")"},
      {"gpus", KeyType::text, R"("all": every device of the catalogue)", {}, {"all"}},
      {"in_use", KeyType::size, "memory that other processes use on the device"}};
  return kKeys;
}

JobRequest job_request(const Config& request) {
  JobRequest out;
  read_value(request, job_keys()[0], out.run);
  read_value(request, job_keys()[1], out.job_file);
  read_value(request, job_keys()[3], out.as);
  if (const nlohmann::json* settings = request.find({"settings"})) {
    if (!settings->is_object()) wrong_value("settings", *settings, R"(e.g. {"batch": 8, "precision": "bf16"}: docs/job-file.md)");
    for (const auto& item : settings->items()) out.set(item.key(), item.value(), "settings");
  }
  return out;
}

DeviceRequest device_request(const Config& request) {
  DeviceRequest out;
  std::vector<std::string> given;
  read_value(request, device_keys()[0], given);
  for (const std::string& text : given)
    for (std::string& name : split_at(text, ',')) out.names.push_back(std::move(name));
  read_value(request, device_keys()[1], out.group);
  if (!out.group.empty() && out.group != "all") wrong_value("gpus", out.group, R"("gpus" can only be "all"; names are for "gpu")");
  read_size(request, device_keys()[2], out.in_use);
  return out;
}

namespace {

// A mapping is as many flags as it has keys.
std::string typed_flags(const Patch& settings) {
  std::string out = settings.without({"config", "optimizer_args"}).flags();
  for (const auto& [key, flag] : {std::pair{"config", "--config"}, std::pair{"optimizer_args", "--optimizer-args"}})
    if (const nlohmann::json* values = settings.find(key); values && values->is_object())
      for (const auto& [name, value] : values->items())
        out += fmt::format(" {} {}", flag, shell_quoted(name + "=" + (value.is_string() ? value.get<std::string>() : dump(value))));
  return out;
}

}  // namespace

std::string command_text(const std::string& verb, const JobRequest& job, const DeviceRequest& devices, const std::string& device) {
  std::string out = "plimsoll " + verb;
  const bool command = job.run.size() > 1;
  if (!command && !job.run.empty()) out += " " + shell_quoted(job.run[0]);
  if (!job.job_file.empty()) out += " --job " + shell_quoted(job.job_file);
  if (const std::string flags = typed_flags(job.settings); !flags.empty()) out += (flags[0] == ' ' ? "" : " ") + flags;
  if (!device.empty()) out += " --gpu " + shell_quoted(device);
  if (!devices.in_use.empty()) out += " --in-use " + shell_quoted(devices.in_use);
  if (command) {
    out += " --";
    for (const std::string& word : job.run) out += " " + shell_quoted(word);
  }
  return out;
}

}  // namespace plimsoll
