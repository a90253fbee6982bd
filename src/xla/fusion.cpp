#include "xla/fusion.h"

#include <algorithm>

namespace plimsoll {

namespace {

struct Readers {
  int64_t count = 0;
  bool matrix_product = false;  // among them
  bool memory = false;          // an opaque op or the caller is among them
  OpId last = 0;
};

bool is_loop(const XlaOp& op) { return op.kind == OpKind::elementwise || op.kind == OpKind::view; }

// Who reads each op, with views passed through.
std::vector<Readers> readers_of(const XlaProgram& p) {
  std::vector<Readers> out(p.ops.size());
  for (const XlaOutput& o : p.outputs) out[o.op].memory = true;
  for (OpId id = static_cast<OpId>(p.ops.size()); id-- > 1;) {
    if (!p.used[id]) continue;
    const XlaOp& op = p.ops[id];
    for (const OpId from : op.operands) {
      Readers& r = out[from];
      if (op.kind == OpKind::view) {
        r.count += out[id].count;
        r.matrix_product |= out[id].matrix_product;
        r.memory |= out[id].memory;
        r.last = std::max(r.last, out[id].last);
      } else {
        ++r.count;
        r.matrix_product |= op.kind == OpKind::dot;
        r.memory |= op.kind == OpKind::opaque;
        r.last = std::max(r.last, id);
      }
    }
  }
  return out;
}

int64_t bytes_of(const XlaOp& op) { return checked_mul(numel(op.sizes), size_of(op.dtype)); }

}  // namespace

Fusion fuse(const XlaProgram& p, FusionDegree degree) {
  const std::vector<Readers> readers = readers_of(p);
  Fusion f;
  f.stored.assign(p.ops.size(), false);
  f.reads.resize(p.ops.size());
  // Reading what it is made of costs no more than reading it; a quarter is for statistics and broadcast rows.
  auto cheap = [&](OpId id) {
    int64_t sum = 0;
    for (const OpId from : f.reads[id]) sum = checked_add(sum, bytes_of(p.ops[from]));
    return sum <= checked_add(bytes_of(p.ops[id]), bytes_of(p.ops[id]) / 4);
  };
  auto alive_anyway = [&](OpId id) {
    return std::all_of(f.reads[id].begin(), f.reads[id].end(),
                       [&](OpId from) { return p.ops[from].kind == OpKind::argument || readers[from].last >= readers[id].last; });
  };
  auto is_stored = [&](OpId id) {
    const XlaOp& op = p.ops[id];
    const Readers& r = readers[id];
    if (op.kind == OpKind::view) return false;
    if (!is_loop(op) || r.memory) return true;
    if (r.matrix_product) return degree != FusionDegree::most || !(cheap(id) || alive_anyway(id));
    if (r.count <= 1) return false;
    return degree == FusionDegree::least ? !f.reads[id].empty() : !cheap(id);
  };
  for (OpId id = 1; id < p.ops.size(); ++id) {
    if (!p.used[id] || p.ops[id].kind == OpKind::argument) continue;
    std::vector<OpId>& reads = f.reads[id];
    for (const OpId from : p.ops[id].operands) {
      if (f.stored[from] || p.ops[from].kind == OpKind::argument) {
        reads.push_back(from);
      } else {
        reads.insert(reads.end(), f.reads[from].begin(), f.reads[from].end());
      }
    }
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    f.stored[id] = is_stored(id);
  }
  return f;
}

}  // namespace plimsoll
