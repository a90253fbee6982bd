#include "nn/masking.h"

#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// find_packed_sequence_indices: looks for restarts in the positions and reads one value back.
void look_for_packing(const Tensor& position_ids, int64_t batch) {
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
  all(compare_scalar("eq", select(packed, 1, -1)));
}

Tensor indices(Tape& tape, int64_t n) { return nondiff("add", arange(tape, n), DType::int64); }

// Which keys each query sees, by broadcasting index ranges: (1, 1, queries, keys), expanded over the batch.
Tensor visible(Tape& tape, const MaskArgs& args) {
  const Tensor batch = arange(tape, args.batch), head = arange(tape, 1);
  const Tensor q = view(indices(tape, args.queries), {1, 1, -1, 1});
  const Tensor k = view(indices(tape, args.keys), {1, 1, 1, -1});
  Tensor keep;
  if (args.sliding_window) {
    keep = filled(tape, "new_ones", {}, DType::bool_);
    {
      const Tensor near = compare("gt", k, nondiff("sub", q, DType::int64));
      keep = compare("bitwise_and", keep, near);
    }
    const Tensor past = compare("le", k, q);
    keep = compare("bitwise_and", keep, past);
  } else {
    keep = compare("le", k, q);
  }
  return expand(keep, {args.batch, -1, args.queries, args.keys});
}

}  // namespace

Tensor create_causal_mask(Build& build, const MaskArgs& args) {
  Tape& tape = build.tape;
  const bool eager = build.eager() || args.only_eager;
  if (args.position_ids) look_for_packing(args.position_ids, args.batch);
  const bool skip = args.queries == args.keys && (!args.sliding_window || args.keys < *args.sliding_window);
  if (!eager && skip) return {};
  Tensor keep = visible(tape, args);
  if (!eager) return keep;
  const Tensor zero = filled(tape, "empty", {}, args.dtype), lowest = filled(tape, "scalar_tensor", {}, args.dtype);
  return where(keep, zero, lowest);
}

Tensor create_bidirectional_mask() { return {}; }

}  // namespace plimsoll
