// What transformers models share around attention and the language-model loss.
#pragma once

#include "job/config.h"
#include "nn/module.h"

namespace plimsoll {

struct AttentionCall {
  Tensor mask;
  double dropout = 0.0;
  bool causal = true;
  int64_t kv_groups = 1;         // query heads per key/value head
  bool has_kv_groups = true;     // the module knows num_key_value_groups
  double softcap = 0.0;          // gemma2's eager attention: scores through tanh
  bool softmax_fp32 = true;      // eager: softmax(..., dtype=float32)
  bool cast_weights = true;      // eager: without softmax_fp32, a cast to the type of the query follows
  bool contiguous_eager = true;  // eager: the result is made contiguous
  bool clamps_scores = false;    // eager: torch.max(scores, the lowest number) after the mask
  bool caches = true;            // false: the caller has put keys and values into the cache
};

// transformers.integrations.sdpa_attention / the models' eager_attention_forward, by the dialect.
// q: (B, H, T, D), k, v: (B, KV, T, D); returns (B, T, H, D). Eager attention also gives its weights, which callers in
// Python keep until they return; they stay undefined under SDPA.
Tensor attention(Build& build, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call, Tensor* weights = nullptr);
Tensor repeat_kv(const Tensor& x, int64_t groups);

// Throws when the configuration asks for every layer's states in the output: they would be kept.
void reject_captured_outputs(const Config& config);

// position_ids of a fresh sequence: (1, T)
Tensor position_ids(Tape& tape, int64_t tokens);

Tensor activation(std::string_view name, const Tensor& x);  // transformers' ACT2FN; throws for an unknown name

// Losses; undefined without labels.
// ForCausalLMLoss: fp32 logits, labels shifted by padding.
Tensor causal_lm_loss(const Tensor& logits, const Tensor& labels);
// ForMaskedLMLoss and sequence classification: fp32 logits against labels of the same leading shape.
Tensor flat_cross_entropy(const Tensor& logits, const Tensor& labels, bool upcast);

}  // namespace plimsoll
