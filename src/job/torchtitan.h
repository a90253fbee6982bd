// torchtitan: how its trainer spreads a model over the ranks of a world (FSDP2 x tensor, context and pipeline parallelism of PyTorch), and
// from when its code is. Plain data; model/torchtitan.h and step/torchtitan_step.h act on it. What is simulated is one rank.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "job/platform.h"
#include "util/error.h"

namespace plimsoll {

// torch.distributed.pipelining, by name. Interleaved wants several chunks on a stage.
enum class PipelineKind : uint8_t { gpipe, one_f_one_b, interleaved };
// fsdp_reshard_after_forward. By default all but the last group, and none in a pipeline.
enum class ReshardPolicy : uint8_t { by_default, always, never };

struct TorchtitanSettings {
  int64_t world = 1;
  int64_t tensor = 1;          // tensor_parallel_degree, always with sequence parallelism
  int64_t pipeline = 1;        // pipeline_parallel_degree
  int64_t virtual_stages = 1;  // chunks of layers a rank has
  int64_t context = 1;         // context_parallel_degree
  int64_t replicas = 1;        // data_parallel_replicate_degree
  int64_t micro_batches = 0;   // of the local batch in a pipeline; 0: one a sample
  PipelineKind schedule = PipelineKind::one_f_one_b;
  ReshardPolicy reshard = ReshardPolicy::by_default;
  bool loss_parallel = true;    // with tensor parallelism the logits stay sharded
  bool gathers_context = true;  // context_parallel_rotate_method allgather, else alltoall
  bool float8 = false;          // float8 linears, all but the head
  bool async_tensor = false;    // enable_async_tensor_parallel
  int64_t loss_chunks = 1;      // pieces of the sequence that the loss is computed on
  std::vector<int64_t> layers =
      {};                        // of every stage (of every chunk, when interleaved); empty: by pipeline_parallel_layers_per_stage's rule
  std::optional<int64_t> stage;  // none: every stage is simulated, and the largest is the answer
  Version version{2025, 11};     // year and month of its code

  int64_t data() const { return world / (tensor * pipeline * context); }
  // Over how many ranks fully_shard spreads a parameter: data and context ranks without the copies.
  int64_t shards() const { return data() * context / replicas; }
  bool pipelined() const { return pipeline > 1; }

  // What changed in its code, by the month that it did.
  bool keeps_logits() const { return version < Version{2024, 6}; }             // `del pred` came with pull 391
  bool casts_in_model() const { return version < Version{2024, 11}; }          // `.float()` went from the model to the loss in 2024-10
  bool expandable_segments() const { return !(version < Version{2024, 11}); }  // run_llama_train.sh, likewise
  bool counts_ends() const { return !(version < Version{2025, 4}); }           // embedding and head count as layers of a split: pull 1103
  bool own_norms() const { return version < Version{2025, 5}; }                // its RMSNorm written out, till pull 1115
  bool wraps_ends() const { return !(version < Version{2025, 8}); }            // groups for the embedding and for the head: pull 1094
  bool keeps_outputs() const { return version < Version{2025, 11}; }           // a pipeline's logits of all micro-batches: till pull 1922
};

// `value` is a mapping, or text like "world=64,tensor=8".
TorchtitanSettings parse_torchtitan(const nlohmann::json& value);
nlohmann::ordered_json to_json(const TorchtitanSettings& t);
std::string to_string(const TorchtitanSettings& t);  // "torchtitan on 64: tensor 8 x data 8"

}  // namespace plimsoll
