#include "xla/liveness.h"

#include <algorithm>
#include <map>

namespace plimsoll {

namespace {

// A loop may write over what it reads for the last time when both have the same size (HloDataflowAnalysis::
// CanShareOperandBufferWithUser); so may a collective.
bool may_overwrite(const XlaOp& op) { return op.kind == OpKind::elementwise || op.in_place; }

}  // namespace

XlaBuffers buffers_of(const XlaProgram& p, const Fusion& f, bool donate, DeviceKind device, TileRows rows) {
  auto bytes_of = [&](OpId id) { return device_bytes(p.ops[id].sizes, p.ops[id].dtype, device, rows); };
  XlaBuffers out;
  const OpId end = static_cast<OpId>(p.ops.size());
  std::vector<bool> is_output(p.ops.size(), false);
  for (const XlaOutput& o : p.outputs) {
    const int64_t bytes = bytes_of(o.op);
    out.output_bytes = checked_add(out.output_bytes, bytes);
    const bool aliased = donate && o.replaces != 0;
    if (aliased) out.aliased_bytes = checked_add(out.aliased_bytes, bytes);
    if (!is_output[o.op] && !aliased) out.outputs.push_back({o.op, bytes, o.op, end});
    is_output[o.op] = true;
  }
  for (const OpId id : p.arguments) {
    out.arguments.push_back({id, bytes_of(id), 0, end});
    out.argument_bytes = checked_add(out.argument_bytes, out.arguments.back().bytes);
  }
  std::vector<OpId> last(p.ops.size(), 0);
  for (OpId id = 1; id < p.ops.size(); ++id)
    if (f.stored[id])
      for (const OpId from : f.reads[id]) last[from] = id;
  std::vector<bool> overwritten(p.ops.size(), false);
  for (OpId id = 1; id < p.ops.size(); ++id) {
    if (!f.stored[id] || is_output[id] || !may_overwrite(p.ops[id])) continue;
    for (const OpId from : f.reads[id]) {
      if (last[from] != id || !f.stored[from] || is_output[from] || overwritten[from] || bytes_of(from) != bytes_of(id)) continue;
      overwritten[from] = true;
      break;
    }
  }
  for (OpId id = 1; id < p.ops.size(); ++id) {
    if (!f.stored[id] || is_output[id]) continue;
    const OpId until = std::max(last[id], id);
    out.temporaries.push_back({id, bytes_of(id), id, overwritten[id] ? until - 1 : until});
  }
  return out;
}

int64_t peak_of(const std::vector<XlaBuffer>& buffers) {
  std::map<OpId, int64_t> change;
  for (const XlaBuffer& b : buffers) {
    change[b.begin] += b.bytes;
    change[b.end + 1] -= b.bytes;
  }
  int64_t now = 0, peak = 0;
  for (const auto& [at, bytes] : change) peak = std::max(peak, now += bytes);
  return peak;
}

}  // namespace plimsoll
