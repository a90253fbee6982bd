#include "trace/memory_stats.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "util/error.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

bool is_stats(const Json& j) {
  return j.is_object() && (j.contains("allocated_bytes.all.current") || j.contains("allocated_bytes.all.peak") ||
                           (j.contains("allocated_bytes") && j["allocated_bytes"].is_object()));
}

// The object itself, or the first that it holds.
const Json* stats_in(const Json& json) {
  if (is_stats(json)) return &json;
  if (!json.is_object()) return nullptr;
  for (const auto& item : json.items())
    if (is_stats(item.value())) return &item.value();
  return nullptr;
}

class Reader {
 public:
  Reader(const Json& json, const std::string& name) : json_(json), name_(name) {}

  // "allocated_bytes.all.peak" as one key, or as three nested ones (memory_stats_as_nested_dict).
  std::optional<int64_t> counter(const std::string& key) const {
    const Json* at = &json_;
    if (json_.contains(key)) {
      at = &json_[key];
    } else {
      for (size_t from = 0; from <= key.size();) {
        const size_t dot = std::min(key.find('.', from), key.size());
        const std::string part = key.substr(from, dot - from);
        if (!at->is_object() || !at->contains(part)) return {};
        at = &(*at)[part];
        from = dot + 1;
      }
    }
    if (!at->is_number_integer() || (at->is_number_unsigned() && at->get<uint64_t>() > INT64_MAX))
      throw Error(fmt::format("[stats] {}: {} is {}, expected a whole number", name_, key,
                              at->dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 40)),
                  "json.dump(torch.cuda.memory_stats(), f) writes them");
    return at->get<int64_t>();
  }

  int64_t needed(const std::string& key) const {
    const std::optional<int64_t> value = counter(key);
    if (!value) throw Error(fmt::format("[stats] {} has no '{}'", name_, key), "json.dump(torch.cuda.memory_stats(), f) writes them");
    return *value;
  }

 private:
  const Json& json_;
  const std::string& name_;
};

}  // namespace

bool looks_like_memory_stats(std::string_view text) {
  constexpr size_t kLargest = 1 << 22;
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{' || text.size() > kLargest ||
      text.find("allocated_bytes") == std::string_view::npos)
    return false;
  const Json json = Json::parse(text, nullptr, false);
  return stats_in(json) != nullptr;
}

MemoryStats read_memory_stats(std::string_view text, const std::string& name) {
  const Json json = Json::parse(text, nullptr, false);
  const Json* found = stats_in(json);
  if (!found)
    throw Error(fmt::format("[stats] {} holds no counters of torch.cuda.memory_stats()", name),
                "json.dump(torch.cuda.memory_stats(), f) writes them");
  const Reader r(*found, name);
  MemoryStats s;
  s.allocated = r.needed("allocated_bytes.all.current");
  s.allocated_peak = r.needed("allocated_bytes.all.peak");
  s.reserved = r.needed("reserved_bytes.all.current");
  s.reserved_peak = r.needed("reserved_bytes.all.peak");
  s.requested = r.counter("requested_bytes.all.current");
  s.requested_peak = r.counter("requested_bytes.all.peak");
  s.active = r.counter("active_bytes.all.current");
  s.active_peak = r.counter("active_bytes.all.peak");
  s.inactive_split = r.counter("inactive_split_bytes.all.current");
  s.segments = r.counter("segment.all.current");
  s.retries = r.counter("num_alloc_retries");
  s.ooms = r.counter("num_ooms");
  s.device_allocs = r.counter("num_device_alloc");
  s.device_frees = r.counter("num_device_free");
  return s;
}

}  // namespace plimsoll
