// Rotary position embeddings as transformers computes them.
#pragma once

#include "job/config.h"
#include "nn/module.h"

namespace plimsoll {

struct CosSin {
  Tensor cos, sin;  // (B or 1, T, D)
};

// What a configuration says about rotary embeddings, as far as memory goes: bases and factors do not matter.
struct RopeSettings {
  int64_t dim = 128;  // how much of a head is rotated
  std::string type = "default";
  int64_t max_position_embeddings = 2048;           // "dynamic" makes new frequencies beyond it
  int64_t original_max_position_embeddings = 2048;  // "longrope" makes new frequencies beyond it
  bool interleaved = false;                         // neighbours are turned: each frequency stands twice in a row
  bool halved = false;                              // each frequency stands once in the tables
  bool complex = false;                             // one table of complex numbers, `cos`
  bool fp32_tables = false;                         // the tables stay in fp32
  bool whole_factor = false;                        // "dynamic": the factor is an integer, and so is its product with a length
};

// What a model's class knows: its defaults, and whether it can rotate a part of each head only.
struct RopeDefaults {
  int64_t head_dim, max_position_embeddings;
  std::optional<double> partial_rotary_factor = {};   // empty: whole heads
  const char* partial_key = "partial_rotary_factor";  // its name outside of rope_parameters
  std::vector<std::string> types = {"default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"};
};

// Reads rope_parameters, or rope_scaling, its old name.
RopeSettings rope_settings(const Config& config, const RopeDefaults& defaults);

// LlamaRotaryEmbedding: fp32 tables, made anew in every forward, cast to the type of x.
struct RotaryEmbedding : Module {
  RotaryEmbedding(Module& parent, std::string_view name, const RopeSettings& settings);
  CosSin operator()(const Tensor& x, const Tensor& position_ids);

  RopeSettings settings;
  Tensor inv_freq, original_inv_freq;

 private:
  void update_frequencies(const Tensor& position_ids);
  Tensor dynamic_frequencies(const Tensor& seq_len) const;
  Tensor longrope_frequencies() const;
  bool is_longer(const Tensor& position_ids, int64_t limit) const;
  Tensor max_seq_len_cached_;
};

Tensor rotate_half(const Tensor& x);
Tensor rotate_every_two(const Tensor& x);  // the same for neighbours
// x * cos + rotate_half(x) * sin
Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin);
// x * cos + rotate_every_two(x) * sin
Tensor rotate_neighbours(const Tensor& x, const Tensor& cos, const Tensor& sin);
// Numbers of x taken in pairs as complex ones: (..., D) -> (..., D/2)
Tensor in_complex_pairs(const Tensor& x);
// A pair of halves turned: first * cos - second * sin and second * cos + first * sin, joined
Tensor rotate_pair(const Tensor& first, const Tensor& second, const Tensor& cos, const Tensor& sin);
// q, k: (B, H, T, D)
std::pair<Tensor, Tensor> apply_rotary_pos_emb(const Tensor& q, const Tensor& k, const CosSin& tables);

}  // namespace plimsoll
