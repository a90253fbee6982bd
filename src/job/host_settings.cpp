#include "job/host_settings.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "job/named_value.h"
#include "job/settings.h"
#include "util/parse_bytes.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr std::array kStartMethods{"fork", "spawn", "forkserver"};
constexpr std::array kCaches{"none", "ram", "worker", "disk"};
constexpr std::array kLoads{"cpu", "state_dict", "resume", "mmap"};
constexpr std::array kSaves{"stream", "cpu"};

// A count that may be 0; the bound is that of every size of a job.
int64_t count(const Config& c, const char* key) {
  const int64_t n = c.integer({key}, 0);
  if (n < 0 || n > int64_t{1} << 31)
    throw Error(fmt::format("[job] {} {} is not between 0 and 2^31", key, n), fmt::format("set {} to a whole number from 0 on", key));
  return n;
}

// A number of bytes, or text with a unit.
Bytes bytes_at(const Config& c, const char* key) {
  if (const nlohmann::json* v = c.find({key}); v && v->is_string()) return parse_bytes(v->get<std::string>(), key);
  const int64_t n = c.integer({key}, 0);
  if (n < 1) throw Error(fmt::format("[job] {} {} is not a size above zero", key, n), "e.g. 6MiB or a number of bytes");
  return {n};
}

nlohmann::ordered_json print_bytes(const std::optional<Bytes>& b) {
  return b && b->count > 0 ? nlohmann::ordered_json(b->count) : nlohmann::ordered_json(nullptr);
}

// Makers of fields of Job::host.
Field<Job> host_bytes(const char* key, Bytes HostSettings::*m) {
  return field::member(
      key, [](const Config& c, const char* k, Bytes usual) { return c.find({k}) ? bytes_at(c, k) : usual; }, print_bytes, &Job::host, m);
}
Field<Job> host_bytes(const char* key, std::optional<Bytes> HostSettings::*m) {
  return field::member(
      key, [](const Config& c, const char* k, auto) { return c.find({k}) ? std::optional(bytes_at(c, k)) : std::nullopt; }, print_bytes,
      &Job::host, m);
}
template <class E, size_t N>
Field<Job> host_word(const char* key, const std::array<const char*, N>& names, E HostSettings::*m) {
  return field::member(
      key, [&names](const Config& c, const char* k, E) { return one_of<E>(names, c, k); }, [](E e) { return to_string(e); }, &Job::host, m);
}
Field<Job> prefetch_factor() {
  return field::member(
      "prefetch_factor", [](const Config& c, const char* k, auto) { return c.find({k}) ? std::optional(c.size({k}, 2)) : std::nullopt; },
      [](const std::optional<int64_t>& n) { return n ? nlohmann::ordered_json(*n) : nlohmann::ordered_json(nullptr); }, &Job::host,
      &HostSettings::prefetch_factor);
}

}  // namespace

const char* to_string(StartMethod m) { return kStartMethods[static_cast<size_t>(m)]; }
const char* to_string(CacheKind c) { return kCaches[static_cast<size_t>(c)]; }
const char* to_string(LoadPlan l) { return kLoads[static_cast<size_t>(l)]; }
const char* to_string(SavePlan s) { return kSaves[static_cast<size_t>(s)]; }

std::vector<Setting> host_setting_entries() {
  using H = HostSettings;
  const auto read_count = [](const Config& c, const char* key, int64_t) { return count(c, key); };
  return {
      {field::member("workers", read_count, field::kAsItIs, &Job::host, &H::workers), "N", "DataLoader's num_workers (default 0)"},
      {prefetch_factor(), "N", "batches each worker makes ahead (default 2)"},
      {field::flag("persistent_workers", &Job::host, &H::persistent_workers), "", "workers live on between epochs"},
      {field::flag("pin_memory", &Job::host, &H::pin_memory), "", "the loader copies batches into page-locked memory"},
      {host_word("start_method", kStartMethods, &H::start_method), "fork|spawn|forkserver",
       "how workers start (Python's default: fork, from 3.14 on forkserver)"},
      {host_bytes("item_bytes", &H::item_bytes), "SIZE", "one item as the loader returns it (default: the model's inputs)"},
      {field::size_or_none("dataset_size", &Job::host, &H::dataset_size), "N", "items in the dataset"},
      {host_bytes("dataset_bytes", &H::dataset_bytes), "SIZE", "what the dataset object itself holds in memory"},
      {host_word("cache", kCaches, &H::cache), "none|ram|worker|disk",
       "prepared items (latents, embeddings): made before the workers start, filled by each, or on disk"},
      {host_bytes("cache_item_bytes", &H::cache_item_bytes), "SIZE", "one cached item (default: item_bytes)"},
      {host_word("load", kLoads, &H::load), "cpu|state_dict|resume|mmap",
       "how weights reach the device: through a CPU copy, two, a whole checkpoint, or mapped"},
      {host_word("save", kSaves, &H::save), "stream|cpu", "torch.save from the device, or after a full copy on the CPU"},
      {field::size("ranks_per_host", &Job::host, &H::ranks_per_host), "N",
       "training processes on this machine, each with its own workers (default 1)"},
  };
}

void check(const HostSettings& host, Problems& out) {
  if (host.workers == 0 && host.prefetch_factor)
    out.push_back({fmt::format("[loader] prefetch_factor {} needs workers, and there are 0", *host.prefetch_factor),
                   "PyTorch raises a ValueError here: set workers, or leave prefetch_factor out"});
  if (host.workers == 0 && host.persistent_workers)
    out.push_back({"[loader] persistent_workers needs workers, and there are 0",
                   "PyTorch raises a ValueError here: set workers, or leave persistent_workers out"});
  if (host.cache != CacheKind::none && host.dataset_size == 0)
    out.push_back({fmt::format("[loader] a cache ({}) of how many items?", to_string(host.cache)), "set dataset_size"});
  if (host.cache == CacheKind::none && host.cache_item_bytes)
    out.push_back({"[loader] cache_item_bytes is set, but cache is none", "set cache to ram, worker or disk"});
}

}  // namespace plimsoll
