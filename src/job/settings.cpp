#include "job/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "job/setting_groups.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr std::array kGroups{"model",     "batch", "precision", "adapters",  "activations", "loss",
                             "optimizer", "loop",  "parallel",  "framework", "host"};
constexpr std::array kPrograms{"pytorch", "jax", "both"};

// Stand beside the settings in job_json: `family` follows from the model and is not read.
constexpr const char *kFamily = "family", *kOrigin = "origin";
// The origin of what no input said and is not the default: inputs of the model's kind, a batch of as many samples as there are lengths.
constexpr const char* kDerived = "derived";

std::vector<Setting> all_settings() {
  std::vector<Setting> all;
  const auto add = [&](SettingGroup group, std::vector<Setting> part) {
    for (Setting& s : part) {
      s.group = group;
      all.push_back(std::move(s));
    }
  };
  add(SettingGroup::model, model_settings());
  add(SettingGroup::batch, batch_settings());
  add(SettingGroup::precision, precision_settings());
  add(SettingGroup::adapters, adapter_settings());
  add(SettingGroup::activations, activation_settings());
  add(SettingGroup::loss, loss_settings());
  add(SettingGroup::optimizer, optimizer_settings());
  add(SettingGroup::loop, loop_settings());
  add(SettingGroup::parallel, parallel_settings());
  add(SettingGroup::framework, jax_setting_entries());
  add(SettingGroup::host, host_setting_entries());
  return all;
}

std::map<std::string, std::string> read_origins(const nlohmann::json& value, const std::string& name) {
  if (!value.is_object()) throw Error(fmt::format("[{}] origin is {}, not a mapping", name, value.type_name()), "leave origin out");
  std::map<std::string, std::string> out;
  for (const auto& item : value.items()) {
    if (!item.value().is_string()) throw Error(fmt::format("[{}] origin of '{}' is not a text", name, item.key()), "leave origin out");
    out[item.key()] = item.value().get<std::string>();
  }
  return out;
}

}  // namespace

const char* to_string(SettingGroup g) { return kGroups[static_cast<size_t>(g)]; }
const char* to_string(Programs p) { return kPrograms[static_cast<size_t>(p)]; }

const std::vector<Setting>& job_settings() {
  static const std::vector<Setting> kSettings = all_settings();
  return kSettings;
}

const Setting* find_setting(const std::string& key) {
  static const std::map<std::string, const Setting*> kByKey = [] {
    std::map<std::string, const Setting*> out;
    for (const Setting& s : job_settings()) out[s.key] = &s;
    return out;
  }();
  const auto it = kByKey.find(key);
  return it == kByKey.end() ? nullptr : it->second;
}

std::string flag_of(const Setting& s) {
  std::string flag = std::string("--") + s.key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

const nlohmann::ordered_json& default_of(const Setting& s) {
  static const std::map<std::string, nlohmann::ordered_json> kDefaults = [] {
    std::map<std::string, nlohmann::ordered_json> out;
    for (const Setting& each : job_settings()) out[each.key] = each.print ? each.print(Job()) : nlohmann::ordered_json(nullptr);
    return out;
  }();
  return kDefaults.at(s.key);
}

void apply_setting(Job& job, const std::string& key, const nlohmann::json& value, const std::string& origin) {
  const Setting* s = find_setting(key);
  if (!s) {
    std::vector<std::string> keys;
    for (const Setting& known : job_settings()) keys.emplace_back(known.key);
    throw Error(fmt::format("[{}] setting '{}' is not known", origin, key), did_you_mean(key, keys));
  }
  s->read(job, Config(origin, {{key, value}}));
  job.origin[key] = origin;
}

nlohmann::json parse_scalar(const std::string& text) {
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  if (text == "null" || text == "None" || text == "~") return nullptr;
  const char* end = text.data() + text.size();
  int64_t whole = 0;
  if (auto r = std::from_chars(text.data(), end, whole); r.ec == std::errc() && r.ptr == end) return whole;
  double number = 0;
  if (auto r = std::from_chars(text.data(), end, number); r.ec == std::errc() && r.ptr == end) return number;
  return text;
}

std::map<std::string, nlohmann::json> values_of(const Job& job) {
  std::map<std::string, nlohmann::json> values;
  for (const Setting& s : job_settings())
    if (s.print) values[s.key] = s.print(job);
  return values;
}

nlohmann::json value_of(const Job& job, const std::string& setting) {
  const Setting* s = find_setting(setting == "global_batch" ? "batch" : setting);
  if (!s) throw Error("[job] setting '" + setting + "' is not known", "plimsoll list settings names them all");
  return s->print(job);
}

nlohmann::ordered_json job_json(const Job& job) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  std::map<std::string, std::string> origin = job.origin;
  for (const Setting& s : job_settings()) {
    if (!s.print) continue;
    out[s.key] = s.print(job);
    if (out[s.key] != default_of(s)) origin.emplace(s.key, kDerived);
  }
  out[kFamily] = job.family;
  out[kOrigin] = origin;
  return out;
}

void apply_settings(Job& job, const nlohmann::json& values, const std::string& name) {
  const auto said = values.find(kOrigin);
  const bool told = said != values.end();
  const std::map<std::string, std::string> origins = told ? read_origins(*said, name) : std::map<std::string, std::string>();
  for (const auto& item : values.items()) {
    if (item.key() == kFamily || item.key() == kOrigin) continue;
    const bool was_given = job.origin.contains(item.key());
    const auto origin = origins.find(item.key());
    apply_setting(job, item.key(), item.value(), origin == origins.end() ? name : origin->second);
    if (origin != origins.end() || was_given || !(told || item.value().is_null())) continue;
    const Setting& s = *find_setting(item.key());
    if (s.print && item.value() == nlohmann::json(default_of(s))) job.origin.erase(s.key);
  }
  for (const auto& [key, from] : origins)
    if (key.starts_with("config.")) job.origin[key] = from;
}

bool is_job_json(const nlohmann::json& values) {
  if (!values.is_object()) return false;
  const auto known = [](const std::string& key) { return find_setting(key) || key == kFamily || key == kOrigin; };
  return std::all_of(values.items().begin(), values.items().end(), [&](const auto& item) { return known(item.key()); });
}

}  // namespace plimsoll
