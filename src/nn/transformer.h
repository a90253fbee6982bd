// What transformers models share around attention and the language-model loss.
#pragma once

#include <functional>

#include "job/config.h"
#include "nn/module.h"

namespace plimsoll {

struct AttentionCall {
  Tensor mask;
  double dropout = 0.0;
  bool causal = true;
  int64_t kv_groups = 1;         // query heads per key/value head
  bool has_kv_groups = true;     // the module knows num_key_value_groups
  bool softcap = false;          // gemma2's eager attention: scores through tanh
  bool softmax_fp32 = true;      // eager: softmax(..., dtype=float32)
  bool cast_weights = true;      // eager: without softmax_fp32, a cast to the type of the query follows
  bool contiguous_eager = true;  // eager: the result is made contiguous
  bool cast_to_values = false;   // eager: the weights take the type of the values, not of the queries
  bool clamps_scores = false;    // eager: torch.max(scores, the lowest number) after the mask
  bool caches = true;            // false: the caller has put keys and values into the cache
};

// transformers.integrations.sdpa_attention / the models' eager_attention_forward, by the dialect.
// q: (B, H, T, D), k, v: (B, KV, T, D); returns (B, T, H, D). Eager attention also gives its weights, which callers in
// Python keep until they return; they stay undefined under SDPA.
Tensor attention(Build& build, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call, Tensor* weights = nullptr);
// DynamicCache.update, where there is a cache: keys and values joined to what is there (at first nothing), and kept.
void update_cache(Build& build, Tensor& k, Tensor& v);
Tensor soft_cap(Tensor x);  // scores or logits through tanh: x / cap, tanh, * cap
Tensor repeat_kv(const Tensor& x, int64_t groups);

// Throws when the configuration asks for every layer's states in the output: they would be kept.
void reject_captured_outputs(const Config& config);

// Throws when a sequence needs more rows of a table of positions than it has; `key` is the table's setting.
void require_positions(const char* model, int64_t needed, const char* key, int64_t available);

// `if torch.rand([]) < layerdrop`: recorded rows read a constant there, a true one drops every layer. A real run is simulated
// with every layer, which is what it needs at most.
inline bool drops_layer(const Tape& tape) { return tape.dialect.item.value_or(0) != 0; }

// The batch's position_ids, or those of a fresh sequence: (1, T)
Tensor position_ids(const Build& build, int64_t tokens);
// The highest position + 1 in rows of so many tokens: packed samples each begin at 0.
int64_t positions_in(const Build& build, int64_t tokens);

Tensor activation(std::string_view name, const Tensor& x);                       // transformers' ACT2FN; throws for an unknown name
Tensor activation(const Module& owner, std::string_view name, const Tensor& x);  // and under the build's hooks

// transformers.pytorch_utils: `forward` on pieces of so many tokens, joined again; 0: all tokens at once. x: (B, T, C)
Tensor apply_chunking_to_forward(const std::function<Tensor(const Tensor&)>& forward, int64_t chunk_size, const Tensor& x);

// Losses; undefined without labels.
// ForCausalLMLoss: fp32 logits, labels shifted by padding; before 4.49 the logits were shifted, in a copy,
// by some models in their own type.
Tensor causal_lm_loss(const Build& build, const Tensor& logits, const Tensor& labels, bool upcast_before_4_49);
// Logits without the last token against labels without the first: copies of both.
Tensor shifted_cross_entropy(const Tensor& logits, const Tensor& labels);
// ForMaskedLMLoss and sequence classification: fp32 logits against labels of the same leading shape.
Tensor flat_cross_entropy(const Tensor& logits, const Tensor& labels, bool upcast);

}  // namespace plimsoll
