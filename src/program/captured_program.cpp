// A program that was captured: nothing is simulated, its trace is evaluated at the sizes of the job. Batch, sequence length and the other
// symbols, the allocator's settings and the device can differ from the capture; whatever else would be another program.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "job/settings.h"
#include "program/captured.h"
#include "program/program.h"
#include "tensor/kernel_memory.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// Settings of which the program knows nothing, or whose change it can follow.
bool can_differ(const std::string& key) {
  static const std::set<std::string> kFollowed{"model", "batch", "seq", "size", "alloc_conf", "steps", "inputs", "target", "torch"};
  const Setting* s = find_setting(key);
  return kFollowed.contains(key) || key.starts_with("config.") || (s && s->group == SettingGroup::host);
}

// What is as by default changes nothing: job files and answers may name every setting.
bool is_default(const Job& job, const std::string& key) {
  const Setting* s = find_setting(key);
  return s && s->print && s->print(job) == default_of(*s);
}

void check_settings(const Job& job, Problems& out) {
  for (const auto& [key, from] : job.origin)
    if (!can_differ(key) && !is_default(job, key))
      out.push_back({fmt::format("[captured] {} ({}) is decided by the script that was captured", key, printable(from, 60)),
                     "change it there, then capture again: " + capture_command(job)});
  if (job.steps != job.captured->steps())
    out.push_back({fmt::format("[captured] steps {}: the capture has {}", job.steps, job.captured->steps()),
                   fmt::format("capture again with --steps {}", job.steps)});
}

// A pin may come from a number that only the host used, as a count of operations for the log: nothing in the trace tells it from one that
// memory follows.
void check_conditions(const Job& job, Problems& out) {
  const CapturedTrace& t = *job.captured;
  const SymbolSizes sizes = sizes_of(job);
  for (const CapturedCondition* c : t.broken(t.values(sizes)))
    out.push_back({fmt::format("[captured] {}: the program that was captured runs so only while {}, and not at {}",
                               printable(c->where, 120), printable(c->condition.text(), 120), sizes_text(sizes)),
                   (c->pin ? "a size was read there as a number, perhaps by the host alone; it is refused all the same. " : "") +
                       ("capture at that size: " + capture_command(job))});
}

// As far as step times tell kernels apart.
Unit unit_of(const std::string& op) {
  const auto has = [&](const char* part) { return op.find(part) != std::string::npos; };
  if (has("attention")) return Unit::attention;
  if (has("convolution")) return Unit::convolution;
  if (op == "mm" || op == "bmm" || op == "addmm" || op == "baddbmm" || has("grouped_mm")) return Unit::matmul;
  return Unit::memory;
}

DType dtype_named(const std::string& name) {
  for (int d = 0; d <= static_cast<int>(DType::bool_); ++d)
    if (dtype_name(static_cast<DType>(d)) == name) return static_cast<DType>(d);
  return DType::float32;
}

// Without the library's prefix. The text is the capture's, which lives as long as the job.
const char* kernel_name(const std::string& op) { return op.c_str() + (op.starts_with("aten::") ? 6 : op.starts_with("aten.") ? 5 : 0); }

// What the last step computes and moves.
Work work_of(const CapturedTrace& t, const std::vector<int64_t>& values) {
  Work out;
  if (t.kernels.empty()) return out;
  const std::vector<int64_t> amounts = t.evaluate_formulas(values);
  const std::vector<Event>& events = t.program.events;
  size_t last_step = 0;
  for (size_t i = 0; i < events.size(); ++i)
    if (events[i].kind == Event::Kind::step) last_step = i;
  Phase phase = Phase::setup;
  size_t at = 0;
  for (const CapturedKernel& k : t.kernels) {
    for (; at < k.event; ++at)
      if (events[at].kind == Event::Kind::phase) phase = static_cast<Phase>(events[at].value);
    if (k.event <= last_step) continue;
    Kernel kernel;
    kernel.op = kernel_name(t.program.names[k.op]);
    kernel.flops = static_cast<double>(t.amount(k.flops, amounts));
    kernel.bytes = checked_add(t.amount(k.read, amounts), t.amount(k.written, amounts));
    kernel.unit = kernel.flops > 0 ? unit_of(simulated_op_name(t.program.names[k.op])) : Unit::memory;
    kernel.dtype = dtype_named(t.program.names[k.dtype]);
    kernel.phase = phase;
    out.kernels.push_back(kernel);
  }
  return out;
}

class CapturedProgram final : public Program {
 public:
  const char* name() const override { return "captured program"; }
  bool takes(const Job& job) const override { return job.captured != nullptr; }

  Problems problems(const Job& job) const override {
    Problems out;
    check_settings(job, out);
    succeeds([&] { check_conditions(job, out); }, out);
    return out;
  }

  std::string target_key(const Job& job, const Target&) const override {
    const KernelMemory kernels = kernel_memory(job.platform);
    return fmt::format("captured {} {} {} {}", static_cast<const void*>(job.captured.get()), kernels.blas, kernels.blas_lt,
                       kernels.keeps_blas_lt);
  }

  std::shared_ptr<const Run> execute(const Job& job, const Target&, const Detail& detail) const override {
    Simulation simulation;
    simulation.trace = captured_run(job, CountShare::observed);
    if (detail.work) simulation.work = work_of(*job.captured, job.captured->values(sizes_of(job)));
    return std::make_shared<Run>(job, std::move(simulation));
  }
};

}  // namespace

const Program& captured_program() {
  static const CapturedProgram kProgram;
  return kProgram;
}

}  // namespace plimsoll
