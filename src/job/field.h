// One key of a mapping and the member it sets: how its value is read, and how the member is written so that reading gives it again. The
// settings of a job (settings.h) and the keys of those that are mappings themselves (lora, fsdp, zero, ...) are tables of these.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "job/config.h"
#include "job/platform.h"
#include "job/wire_type.h"

namespace plimsoll {

template <class T>
struct Field {
  const char* key;
  std::function<void(T&, const Config&)> read;              // of a mapping that holds the key or not; null is the default
  std::function<nlohmann::ordered_json(const T&)> print{};  // what `read` takes; none: another key says it. Discarded: it says nothing now
};

// Names as `frozen` has them: a list, or text like "lm_head+embed_tokens".
std::vector<std::string> parse_name_list(const nlohmann::json& value, const std::string& source);

// Makers of fields. `members` lead from the owner to the member: field::size("workers", &Job::host, &HostSettings::workers). What a
// mapping does not say is the default of the owner.
namespace field {

inline nlohmann::ordered_json left_out() { return nlohmann::ordered_json(nlohmann::ordered_json::value_t::discarded); }

template <class O, class M>
auto& reach(O& owner, M member) {
  return owner.*member;
}
template <class O, class M, class... Rest>
auto& reach(O& owner, M member, Rest... rest) {
  return reach(owner.*member, rest...);
}

template <class O>
const O& defaults() {
  static const O kDefaults{};
  return kDefaults;
}

// `read(config, key, default)` gives the member; `print(member)` its JSON.
template <class Read, class Print, class O, class M, class... Rest>
Field<O> member(const char* key, Read read, Print print, M O::*first, Rest... rest) {
  return {key, [=](O& o, const Config& c) { reach(o, first, rest...) = read(c, key, std::as_const(reach(defaults<O>(), first, rest...))); },
          [=](const O& o) { return nlohmann::ordered_json(print(reach(o, first, rest...))); }};
}

inline constexpr auto kAsItIs = [](const auto& value) { return value; };

// A whole number above 0.
template <class... Members>
auto size(const char* key, Members... members) {
  return member(
      key, [](const Config& c, const char* k, int64_t usual) { return c.size({k}, usual); }, kAsItIs, members...);
}

// The same where the member is 0 for "none", which is written as null.
template <class... Members>
auto size_or_none(const char* key, Members... members) {
  return member(
      key, [](const Config& c, const char* k, int64_t) { return c.find({k}) ? c.size({k}, 1) : 0; },
      [](int64_t n) { return n ? nlohmann::ordered_json(n) : nlohmann::ordered_json(nullptr); }, members...);
}

template <class... Members>
auto flag(const char* key, Members... members) {
  return member(
      key, [](const Config& c, const char* k, bool usual) { return c.flag({k}, usual); }, kAsItIs, members...);
}

template <class... Members>
auto text(const char* key, Members... members) {
  return member(
      key, [](const Config& c, const char* k, const std::string& usual) { return c.text({k}, usual); }, kAsItIs, members...);
}

// A word of an enumeration that has to_string; `parse` takes the text.
template <class Parse, class... Members>
auto word(const char* key, Parse parse, Members... members) {
  return member(
      key, [parse](const Config& c, const char* k, const auto& usual) { return parse(c.text({k}, to_string(usual))); },
      [](const auto& value) { return to_string(value); }, members...);
}

template <class... Members>
auto wire_type(const char* key, Members... members) {
  return member(
      key, [](const Config& c, const char* k, WireType usual) { return parse_wire_type(c, k, usual); },
      [](WireType t) { return to_string(t); }, members...);
}

template <class... Members>
auto names(const char* key, Members... members) {
  return member(
      key,
      [](const Config& c, const char* k, const std::vector<std::string>& usual) {
        const nlohmann::json* value = c.find({k});
        return value ? parse_name_list(*value, k) : usual;
      },
      kAsItIs, members...);
}

// Unquoted in YAML, 2.4 is a number.
template <class... Members>
auto version(const char* key, Members... members) {
  return member(
      key,
      [](const Config& c, const char* k, const Version& usual) {
        const nlohmann::json* value = c.find({k});
        return value ? parse_version(k, value->is_string() ? value->get<std::string>() : value->dump()) : usual;
      },
      [](const Version& v) { return to_string(v); }, members...);
}

// Whatever form the value has: `parse` takes its JSON.
template <class Parse, class Print, class... Members>
auto parsed(const char* key, Parse parse, Print print, Members... members) {
  return member(
      key,
      [parse](const Config& c, const char* k, const auto& usual) {
        const nlohmann::json* value = c.find({k});
        return value ? parse(*value) : usual;
      },
      print, members...);
}

// A part that a job has or has not: false and null undo what a file says.
template <class T, class... Members>
auto part(const char* key, T (*parse)(const nlohmann::json&), Members... members) {
  return member(
      key,
      [parse](const Config& c, const char* k, const auto&) {
        const nlohmann::json* value = c.find({k});
        return value && *value != false ? std::optional<T>(parse(*value)) : std::nullopt;
      },
      [](const std::optional<T>& value) { return value ? to_json(*value) : nlohmann::ordered_json(false); }, members...);
}

// The same field, left out while the member has that value.
template <class O, class M, class V>
Field<O> unless(Field<O> f, M O::*m, V value) {
  f.print = [print = std::move(f.print), m, value](const O& o) { return o.*m == value ? left_out() : print(o); };
  return f;
}
// Or while `when` does not hold.
template <class O, class When>
Field<O> only(When when, Field<O> f) {
  f.print = [print = std::move(f.print), when](const O& o) { return when(o) ? print(o) : left_out(); };
  return f;
}

// Known, and read by another field or by nothing.
template <class O>
Field<O> silent(const char* key) {
  return {key, [](O&, const Config&) {}};
}

}  // namespace field

// Checks that the value is a mapping (or text like "key=value,key=value", or true for defaults alone) with known keys: job/fields.h.
Config fields_of(const nlohmann::json& value, const std::string& source, const std::vector<std::string>& known, const std::string& example);

// A setting that is a mapping: its name in messages, an example for them, its keys in the order they are read and printed.
template <class T>
struct Mapping {
  const char* source;
  std::string example;
  std::vector<Field<T>> fields;
  std::function<void(T&, const Config&)> check{};  // after all were read

  T read(const nlohmann::json& value, T out = {}) const {
    std::vector<std::string> keys;
    for (const Field<T>& f : fields) keys.emplace_back(f.key);
    const Config c = fields_of(value, source, keys, example);
    for (const Field<T>& f : fields) f.read(out, c);
    if (check) check(out, c);
    return out;
  }

  nlohmann::ordered_json print(const T& value) const {
    nlohmann::ordered_json out = nlohmann::ordered_json::object();
    for (const Field<T>& f : fields) {
      if (!f.print) continue;
      if (nlohmann::ordered_json v = f.print(value); !v.is_discarded()) out[f.key] = std::move(v);
    }
    return out;
  }
};

}  // namespace plimsoll
