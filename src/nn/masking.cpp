#include "nn/masking.h"

#include <functional>

#include "nn/model.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// `if tensor.all():` where a real run reads `expected`.
bool reads_all(const Tensor& x, bool expected) {
  all(x);
  return x.tape().dialect.item.value_or(expected) != 0;
}

bool is_padded(const Build& build) { return build.batch && build.batch->shape.padding == Padding::mask; }
// A mask of other tokens than the batch's was made of ones.
bool has_no_padding(const Build& build, const MaskArgs& args) { return args.ignores_batch || !is_padded(build); }
bool is_packed(const Build& build) { return build.batch && build.batch->shape.packed_samples > 0; }

// The (B, T) mask as bools; undefined: there is none.
Tensor padding_of(const Build& build, const MaskArgs& args) {
  Tensor mask = args.attention_mask;
  if (!mask && build.batch && !args.ignores_batch) mask = build.batch->attention_mask;
  return mask ? nondiff("_to_copy", mask, DType::bool_) : Tensor();
}

// find_packed_sequence_indices: looks for restarts in the positions and reads one value back. Undefined: there are none.
Tensor packed_sequences(const Tensor& position_ids, int64_t batch, bool is_packed) {
  const Tensor ids = position_ids.size(0) == batch ? position_ids : expand(position_ids, {batch, -1});
  const Tensor first = nondiff("sub", slice(ids, 1, 0, 1), DType::int64);
  Tensor difference;
  {
    const Tensor joined = cat({first, ids}, -1);
    difference = nondiff("sub", slice(joined, 1, 1, joined.size(1)), DType::int64);
  }
  Tensor packed;
  {
    const Tensor restarts = compare_scalar("ne", difference);
    packed = cumsum(restarts, -1, DType::int64);
  }
  return reads_all(compare_scalar("eq", select(packed, 1, -1)), !is_packed) ? Tensor() : packed;
}

Tensor indices(Tape& tape, int64_t n) { return nondiff("add", arange(tape, n), DType::int64); }

// Index ranges that broadcast over (batch, head, query, key).
struct Grid {
  Tensor batch, head, q, k;
};

// mask(batch, head, q, k) for each of `parts` in turn, joined by &.
Tensor and_masks(Tape& tape, std::initializer_list<std::function<Tensor()>> parts) {
  Tensor keep = filled(tape, "new_ones", {}, DType::bool_);
  for (const std::function<Tensor()>& part : parts) {
    const Tensor more = part();
    keep = compare("bitwise_and", keep, more);
  }
  return keep;
}

// chunked_overlay: (k - left_padding[batch]) // size == (q - left_padding[batch]) // size
Tensor same_chunk(const Grid& at, const Tensor& left_padding) {
  auto chunk_of = [&](const Tensor& at_index) {
    Tensor number;
    {
      const Tensor padding = index(left_padding, {at.batch});
      number = nondiff("sub", expand(at_index, broadcast(at_index.sizes(), padding.sizes())), DType::int64);
    }
    return nondiff("floor_divide", number, DType::int64);
  };
  const Tensor of_key = chunk_of(at.k);
  return compare("eq", of_key, chunk_of(at.q));
}

// create_chunked_causal_mask: chunks begin behind the padding on the left
Tensor left_padding_tokens(Tape& tape, const MaskArgs& args, const Tensor& padding) {
  if (!padding) return filled(tape, "zeros", {args.batch}, DType::int64);
  Tensor empty_so_far;
  {
    const Tensor seen = cumsum(padding, -1, DType::int64);
    const Tensor zeros = nondiff("zeros_like", padding, DType::bool_);
    empty_so_far = compare("eq", seen, zeros);
  }
  return sum(empty_so_far, {-1}, false);
}

Tensor causal(const Grid& at, const MaskArgs& args, const Tensor& left_padding) {
  auto past = [&] { return compare("le", at.k, at.q); };
  if (left_padding) return and_masks(at.q.tape(), {[&] { return same_chunk(at, left_padding); }, past});
  if (!args.sliding_window) return past();
  auto near = [&] { return compare("gt", at.k, nondiff("sub", at.q, DType::int64)); };
  return and_masks(at.q.tape(), {near, past});
}

Tensor bidirectional(const Grid& at, const MaskArgs& args) {
  auto any = [&] { return compare_scalar("ge", at.q); };
  if (!args.sliding_window) return any();
  auto near = [&] {
    Tensor distance = sub(at.q, at.k);
    distance = nondiff("abs", distance, DType::int64);
    return compare_scalar("le", distance);
  };
  return and_masks(at.q.tape(), {near, any});
}

