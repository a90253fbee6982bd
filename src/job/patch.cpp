#include "job/patch.h"

#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

const std::string& checked(const std::string& key) {
  if (find_setting(key)) return key;
  std::vector<std::string> keys;
  for (const Setting& s : job_settings()) keys.emplace_back(s.key);
  throw Error("[settings] setting '" + printable(key, 80) + "' is not known", did_you_mean(key, keys));
}

}  // namespace

Patch::Patch(std::initializer_list<std::pair<std::string, Json>> values) {
  for (const auto& [key, value] : values) set(key, value);
}

Patch Patch::from(const Json& object) {
  Patch out;
  for (const auto& item : object.items()) out.set(item.key(), item.value());
  return out;
}

Patch& Patch::set(const std::string& key, Json value) {
  values_[checked(key)] = std::move(value);
  return *this;
}

Patch& Patch::erase(const std::string& key) {
  values_.erase(checked(key));
  return *this;
}

bool Patch::contains(const std::string& key) const { return values_.contains(checked(key)); }

const Patch::Json* Patch::find(const std::string& key) const {
  const auto it = values_.find(checked(key));
  return it == values_.end() ? nullptr : &it->second;
}

Patch::Json& Patch::operator[](const std::string& key) { return values_[checked(key)]; }

const Patch::Json& Patch::operator[](const std::string& key) const {
  static const Json kNone;
  const Json* value = find(key);
  return value ? *value : kNone;
}

std::vector<std::pair<std::string, Patch::Json>> Patch::in_order() const {
  std::vector<std::pair<std::string, Json>> out;
  for (const Setting& s : job_settings())
    if (const auto it = values_.find(s.key); it != values_.end()) out.emplace_back(*it);
  return out;
}

void Patch::apply(Job& job, const std::string& origin) const {
  for (const auto& [key, value] : values_) apply_setting(job, key, value, origin);
}

Patch::Json Patch::json() const { return Json(values_); }

std::string Patch::text() const { return empty() ? "{}" : dump(json()); }

Patch merged(Patch first, const Patch& second) {
  for (const auto& [key, value] : second) {
    const Patch::Json* before = key == "config" ? first.find(key) : nullptr;
    if (!before) {
      first.set(key, value);
      continue;
    }
    Patch::Json both = *before;
    both.update(value);
    first.set(key, std::move(both));
  }
  return first;
}

}  // namespace plimsoll
