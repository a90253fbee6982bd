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
Bytes size(const Config& c, const char* key) {
  if (const nlohmann::json* v = c.find({key}); v && v->is_string()) return parse_bytes(v->get<std::string>(), key);
  const int64_t n = c.integer({key}, 0);
  if (n < 1) throw Error(fmt::format("[job] {} {} is not a size above zero", key, n), "e.g. 6MiB or a number of bytes");
  return {n};
}

}  // namespace

const char* to_string(StartMethod m) { return kStartMethods[static_cast<size_t>(m)]; }
const char* to_string(CacheKind c) { return kCaches[static_cast<size_t>(c)]; }
const char* to_string(LoadPlan l) { return kLoads[static_cast<size_t>(l)]; }
const char* to_string(SavePlan s) { return kSaves[static_cast<size_t>(s)]; }

std::vector<Setting> host_setting_entries() {
  return {
      {"workers", "N", "DataLoader's num_workers (default 0)", [](Job& j, const Config& c) { j.host.workers = count(c, "workers"); }},
      {"prefetch_factor", "N", "batches each worker makes ahead (default 2)",
       [](Job& j, const Config& c) { j.host.prefetch_factor = c.size({"prefetch_factor"}, 2); }},
      {"persistent_workers", "", "workers live on between epochs",
       [](Job& j, const Config& c) { j.host.persistent_workers = c.flag({"persistent_workers"}, false); }},
      {"pin_memory", "", "the loader copies batches into page-locked memory",
       [](Job& j, const Config& c) { j.host.pin_memory = c.flag({"pin_memory"}, false); }},
      {"start_method", "fork|spawn|forkserver", "how workers start (Python's default: fork, from 3.14 on forkserver)",
       [](Job& j, const Config& c) { j.host.start_method = one_of<StartMethod>(kStartMethods, c, "start_method"); }},
      {"item_bytes", "SIZE", "one item as the loader returns it (default: the model's inputs)",
       [](Job& j, const Config& c) { j.host.item_bytes = size(c, "item_bytes"); }},
      {"dataset_size", "N", "items in the dataset", [](Job& j, const Config& c) { j.host.dataset_size = c.size({"dataset_size"}, 1); }},
      {"dataset_bytes", "SIZE", "what the dataset object itself holds in memory",
       [](Job& j, const Config& c) { j.host.dataset_bytes = size(c, "dataset_bytes"); }},
      {"cache", "none|ram|worker|disk", "prepared items (latents, embeddings): made before the workers start, filled by each, or on disk",
       [](Job& j, const Config& c) { j.host.cache = one_of<CacheKind>(kCaches, c, "cache"); }},
      {"cache_item_bytes", "SIZE", "one cached item (default: item_bytes)",
       [](Job& j, const Config& c) { j.host.cache_item_bytes = size(c, "cache_item_bytes"); }},
      {"load", "cpu|state_dict|resume|mmap", "how weights reach the device: through a CPU copy, two, a whole checkpoint, or mapped",
       [](Job& j, const Config& c) { j.host.load = one_of<LoadPlan>(kLoads, c, "load"); }},
      {"save", "stream|cpu", "torch.save from the device, or after a full copy on the CPU",
       [](Job& j, const Config& c) { j.host.save = one_of<SavePlan>(kSaves, c, "save"); }},
      {"ranks_per_host", "N", "training processes on this machine, each with its own workers (default 1)",
       [](Job& j, const Config& c) { j.host.ranks_per_host = c.size({"ranks_per_host"}, 1); }},
  };
}

void check(const HostSettings& host) {
  if (host.workers == 0 && host.prefetch_factor)
    throw Error(fmt::format("[loader] prefetch_factor {} needs workers, and there are 0", *host.prefetch_factor),
                "PyTorch raises a ValueError here: set workers, or leave prefetch_factor out");
  if (host.workers == 0 && host.persistent_workers)
    throw Error("[loader] persistent_workers needs workers, and there are 0",
                "PyTorch raises a ValueError here: set workers, or leave persistent_workers out");
  if (host.cache != CacheKind::none && host.dataset_size == 0)
    throw Error(fmt::format("[loader] a cache ({}) of how many items?", to_string(host.cache)), "set dataset_size");
  if (host.cache == CacheKind::none && host.cache_item_bytes)
    throw Error("[loader] cache_item_bytes is set, but cache is none", "set cache to ram, worker or disk");
}

}  // namespace plimsoll