Tensor unpadded(const Grid& at, const MaskArgs& args, const Tensor& packed, const Tensor& left_padding) {
  if (!packed) return causal(at, args, left_padding);
  auto same_sequence = [&] {
    const Tensor of_query = index(packed, {at.batch, at.q});
    return compare("eq", of_query, index(packed, {at.batch, at.k}));
  };
  return and_masks(packed.tape(), {[&] { return causal(at, args, left_padding); }, same_sequence});
}

using Pattern = std::function<Tensor(const Grid&)>;

// sdpa_mask: which keys each query sees, by broadcasting index ranges: (1 or B, 1, queries, keys), expanded over the batch.
Tensor visible(Tape& tape, const MaskArgs& args, const Pattern& pattern, const Tensor& padding) {
  const Tensor batch = arange(tape, args.batch), head = arange(tape, 1);
  const Tensor q = indices(tape, args.queries), k = indices(tape, args.keys);
  const Grid at{view(batch, {-1, 1, 1, 1}), view(head, {1, -1, 1, 1}), view(q, {1, 1, -1, 1}), view(k, {1, 1, 1, -1})};
  auto seen = [&] { return pattern(at); };
  const Tensor keep = padding ? and_masks(tape, {seen, [&] { return index(padding, {at.batch, at.k}); }}) : seen();
  return expand(keep, {args.batch, -1, args.queries, args.keys});
}

// eager_mask: 0 where a token is seen, the lowest number elsewhere.
Tensor additive(const Tensor& keep, DType dtype) {
  const Tensor zero = filled(keep.tape(), "empty", {}, dtype), lowest = filled(keep.tape(), "scalar_tensor", {}, dtype);
  return where(keep, zero, lowest);
}

bool uses_flash_attention_2(const Build& build, const MaskArgs& args) {
  if (build.tape.dialect.attention != AttentionKernel::flash_attention_2) return false;
  if (args.only_eager) throw Error("[attention] flash-attention-2: this model has attention code of its own", "attention: auto");
  return true;
}

// flash_attention_mask: the library takes lengths, so only real padding is of interest.
Tensor flash_mask(const Build& build, const Tensor& padding) {
  return padding && !reads_all(padding, !is_padded(build)) ? padding : Tensor();
}

void reject_packing(const Build& build) {
  if (is_packed(build))
    throw Error("[collate] this model does not keep packed samples apart", "collate: pad, or a causal model that looks at position_ids");
}

}  // namespace

Tensor create_causal_mask(Build& build, const MaskArgs& args) {
  const bool eager = build.eager() || args.only_eager;
  if (!args.position_ids) reject_packing(build);
  const Tensor padding = padding_of(build, args);
  const bool may_pack = args.position_ids && !padding && !build.cache;
  const Tensor packed = may_pack ? packed_sequences(args.position_ids, args.batch, is_packed(build)) : Tensor();
  if (uses_flash_attention_2(build, args)) {
    if (args.chunk && args.keys > *args.chunk)
      throw Error("[attention] flash-attention-2 cannot keep to chunks of " + std::to_string(*args.chunk) + " tokens", "attention: auto");
    return flash_mask(build, padding);
  }
  const Tensor left_padding = args.chunk ? left_padding_tokens(build.tape, args, padding) : Tensor();
  const std::optional<int64_t> span = args.chunk ? args.chunk : args.sliding_window;
  const bool local = span && args.keys >= *span;
  const bool skippable = !eager && !packed && args.queries == args.keys && !local;
  if (skippable && (!padding || reads_all(padding, has_no_padding(build, args)))) return {};
  const Tensor keep = visible(
      build.tape, args, [&](const Grid& at) { return unpadded(at, args, packed, left_padding); }, padding);
  return eager ? additive(keep, args.dtype) : keep;
}

Tensor create_bidirectional_mask(Build& build, const MaskArgs& args) {
  const bool eager = build.eager() || args.only_eager;
  reject_packing(build);
  const Tensor padding = padding_of(build, args);
  if (uses_flash_attention_2(build, args)) return flash_mask(build, padding);
  const bool local = args.sliding_window && args.keys >= *args.sliding_window;
  const bool whole = !padding || reads_all(padding, has_no_padding(build, args));
  if (whole && !local) return {};
  const Tensor keep = visible(
      build.tape, args, [&](const Grid& at) { return bidirectional(at, args); }, padding);
  return eager ? additive(keep, args.dtype) : keep;
}

}  // namespace plimsoll
