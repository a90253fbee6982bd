// The tensors of a model's weights, as the headers of their files list them. The data itself is never read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll {

struct WeightTensor {
  std::string name;            // "model.layers.0.self_attn.q_proj.weight"
  std::string dtype;           // as its file calls it: "BF16", "Q4_K"
  std::vector<int64_t> shape;  // rows first, as PyTorch has it
  int64_t elements = 0;        // their product
  int64_t bytes = 0;           // in the file
};

// Any of: a safetensors or GGUF file, the index of several, a directory that holds one of these. Throws an Error for what is none,
// for shards that are missing, and for a name that two shards have.
std::vector<WeightTensor> read_weights(const std::string& path);

// Where read_weights would find those of a model whose configuration is in `folder`; empty: nowhere.
std::string weights_beside(const std::string& folder);

// "7.25 billion parameters, BF16": elements that are numbers of a model, and the type most of them have.
std::string summary(const std::vector<WeightTensor>& tensors);

// What a run is told of a name from a file: throws for one that no module or terminal should be given.
void check_tensor_name(const std::string& name, const std::string& file);

}  // namespace plimsoll
