#include "job/parallel.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "job/fields.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr double kLargestBucket = 1 << 20;  // MiB: a tebibyte, more than any device has

Config mapping_of(const Json& value, const std::string& source, const std::vector<std::string>& known) {
  return fields_of(value, source, known, fmt::format("e.g. {}: {{world: 8}} or --{} world=8", source, source));
}

int64_t world_of(const Config& c) {
  if (!c.find({"world"})) throw Error(fmt::format("[{}] world is not given", c.source()), "set world to the number of processes");
  const int64_t world = c.integer({"world"}, 1);
  constexpr int64_t kMost = 1 << 17;  // more than any training run had
  if (world < 1 || world > kMost)
    throw Error(fmt::format("[{}] world {} is not between 1 and {}", c.source(), world, kMost), "world is the number of processes");
  return world;
}

std::optional<double> bucket_of(const Config& c) {
  if (!c.find({"bucket_mb"})) return std::nullopt;
  const double mb = c.number({"bucket_mb"}, 0);
  if (!(mb > 0 && mb <= kLargestBucket))
    throw Error(fmt::format("[{}] bucket_mb {} is not between 0 and {}", c.source(), mb, kLargestBucket),
                "leave it out for PyTorch's default: 1 MiB for the first bucket, then 25");
  return mb;
}

}  // namespace

std::optional<DdpSettings> ParallelSettings::reducer() const {
  if (ddp || !zero1 || !zero1->ddp) return ddp;
  DdpSettings d;
  d.world = zero1->world;
  return d;
}

DdpSettings parse_ddp(const Json& value) {
  const Config c = mapping_of(
      value, "ddp", {"world", "bucket_mb", "bucket_view", "find_unused_parameters", "static_graph", "broadcast_buffers", "no_sync"});
  DdpSettings d;
  d.world = world_of(c);
  d.bucket_mb = bucket_of(c);
  d.bucket_view = c.flag({"bucket_view"}, false);
  d.find_unused_parameters = c.flag({"find_unused_parameters"}, false);
  d.static_graph = c.flag({"static_graph"}, false);
  d.broadcast_buffers = c.flag({"broadcast_buffers"}, true);
  d.no_sync = c.flag({"no_sync"}, true);
  return d;
}

Zero1Settings parse_zero1(const Json& value) {
  const Config c = mapping_of(value, "zero1", {"world", "rank", "ddp", "parameter_view"});
  Zero1Settings z;
  z.world = world_of(c);
  z.rank = c.integer({"rank"}, 0);
  if (z.rank < 0 || z.rank >= z.world)
    throw Error(fmt::format("[zero1] rank {} is not one of 0 to {}", z.rank, z.world - 1),
                "ranks count from 0; rank 0 has the largest parameter");
  z.ddp = c.flag({"ddp"}, true);
  z.parameter_view = c.flag({"parameter_view"}, false);
  return z;
}

void check(const ParallelSettings& p) {
  if (!p.ddp || !p.zero1) return;
  if (p.ddp->world != p.zero1->world)
    throw Error(fmt::format("[zero1] world {} is not that of ddp, {}", p.zero1->world, p.ddp->world),
                "the same processes reduce gradients and share the optimizer's states");
  if (!p.zero1->ddp) throw Error("[zero1] ddp: false, but the job has a ddp setting", "leave one of them out");
}

nlohmann::ordered_json to_json(const DdpSettings& d) {
  return {{"world", d.world},
          {"bucket_mb", d.bucket_mb ? nlohmann::ordered_json(*d.bucket_mb) : nlohmann::ordered_json(nullptr)},
          {"bucket_view", d.bucket_view},
          {"find_unused_parameters", d.find_unused_parameters},
          {"static_graph", d.static_graph},
          {"broadcast_buffers", d.broadcast_buffers},
          {"no_sync", d.no_sync}};
}

nlohmann::ordered_json to_json(const Zero1Settings& z) {
  return {{"world", z.world}, {"rank", z.rank}, {"ddp", z.ddp}, {"parameter_view", z.parameter_view}};
}

std::string to_string(const ParallelSettings& p) {
  if (p.zero1) return fmt::format("ZeRO-1 rank {} of {}", p.zero1->rank, p.zero1->world);
  return p.ddp ? fmt::format("DDP on {}", p.ddp->world) : "";
}

}  // namespace plimsoll
