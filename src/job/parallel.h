// How a job is spread over processes that each have a device: DistributedDataParallel and ZeroRedundancyOptimizer (ZeRO stage 1).
// Plain data; step/ddp.h and step/zero1.h act on it. What is simulated is one rank.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "util/error.h"

namespace plimsoll {

// torch.nn.parallel.DistributedDataParallel, as far as memory depends on its arguments.
struct DdpSettings {
  int64_t world = 1;
  std::optional<double> bucket_mb;      // bucket_cap_mb; none: 25, and 1 for the first bucket
  bool bucket_view = false;             // gradient_as_bucket_view
  bool find_unused_parameters = false;  // also clones the model's outputs, in every forward
  bool static_graph = false;
  bool broadcast_buffers = true;
  bool no_sync = true;  // the loop accumulates under no_sync(): only the last micro-step reduces
};

// torch.distributed.optim.ZeroRedundancyOptimizer: each rank keeps the states of its whole parameters.
struct Zero1Settings {
  int64_t world = 1;
  int64_t rank = 0;
  bool ddp = true;              // gradients are reduced by DistributedDataParallel
  bool parameter_view = false;  // parameters_as_bucket_view
};

struct ParallelSettings {
  std::optional<DdpSettings> ddp;
  std::optional<Zero1Settings> zero1;

  bool any() const { return ddp || zero1; }
  int64_t world() const { return ddp ? ddp->world : zero1 ? zero1->world : 1; }
  // How gradients are reduced; none: not by DistributedDataParallel.
  std::optional<DdpSettings> reducer() const;
};

// `value` is a mapping, or text like "world=8,bucket_view=true".
DdpSettings parse_ddp(const nlohmann::json& value);
Zero1Settings parse_zero1(const nlohmann::json& value);
// Throws when the two contradict each other.
void check(const ParallelSettings& parallel);

nlohmann::ordered_json to_json(const DdpSettings& d);
nlohmann::ordered_json to_json(const Zero1Settings& z);
std::string to_string(const ParallelSettings& p);  // "DDP on 8", "ZeRO-1 rank 0 of 8"; empty for one process

}  // namespace plimsoll
