// A decoder with rotary positions, described by fields: its sizes, and a policy for each part that families make differently. A policy is a
// function or a small struct, so that a family's own norm, rotation or feed-forward is one more value. The defaults are Llama's.
#pragma once

#include "nn/layers.h"
#include "nn/rotary.h"

namespace plimsoll {

struct DecoderConfig;

// How a body calls its parts in Python.
struct StackNames {
  const char* embed = "embed_tokens";
  const char* layers = "layers";
  const char* norm = "norm";
};

// Norms of a layer, by their names in Python; null: none in that place.
struct NormNames {
  const char* before_attention = "input_layernorm";
  const char* after_attention = nullptr;
  const char* before_mlp = "post_attention_layernorm";
  const char* after_mlp = nullptr;
};
inline constexpr NormNames kNormsAfter{nullptr, "post_attention_layernorm", nullptr, "post_feedforward_layernorm"};
inline constexpr NormNames kNormsAround{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                                        "post_feedforward_layernorm"};
inline constexpr NormNames kOneNorm{"input_layernorm", nullptr, nullptr, nullptr};

using MakeNorm = std::unique_ptr<UnaryModule> (*)(Module& parent, std::string_view name, int64_t width);
template <class Norm>
std::unique_ptr<UnaryModule> norm_of(Module& parent, std::string_view name, int64_t width) {
  return std::make_unique<Norm>(parent, name, width);
}

// Norms of queries and keys.
using MakeHeadNorm = std::unique_ptr<UnaryModule> (*)(Module& parent, std::string_view name, int64_t heads, int64_t head_dim);
struct HeadNorms {
  MakeHeadNorm make = nullptr;  // null: none
  const char *query = "q_norm", *key = "k_norm";
  bool last = false;  // once all heads are turned; else as soon as they are made
};
template <class Norm>  // the same weights for every head
std::unique_ptr<UnaryModule> norm_of_a_head(Module& parent, std::string_view name, int64_t, int64_t head_dim) {
  return std::make_unique<Norm>(parent, name, head_dim);
}
template <class Norm>  // over all heads at once
std::unique_ptr<UnaryModule> norm_of_all_heads(Module& parent, std::string_view name, int64_t heads, int64_t head_dim) {
  return std::make_unique<Norm>(parent, name, heads * head_dim);
}

// The order of the lines that make queries, keys and values, which is also the order of backward. (B, T, H D) are split into (B, T, H, D)
// and turned into (B, H, T, D).
enum class HeadOrder : uint8_t {
  in_turn,         // each is projected, split, normed and turned before the next
  project_first,   // all are projected, and normed whole, before any is split
  turn_last,       // all are split, then normed, then turned
  one_projection,  // all come from one layer, and are cut out of its result
};

// Queries and keys with their positions.
struct Rotated {
  Tensor q, k;        // (B, H, T, D)
  Tensors kept = {};  // what Python's names hold until attention returns
};
using Rotary = Rotated (*)(const Tensor& q, const Tensor& k, const CosSin& tables);
Rotated rotate_heads(const Tensor& q, const Tensor& k, const CosSin& tables);          // apply_rotary_pos_emb
Rotated rotate_heads_in_fp32(const Tensor& q, const Tensor& k, const CosSin& tables);  // by tables in fp32, and back to the type of q and k
Rotated rotate_part_of_heads(const Tensor& q, const Tensor& k, const CosSin& tables);  // as many numbers as the tables have; others pass
Rotated rotate_part_in_attention(const Tensor& q, const Tensor& k, const CosSin& tables);  // the same, in lines of attention itself
// The first numbers of each head turn by (B, 1, T, D) tables, the others pass; both results are joined last.
Rotated rotate_parts(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin,
                     Tensor (*turn)(const Tensor& x, const Tensor& cos, const Tensor& sin));

// From the configuration and the layer's number.
using MakeFeedForward = std::unique_ptr<UnaryModule> (*)(Module& parent, std::string_view name, const DecoderConfig& config, size_t layer);
std::unique_ptr<UnaryModule> gated_mlp(Module& parent, std::string_view name, const DecoderConfig& config, size_t layer);
std::unique_ptr<UnaryModule> fused_gated_mlp(Module& parent, std::string_view name, const DecoderConfig& config, size_t layer);

using MakeEmbedding = std::unique_ptr<Embedding> (*)(Module& parent, std::string_view name, int64_t rows, int64_t width);
template <class Embed>
std::unique_ptr<Embedding> embedding_of(Module& parent, std::string_view name, int64_t rows, int64_t width) {
  return std::make_unique<Embed>(parent, name, rows, width);
}

// What attention and feed-forward give goes through dropouts of these names before it is added.
struct BranchDropouts {
  const char *attention = nullptr, *mlp = nullptr;  // null: none
  double p = 0.0;
};

struct DecoderConfig {
  StackNames names;
  int64_t vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008, num_hidden_layers = 32;
  int64_t num_attention_heads = 32;
  int64_t num_key_value_heads = 0;  // 0: as many as query heads
  int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  bool qkv_bias = false, o_bias = false, mlp_bias = false, tie_word_embeddings = false;
  std::string hidden_act = "silu";

