#include "program/captured.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "tensor/kernel_memory.h"
#include "util/shell.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// Names of ops as the simulated ones have them. Modules have no such prefix.
void shorten_names(Trace& trace) {
  for (std::string& name : trace.names) name = simulated_op_name(name);
}

bool is_one_of(const std::string& name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Products by cuBLAS, and those with a bias by cuBLASLt.
bool uses_blas(const std::string& op) { return is_one_of(op, {"mm", "bmm", "baddbmm", "addmm", "mv", "addmv"}); }
bool uses_blas_lt(const std::string& op) { return op == "addmm"; }

// A capture runs no kernels, so what they take is not in it: the workspaces of cuBLAS and cuBLASLt, which Tape::use_blas allocates where a
// thread multiplies first. Scratch of single kernels stays left out.
class WithWorkspaces {
 public:
  WithWorkspaces(Trace& trace, const KernelMemory& kernels) : trace_(trace), kernels_(kernels) {}

  void add() {
    const bool has_some = std::any_of(trace_.storages.begin(), trace_.storages.end(),
                                      [](const StorageRecord& s) { return s.born_as == Category::workspace; });
    if (has_some) return;
    const std::vector<Event> events = std::move(trace_.events);
    trace_.events.clear();
    for (const Event& e : events) {
      if (e.kind == Event::Kind::phase) phase_ = static_cast<Phase>(e.value);
      if (e.kind == Event::Kind::alloc) before(trace_.names[trace_.storages[e.storage].op]);
      trace_.events.push_back(e);
    }
  }

 private:
  void before(const std::string& op) {
    if (!uses_blas(op)) return;
    const size_t thread = phase_ == Phase::backward;
    const bool with_bias = uses_blas_lt(op) && kernels_.blas_lt > 0 && kernels_.keeps_blas_lt;
    if (with_bias ? !std::exchange(blas_lt_[thread], true) : !std::exchange(blas_[thread], true))
      take(with_bias ? "cublaslt_workspace" : "cublas_workspace", with_bias ? kernels_.blas_lt : kernels_.blas);
  }

  void take(const char* name, int64_t bytes) {
    if (bytes == 0) return;
    const auto id = static_cast<StorageId>(trace_.storages.size());
    trace_.storages.push_back({bytes, trace_.intern(name), 0, Category::workspace, phase_});
    trace_.events.push_back({Event::Kind::alloc, 0, id});
  }

  Trace& trace_;
  const KernelMemory kernels_;
  Phase phase_ = Phase::setup;
  std::array<bool, 2> blas_{}, blas_lt_{};  // by thread: forward's and backward's
};

bool counts_matter(const CapturedTrace& t) {
  return t.depends_on_counts() ||
         std::any_of(t.conditions.begin(), t.conditions.end(), [&](const CapturedCondition& c) { return t.is_about_counts(c); });
}

}  // namespace

const char* to_string(CaptureGrade g) {
  static constexpr std::array kNames{"exact here", "by formula", "checked", "assumes"};
  return kNames[static_cast<size_t>(g)];
}

std::string simulated_op_name(const std::string& captured) {
  for (const std::string_view library : {"aten::", "aten."})
    if (captured.starts_with(library)) return captured.substr(library.size(), captured.find('.', library.size()) - library.size());
  return captured;
}

SymbolSizes sizes_of(const Job& job) {
  SymbolSizes out = job.captured->base();
  for (const auto& [name, value] : job.sizes) out[name] = value;
  for (const auto& [key, value] : {std::pair{"batch", job.batch}, std::pair{"seq", job.seq}})
    if (job.origin.contains(key)) out[key] = value;
  return out;
}

CaptureGrade grade_of(const Job& job) {
  if (!assumptions_of(job).empty()) return CaptureGrade::assumes;
  const SymbolSizes sizes = sizes_of(job);
  if (job.captured->is_base(sizes)) return CaptureGrade::exact_here;
  return job.captured->is_checked(sizes) ? CaptureGrade::checked : CaptureGrade::by_formula;
}

std::vector<std::string> assumptions_of(const Job& job) {
  const CapturedTrace& t = *job.captured;
  std::vector<std::string> out;
  for (const CapturedRead& r : t.reads)
    if (!r.known)
      out.push_back(fmt::format("{}: a value that was read{} is taken to be {}", printable(r.where, 120),
                                r.dtype.empty() ? "" : " (" + printable(r.dtype, 20) + ")", printable(r.value, 40)));
  if (!counts_matter(t)) return out;
  const std::vector<int64_t> then = t.values({}), now = t.values(sizes_of(job));
  std::set<std::string> said;  // a line of a loop has many counts that are alike
  for (const CapturedCount& c : t.counts)
    if (said.insert(c.where).second)
      out.push_back(fmt::format("{}: {} follows from the data: {} of at most {}, as in the capture; it can be 0 to {}",
                                printable(c.where, 120), c.name, now[t.names.at(c.name)], c.most.evaluate(now), c.most.evaluate(now)));
  return out;
}

Trace captured_run(const Job& job, CountShare share) {
  const CapturedTrace& t = *job.captured;
  Trace out = t.evaluate(t.values(sizes_of(job), share));
  shorten_names(out);
  WithWorkspaces(out, kernel_memory(job.platform)).add();
  return out;
}

std::optional<CountRange> count_range(const Job& job) {
  if (!job.captured || !job.captured->depends_on_counts()) return std::nullopt;
  const AllocConf conf = parse_alloc_conf(job.alloc_conf);
  return CountRange{cuda_timeline(captured_run(job, CountShare::none), conf), cuda_timeline(captured_run(job, CountShare::all), conf)};
}

std::string capture_command(const Job& job) {
  std::string out = "plimsoll capture";
  for (const auto& [name, value] : sizes_of(job)) out += fmt::format(" --size {}={}", printable(name, 64), value);
  out += " -o " + shell_quoted(printable(job.model, 200)) + " --";
  const CapturedTrace& t = *job.captured;
  if (t.command.empty()) return out + " python " + shell_quoted(t.script.empty() ? "train.py" : printable(t.script, 200));
  for (const std::string& word : t.command) out += " " + shell_quoted(printable(word, 200));
  return out;
}

}  // namespace plimsoll
