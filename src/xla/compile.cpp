#include "xla/compile.h"

#include <algorithm>

#include "xla/arena.h"
#include "xla/builder.h"

namespace plimsoll {

namespace {

constexpr int64_t kAlignment = 256;  // kXlaAllocatedBufferAlignBytes

struct Packed {
  XlaBuffers buffers;
  Arena arena;
  size_t stored = 0;
};

Packed packed(const XlaProgram& program, FusionDegree degree, const Job& job, DeviceKind device, TileRows rows) {
  const Fusion fusion = fuse(program, degree);
  Packed p;
  p.buffers = buffers_of(program, fusion, job.program.jax.donate, device, rows);
  p.arena = pack(p.buffers.temporaries, kAlignment);
  p.stored = static_cast<size_t>(std::count(fusion.stored.begin(), fusion.stored.end(), true));
  return p;
}

// Arguments, and temporaries in one heap with outputs that take no place before they are written.
int64_t least_program(const Packed& p) {
  std::vector<XlaBuffer> all = p.buffers.temporaries;
  all.insert(all.end(), p.buffers.outputs.begin(), p.buffers.outputs.end());
  return checked_add(p.buffers.argument_bytes, pack(all, kAlignment).bytes);
}

int64_t residuals_of(const XlaProgram& program, const std::vector<XlaBuffer>& temporaries) {
  OpId derivative = 0;
  while (derivative + 1 < program.ops.size() && program.ops[derivative].phase == Phase::forward) ++derivative;
  int64_t sum = 0;
  for (const XlaBuffer& b : temporaries)
    if (b.begin < derivative && b.end >= derivative) sum = checked_add(sum, b.bytes);
  return sum;
}

// Writes a program's buffers as a trace: phases follow one another, whatever order the updates run in.
class TraceWriter {
 public:
  TraceWriter(Trace names, const XlaProgram& program) : trace_(std::move(names)), program_(program) {
    trace_.storages.clear();
    trace_.events.clear();
  }

  Trace write(const XlaBuffers& buffers) {
    begin(Phase::setup);
    for (const XlaBuffer& b : buffers.arguments) alloc(b);
    trace_.events.push_back({Event::Kind::step, 0, 0});
    begin(Phase::forward);
    for (const XlaBuffer& b : buffers.outputs) alloc(b);
    std::vector<std::vector<StorageId>> dying(program_.ops.size() + 1);
    size_t next = 0;
    const std::vector<XlaBuffer>& temporaries = buffers.temporaries;  // in the order of their ops
    for (OpId op = 1; op < program_.ops.size(); ++op) {
      if (phase_ != last_phase(op)) begin(last_phase(op));
      for (; next < temporaries.size() && temporaries[next].begin == op; ++next)
        if (temporaries[next].bytes > 0) dying[temporaries[next].end].push_back(alloc(temporaries[next]));
      for (const StorageId id : dying[op]) trace_.events.push_back({Event::Kind::free, 0, id});
    }
    return std::move(trace_);
  }

 private:
  void begin(Phase p) {
    phase_ = p;
    trace_.events.push_back({Event::Kind::phase, static_cast<uint8_t>(p), 0});
  }

  StorageId alloc(const XlaBuffer& b) {
    const XlaOp& op = program_.ops[b.op];
    const auto id = static_cast<StorageId>(trace_.storages.size());
    trace_.storages.push_back({b.bytes, trace_.intern(op.name), op.scope, op.category, phase_});
    trace_.shapes.push_back(trace_.intern(to_string(op.sizes) + " " + std::string(dtype_name(op.dtype))));
    trace_.events.push_back({Event::Kind::alloc, 0, id});
    return id;
  }

  // An update between ops of the derivative is part of it.
  Phase last_phase(OpId op) const {
    if (last_backward_ == 0)
      for (OpId i = 1; i < program_.ops.size(); ++i)
        if (program_.ops[i].phase == Phase::backward) last_backward_ = i;
    const Phase own = program_.ops[op].phase;
    return own == Phase::optimizer && op < last_backward_ ? Phase::backward : own;
  }

