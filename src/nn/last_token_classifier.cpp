#include "nn/last_token_classifier.h"

#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

LastToken::LastToken(const Tensor& logits, const Tensor& input_ids, bool has_padding_token) {
  Tape& tape = logits.tape();
  if (!has_padding_token) {
    if (logits.size(0) != 1)
      throw Error("[classifier] a batch of " + std::to_string(logits.size(0)) + " needs a pad_token_id to find each last token",
                  "set pad_token_id, or a batch of 1");
    pooled_logits = index(select(logits, 1, -1), {arange(tape, 1)});
    return;
  }
  non_pad_mask = nondiff("_to_copy", compare_scalar("ne", input_ids), DType::int32);  // (B, T)
  token_indices = arange(tape, input_ids.size(1), DType::int32);                      // (T)
  {
    const Tensor places = nondiff("mul", non_pad_mask, DType::int32);                // (B, T)
    last_non_pad_token = filled(tape, "argmax", {input_ids.size(0)}, DType::int64);  // (B)
  }
  pooled_logits = index(logits, {arange(tape, logits.size(0)), last_non_pad_token});
}

}  // namespace plimsoll
