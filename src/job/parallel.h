// How a job is spread over processes that each have a device: DistributedDataParallel, ZeroRedundancyOptimizer (ZeRO stage 1),
// fully_shard (FSDP2, HSDP) and tensor parallelism of PyTorch, these two together if so asked; FullyShardedDataParallel (FSDP1);
// or DeepSpeed's ZeRO. torchtitan and Megatron-LM have layouts of their own (job/program_settings.h); job/distribution.h asks of either.
// Plain data; step/ddp.h, step/zero1.h, step/fsdp.h, step/fsdp1.h, step/deepspeed.h and nn/tensor_parallel.h act on it. What is simulated
// is one rank.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "job/deepspeed.h"
#include "job/fsdp1.h"
#include "job/problem.h"
#include "job/wire_type.h"
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

// torch.distributed.fsdp.fully_shard on every block of the model and on the model.
struct FsdpSettings {
  int64_t world = 1;                     // processes in all
  int64_t rank = 0;                      // among those that share a copy of the weights
  int64_t replicas = 1;                  // copies of the weights: above 1, HSDP
  bool reshard = true;                   // reshard_after_forward of the blocks
  int64_t reshard_to = 0;                // reshard_after_forward as a number: into groups of so many; 0: none
  std::optional<bool> reshard_root;      // none: as PyTorch's default, not when blocks are
  WireType param_dtype = WireType::own;  // MixedPrecisionPolicy
  WireType reduce_dtype = WireType::own;
  bool no_sync = false;            // gradients of all micro-steps but the last stay whole (set_requires_gradient_sync)
  bool wrap_embedding = false;     // a group of its own for the input embedding
  bool checkpoint_inside = false;  // checkpoint_wrapper under fully_shard, not around it
  bool keep_last = false;          // the last group stays whole after forward: backward begins with it
  bool longest_list = false;       // of several lists of blocks (encoder, decoder) only the longest is wrapped

  int64_t shards() const { return world / replicas; }
};

// torch.distributed.tensor.parallel: parallelize_module with Colwise- and RowwiseParallel, as torchtitan's and transformers' plans.
struct TensorParallelSettings {
  int64_t world = 1;
  int64_t rank = 0;
  bool sequence = false;       // SequenceParallel: norms and residuals on a part of the sequence
  bool loss_parallel = false;  // the logits stay sharded
};

struct ParallelSettings {
  std::optional<DdpSettings> ddp;
  std::optional<Zero1Settings> zero1;
  std::optional<FsdpSettings> fsdp;
  std::optional<Fsdp1Settings> fsdp1;
  std::optional<DeepSpeedSettings> deepspeed;
  std::optional<TensorParallelSettings> tensor;

  bool any() const { return ddp || zero1 || fsdp || fsdp1 || deepspeed || tensor; }
  int64_t world() const;
  // Ranks that have samples of their own.
  int64_t replicas() const;
  // All micro-steps but the last leave gradients whole.
  bool accumulates_whole_gradients() const { return fsdp ? fsdp->no_sync : fsdp1 && fsdp1->no_sync; }
  // Each rank has a part of every parameter, so that what it counts is not the model.
  bool shards_parameters() const { return fsdp || fsdp1 || tensor || (deepspeed && deepspeed->stage == 3); }
  // How gradients are reduced; none: not by DistributedDataParallel.
  std::optional<DdpSettings> reducer() const;
};

// `value` is a mapping, or text like "world=8,bucket_view=true".
DdpSettings parse_ddp(const nlohmann::json& value);
Zero1Settings parse_zero1(const nlohmann::json& value);
FsdpSettings parse_fsdp(const nlohmann::json& value);
TensorParallelSettings parse_tensor_parallel(const nlohmann::json& value);
// Settings that contradict each other.
void check(const ParallelSettings& parallel, Problems& out);

nlohmann::ordered_json to_json(const DdpSettings& d);
nlohmann::ordered_json to_json(const Zero1Settings& z);
nlohmann::ordered_json to_json(const FsdpSettings& f);
nlohmann::ordered_json to_json(const TensorParallelSettings& t);
std::string to_string(const ParallelSettings& p);  // "DDP on 8", "ZeRO-1 rank 0 of 8"; empty for one process

}  // namespace plimsoll
