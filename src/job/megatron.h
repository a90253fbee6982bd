// Megatron-LM (megatron.core with Transformer Engine): how a job is spread over the ranks of its world, and which of its kernels run.
// Plain data; model/megatron.h and step/megatron_step.h act on it. What is simulated is one rank.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "util/error.h"

namespace plimsoll {

enum class MegatronAttention : uint8_t { fused, flash, unfused };  // cuDNN's by Transformer Engine, flash-attention 2, matrix products

struct MegatronSettings {
  int64_t world = 1;
  int64_t tensor = 1;          // tensor-model-parallel-size
  int64_t pipeline = 1;        // pipeline-model-parallel-size
  int64_t virtual_stages = 1;  // chunks of layers a stage has: above 1, interleaved 1F1B
  int64_t context = 1;         // context-parallel-size
  int64_t expert = 1;          // expert-model-parallel-size
  int64_t expert_tensor = 0;   // expert-tensor-parallel-size; 0: as tensor
  bool sequence = false;       // sequence-parallel
  bool distributed_optimizer = true;
  bool overlap = false;              // overlap-grad-reduce: gradients in buckets
  bool fused_gradients = true;       // gradient-accumulation-fusion
  bool fused_loss = false;           // cross-entropy-loss-fusion by Transformer Engine
  bool fused_residual = true;        // bias-dropout-fusion
  bool local = false;                // transformer-impl local: PyTorch's own layers
  bool all_to_all = false;           // cp-comm-type a2a, else p2p
  bool attention_mask = false;       // the loader makes a mask for every sample
  std::vector<int64_t> layers = {};  // of every stage (of every chunk, when interleaved); empty: equal parts
  std::optional<int64_t> stage;      // none: every stage is simulated, and the largest is the answer
  MegatronAttention attention = MegatronAttention::fused;

  int64_t data() const { return world / (tensor * pipeline * context); }
  // Over how many the distributed optimizer spreads its states.
  int64_t shards() const { return data() * context; }
  int64_t expert_tensor_size() const { return expert_tensor > 0 ? expert_tensor : tensor; }
  int64_t expert_shards() const { return world / (expert * expert_tensor_size() * pipeline); }
};

// `value` is a mapping, or text like "world=8,tensor=2,pipeline=2".
MegatronSettings parse_megatron(const nlohmann::json& value);
nlohmann::ordered_json to_json(const MegatronSettings& m);
std::string to_string(const MegatronSettings& m);  // "Megatron, tensor 8 x pipeline 16 x data 8"

}  // namespace plimsoll