  Trace trace_;
  const XlaProgram& program_;
  Phase phase_ = Phase::setup;
  mutable OpId last_backward_ = 0;
};

void add_up_arguments(XlaMemory& m, const XlaProgram& program, const Packed& p) {
  std::vector<bool> replaced(program.ops.size(), false);
  for (const XlaOutput& o : program.outputs) replaced[o.replaces] = true;
  for (const XlaBuffer& b : p.buffers.arguments) {
    const XlaOp& op = program.ops[b.op];
    (op.category == Category::parameter ? m.parameter_bytes : op.category == Category::input ? m.batch_bytes : m.state_bytes) += b.bytes;
    m.argument_padding += b.bytes - device_bytes(op.sizes, op.dtype, DeviceKind::gpu);
    m.argument_sizes.push_back(b.bytes);
    m.is_state.push_back(replaced[b.op]);
  }
  for (const XlaBuffer& b : p.buffers.outputs) m.output_sizes.push_back(b.bytes);
}

}  // namespace

XlaMemory compile(const Job& job, DeviceKind device) {
  RecordedForward forward = record_forward(job);
  XlaMemory m;
  m.device = device;
  m.parameters = forward.parameters;
  m.trainable = forward.trainable;
  m.sample = forward.sample;
  m.parameter_list = forward.parameter_list;
  std::optional<Packed> best;
  XlaProgram best_program;
  int64_t least = INT64_MAX, low = INT64_MAX, high = 0;
  for (const UpdateOrder order : {UpdateOrder::early, UpdateOrder::late}) {
    XlaProgram program = ProgramBuilder(forward, job, order).build();
    Packed usual = packed(program, FusionDegree::usual, job, device, TileRows::eight);
    const Packed most = packed(program, FusionDegree::most, job, device, TileRows::eight);
    low = std::min({low, most.arena.bytes, usual.arena.bytes});
    least = std::min({least, least_program(most), least_program(usual)});
    high = std::max(high, packed(program, FusionDegree::least, job, device, TileRows::packed).arena.bytes);
    if (best && best->arena.bytes <= usual.arena.bytes) continue;
    best = std::move(usual);
    best_program = std::move(program);
  }
  m.arguments = best->buffers.argument_bytes;
  m.outputs = best->buffers.output_bytes;
  m.aliased = best->buffers.aliased_bytes;
  const int64_t fixed = checked_add(m.arguments, m.outputs - m.aliased);
  m.temporaries = {best->arena.bytes, low, std::max(high, best->arena.bytes)};
  m.program = {checked_add(fixed, m.temporaries.usual), std::min(least, checked_add(fixed, low)), checked_add(fixed, m.temporaries.high)};
  m.residuals = residuals_of(best_program, best->buffers.temporaries);
  m.packing = best->arena.bytes - peak_of(best->buffers.temporaries);
  for (const XlaBuffer& b : best->buffers.temporaries)
    m.temporary_padding += b.bytes - device_bytes(best_program.ops[b.op].sizes, best_program.ops[b.op].dtype, DeviceKind::gpu);
  m.ops = static_cast<size_t>(std::count(best_program.used.begin(), best_program.used.end(), true));
  m.stored = best->stored;
  add_up_arguments(m, best_program, *best);
  m.trace = TraceWriter(std::move(forward.trace), best_program).write(best->buffers);
  return m;
}

Trace allocator_trace(const XlaMemory& m, int64_t temporaries) {
  Trace t;
  auto alloc = [&](int64_t bytes, std::string_view name, Category category, Phase phase) {
    t.storages.push_back({bytes, t.intern(name), 0, category, phase});
    t.events.push_back({Event::Kind::alloc, 0, static_cast<StorageId>(t.storages.size() - 1)});
    return static_cast<StorageId>(t.storages.size() - 1);
  };
  auto free = [&](StorageId id) { t.events.push_back({Event::Kind::free, 0, id}); };
  t.events.push_back({Event::Kind::phase, static_cast<uint8_t>(Phase::setup), 0});
  std::vector<StorageId> state;
  for (size_t i = 0; i < m.argument_sizes.size(); ++i) {
    if (m.argument_sizes[i] == 0) continue;
    const StorageId id = alloc(m.argument_sizes[i], "argument", m.is_state[i] ? Category::parameter : Category::input, Phase::setup);
    if (m.is_state[i]) state.push_back(id);
  }
  for (int step = 0; step < 2; ++step) {
    t.events.push_back({Event::Kind::step, 0, 0});
    t.events.push_back({Event::Kind::phase, static_cast<uint8_t>(Phase::forward), 0});
    std::vector<StorageId> results;
    for (const int64_t bytes : m.output_sizes)
      if (bytes > 0) results.push_back(alloc(bytes, "output", Category::parameter, Phase::forward));
    if (temporaries > 0) free(alloc(temporaries, "temporaries", Category::activation, Phase::forward));
    if (m.aliased > 0) continue;                // the state is where it was
    for (const StorageId id : state) free(id);  // the caller's old state
    state = std::move(results);
  }
  return t;
}

}  // namespace plimsoll
