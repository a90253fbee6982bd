#include "nn/masking.h"

#include <functional>

#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// `if tensor.all():` where a real run reads true.
bool reads_true(const Tensor& x) {
  all(x);
  return x.tape().dialect.item.value_or(1) != 0;
}

// find_packed_sequence_indices: looks for restarts in the positions and reads one value back. Undefined: there are none.
Tensor packed_sequences(const Tensor& position_ids, int64_t batch) {
  const Tensor ids = expand(position_ids, {batch, -1});
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
  return reads_true(compare_scalar("eq", select(packed, 1, -1))) ? Tensor() : packed;
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

Tensor causal(const Grid& at, const MaskArgs& args) {
  auto past = [&] { return compare("le", at.k, at.q); };
  if (!args.sliding_window) return past();
  auto near = [&] { return compare("gt", at.k, nondiff("sub", at.q, DType::int64)); };
  return and_masks(at.q.tape(), {near, past});
}

Tensor unpadded(const Grid& at, const MaskArgs& args, const Tensor& packed) {
  if (!packed) return causal(at, args);
  auto same_sequence = [&] {
    const Tensor of_query = index(packed, {at.batch, at.q});
    return compare("eq", of_query, index(packed, {at.batch, at.k}));
  };
  return and_masks(packed.tape(), {[&] { return causal(at, args); }, same_sequence});
}

// sdpa_mask: which keys each query sees, by broadcasting index ranges: (1 or B, 1, queries, keys), expanded over the batch.
Tensor visible(Tape& tape, const MaskArgs& args, const Tensor& packed, const Tensor& padding) {
  const Tensor batch = arange(tape, args.batch), head = arange(tape, 1);
  const Tensor q = indices(tape, args.queries), k = indices(tape, args.keys);
  const Grid at{view(batch, {-1, 1, 1, 1}), view(head, {1, -1, 1, 1}), view(q, {1, 1, -1, 1}), view(k, {1, 1, 1, -1})};
  auto pattern = [&] { return unpadded(at, args, packed); };
  const Tensor keep = padding ? and_masks(tape, {pattern, [&] { return index(padding, {at.batch, at.k}); }}) : pattern();
  return expand(keep, {args.batch, -1, args.queries, args.keys});
}

}  // namespace

Tensor create_causal_mask(Build& build, const MaskArgs& args) {
  Tape& tape = build.tape;
  const bool eager = build.eager() || args.only_eager;
  const Tensor padding = args.attention_mask ? nondiff("_to_copy", args.attention_mask, DType::bool_) : Tensor();
  const Tensor packed = args.position_ids && !padding && !build.cache ? packed_sequences(args.position_ids, args.batch) : Tensor();
  const bool local = args.sliding_window && args.keys >= *args.sliding_window;
  if (!eager && !packed && args.queries == args.keys && !local && (!padding || reads_true(padding))) return {};
  const Tensor keep = visible(tape, args, packed, padding);
  if (!eager) return keep;
  const Tensor zero = filled(tape, "empty", {}, args.dtype), lowest = filled(tape, "scalar_tensor", {}, args.dtype);
  return where(keep, zero, lowest);
}

}  // namespace plimsoll
