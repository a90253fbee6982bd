// What a family is for Megatron-LM unless its configuration says otherwise: that of its class in transformers 5.12. Of numbers, 0 is none.
#pragma once

#include <cstdint>

namespace plimsoll {

struct MegatronDefaults {
  bool gated = false, rope = false, rms = false, tied = false, bias = false, qkv_bias = false, qk_norm = false;
  int64_t layers = 32, hidden = 4096, heads = 32, groups = 0, ffn = 11008, vocab = 32000, head_dim = 0, positions = 2048;
  int64_t experts = 0, top_k = 2, expert_ffn = 0;
  int64_t shared_experts = 0, dense_layers = 0;  // the dense ones come first
  int64_t kv_rank = 0, q_rank = 0;               // keys and values from one narrow product
};

}  // namespace plimsoll