  // Layers.
  MakeNorm norm = norm_of<RMSNorm>;
  NormNames norm_names;
  MakeFeedForward feed_forward = gated_mlp;
  bool parallel = false;         // attention and feed-forward read the same norm and are added together
  bool scales_branches = false;  // what attention and feed-forward give is scaled before it is added
  BranchDropouts branch_dropouts;

  // Attention.
  HeadOrder head_order = HeadOrder::in_turn;
  HeadNorms qk_norm;
  const char* out_proj = "o_proj";
  bool clips_qkv = false;  // clamp_, once all are projected (HeadOrder::project_first)
  bool causal = true;
  bool softcap = false;                                  // eager attention: scores through tanh
  double attention_dropout = 0.0, output_dropout = 0.0;  // of the weights, and of what out_proj gives
  RopeSettings rope;
  std::optional<RopeSettings> local_rope;  // layers with a window have tables of their own
  Rotary rotary = rotate_heads;
  std::vector<bool> rotates;              // by layer; empty: all
  bool full_mask = true;                  // some layers attend to everything
  std::optional<int64_t> sliding_window;  // some layers attend to a window
  std::vector<bool> sliding_layer;        // by layer; empty: all full, or all sliding when full_mask is off
  bool slides(size_t layer) const { return sliding_layer.empty() ? !full_mask : sliding_layer[layer]; }

  // Embeddings and logits.
  MakeEmbedding embedding = embedding_of<Embedding>;
  bool scales_embeddings = false;
  double embed_dropout = 0.0;
  Tensor (*finish_logits)(const Build& build, Tensor logits) = nullptr;  // null: as the head gives them
  bool caps_logits = false;                                              // through tanh
};

// Reads what all of them share over the class defaults in `d`: sizes, heads, dropout, tied weights.
void read_decoder_config(const Config& config, DecoderConfig& d);
// Which layers have a sliding window by layer_types, or `fallback` where it is absent.
std::vector<bool> sliding_layers(const Config& config, std::vector<bool> fallback);
// All layers but each pattern-th: what layer_types falls back to.
std::vector<bool> all_but_each(int64_t pattern, int64_t layers);
// sliding_window with the default of its class; null switches it off.
std::optional<int64_t> sliding_window(const Config& config, std::optional<int64_t> fallback);
// One mask for all layers: with the window where there is one.
void read_window_of_all_layers(const Config& config, DecoderConfig& d, std::optional<int64_t> fallback);
// Qwen2 and Qwen3: the window must be switched on, and is on from layer max_window_layers unless layer_types says otherwise.
void read_optional_window(const Config& config, DecoderConfig& d);

}  // namespace plimsoll
