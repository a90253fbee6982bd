// transformers.masking_utils: whether a mask is made at all, and what making it allocates.
#pragma once

#include "nn/module.h"

namespace plimsoll {

struct MaskArgs {
  int64_t batch = 1, queries = 1, keys = 1;
  DType dtype = DType::float32;           // of the embeddings: eager masks are additive in this type
  Tensor position_ids;                    // checked for packed sequences when given, unless there is a cache
  std::optional<int64_t> sliding_window;  // keys a query may look back
  bool only_eager = false;                // the model has no SDPA attention: its mask is additive under every kernel
  Tensor attention_mask = {};             // (B, T); undefined: the batch's own, if it has one
  bool ignores_batch = false;             // the batch's mask is not about these tokens (a decoder behind an encoder)
  std::optional<int64_t> chunk = {};      // a query sees keys of its own chunk only
};

// Undefined when the attention kernel can do without a mask. Bool for SDPA, additive for eager attention.
// What flash-attention-2 gets is the padding itself, (B, T), as bools.
Tensor create_causal_mask(Build& build, const MaskArgs& args);
// Every token sees every other but padding, within a window to both sides where one is given: undefined without either.
Tensor create_bidirectional_mask(Build& build, const MaskArgs& args);

}  // namespace plimsoll
