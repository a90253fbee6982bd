#include "job/patch.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "job/settings.h"
#include "util/shell.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

const std::string& checked(const std::string& key) {
  if (find_setting(key)) return key;
  std::vector<std::string> keys;
  for (const Setting& s : job_settings()) keys.emplace_back(s.key);
  throw Error("[settings] setting '" + printable(key, 80) + "' is not known", did_you_mean(key, keys));
}

// Where a key is, or belongs.
template <class Values>
auto place_of(Values& values, const std::string& key) {
  return std::lower_bound(values.begin(), values.end(), checked(key), [](const auto& v, const std::string& k) { return v.first < k; });
}

// A value as its flag takes it: [a, b] is a+b, {r: 16, bias: none} is r=16,bias=none.
std::string flag_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_structured() || value.empty()) return dump(value);
  std::string out;
  if (value.is_array())
    for (const Json& item : value) out += (out.empty() ? "" : "+") + flag_text(item);
  if (value.is_object())
    for (const auto& item : value.items()) out += (out.empty() ? "" : ",") + item.key() + "=" + flag_text(item.value());
  return out;
}

}  // namespace

Patch::Patch() = default;
Patch::Patch(const Patch&) = default;
Patch::Patch(Patch&&) noexcept = default;
Patch& Patch::operator=(const Patch&) = default;
Patch& Patch::operator=(Patch&&) noexcept = default;
Patch::~Patch() = default;

Patch::Patch(std::initializer_list<std::pair<std::string, Json>> values) {
  for (const auto& [key, value] : values) set(key, value);
}

Patch Patch::from(const Json& object) {
  Patch out;
  for (const auto& item : object.items()) out.set(item.key(), item.value());
  return out;
}

Patch& Patch::set(const std::string& key, Json value) {
  const auto at = place_of(values_, key);
  if (at != values_.end() && at->first == key)
    at->second = std::move(value);
  else
    values_.emplace(at, key, std::move(value));
  return *this;
}

Patch& Patch::set(const std::string& key, const std::string& field, Json value) {
  Json mapping = (*this)[key];
  mapping[field] = std::move(value);
  return set(key, std::move(mapping));
}

Patch& Patch::erase(const std::string& key) {
  const auto at = place_of(values_, key);
  if (at != values_.end() && at->first == key) values_.erase(at);
  return *this;
}

Patch Patch::without(std::initializer_list<const char*> keys) const {
  Patch out = *this;
  for (const char* key : keys) out.erase(key);
  return out;
}

const Json* Patch::find(const std::string& key) const {
  const auto at = place_of(values_, key);
  return at == values_.end() || at->first != key ? nullptr : &at->second;
}

const Json& Patch::operator[](const std::string& key) const {
  static const Json kNone;
  const Json* value = find(key);
  return value ? *value : kNone;
}

bool Patch::contains(const std::string& key) const { return find(key) != nullptr; }

bool Patch::includes(const Patch& other) const { return std::includes(begin(), end(), other.begin(), other.end()); }

bool Patch::turns_on(const std::string& key) const {
  const Json* value = find(key);
  return value && !value->is_null() && *value != false;
}

std::optional<int64_t> Patch::integer(const std::string& key) const {
  const Json* value = find(key);
  return value && value->is_number_integer() ? std::optional(value->get<int64_t>()) : std::nullopt;
}

std::string Patch::text(const std::string& key) const {
  const Json* value = find(key);
  return value && value->is_string() ? value->get<std::string>() : "";
}

bool Patch::empty() const { return values_.empty(); }
size_t Patch::size() const { return values_.size(); }
Patch::Values::const_iterator Patch::begin() const { return values_.begin(); }
Patch::Values::const_iterator Patch::end() const { return values_.end(); }

Patch::Values Patch::in_order() const {
  Values out;
  for (const Setting& s : job_settings())
    if (const Json* value = find(s.key)) out.emplace_back(s.key, *value);
  return out;
}

void Patch::apply(Job& job, const std::string& origin) const {
  for (const auto& [key, value] : values_) apply_setting(job, key, value, origin);
}

Json Patch::json() const {
  Json out = Json::object();
  for (const auto& [key, value] : values_) out[key] = value;
  return out;
}

std::string Patch::text() const { return dump(json()); }

std::string Patch::flags() const {
  std::string out;
  for (const auto& [key, value] : in_order()) {
    if (value.is_object() && value.empty() && (key == "optimizer_args" || key == "config")) continue;
    const Setting& setting = *find_setting(key);
    if (value.is_object() && (key == "optimizer_args" || key == "config")) {  // their flags hold one pair each
      for (const auto& pair : value.items())
        out += (out.empty() ? "" : " ") + flag_of(setting) + " " + shell_quoted(flag_text(Json{{pair.key(), pair.value()}}));
      continue;
    }
    out += (out.empty() ? "" : " ") + flag_of(setting);
    const std::string_view shown = setting.value;
    const bool is_switch = (shown.starts_with('=') && shown != "={KEY: VALUE}") || shown.empty();  // --lora r=16 is KEY=VALUE behind it
    if (value != true) out += (is_switch ? "=" : " ") + shell_quoted(flag_text(value));
  }
  return out;
}

bool operator==(const Patch& a, const Patch& b) { return a.values_ == b.values_; }
bool operator<(const Patch& a, const Patch& b) { return a.values_ < b.values_; }

Patch merged(Patch first, const Patch& second) {
  for (const auto& [key, value] : second) {
    const Json* before = key == "config" ? first.find(key) : nullptr;
    if (!before) {
      first.set(key, value);
      continue;
    }
    Json both = *before;
    both.update(value);
    first.set(key, std::move(both));
  }
  return first;
}

Job patched(const Job& job, const Patch& patch, const std::string& origin) {
  Job out = job;
  patch.apply(out, origin);
  return out;
}

Outcome<Job> try_patched(const Job& job, const Patch& patch, const std::string& origin) {
  return outcome_of([&] { return patched(job, patch, origin); });
}

}  // namespace plimsoll
