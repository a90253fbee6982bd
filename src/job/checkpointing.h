// Which activations are not kept but made again in backward: torch.utils.checkpoint, as libraries configure it. Plain data;
// nn/blocks.h acts on it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll {

// Where what is kept for backward goes, if not to the device.
enum class Offload : uint8_t { none, pageable, pinned };

// torchao's CPUOffloadOptimizer: states, and perhaps gradients, on the host.
struct OptimizerOffload {
  bool gradients = false;
};

struct Checkpointing {
  bool on = false;
  int64_t every = 1;                 // the k-th block, the 2k-th, ..., as torchtitan counts
  std::vector<std::string> modules;  // instead of blocks: (ends of) names of modules
  bool reentrant = false;
  std::vector<std::string> save;  // selective: aten ops whose results are kept; "mm/2": every second
};

// What `save: matmuls` stands for: the products that cost time, attention and convolution.
const std::vector<std::string>& matmul_ops();

// true or full, false or none, a mapping {every, modules, reentrant, save}, or its text "every=2,modules=mlp+self_attn".
Checkpointing parse_checkpointing(const nlohmann::json& value);
nlohmann::ordered_json to_json(const Checkpointing& c);  // what parse_checkpointing reads
std::string to_string(const Checkpointing& c);           // "checkpointing of every 2nd block"; empty when off

// true is pinned.
Offload parse_offload(const nlohmann::json& value, const std::string& source);
const char* to_string(Offload m);
// true, false, {gradients: true} or "gradients=true".
std::optional<OptimizerOffload> parse_optimizer_offload(const nlohmann::json& value);

}  // namespace plimsoll
