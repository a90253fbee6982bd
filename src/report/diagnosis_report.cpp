#include "report/diagnosis_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/fit_report.h"
#include "report/job_report.h"
#include "report/schema_versions.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

const char* memory_name(Memory m) {
  switch (m) {
    case Memory::gpu: return "the GPU's memory";
    case Memory::host: return "the host's memory";
    case Memory::tpu: return "the TPU's memory";
    case Memory::mps: return "the memory that CPU and GPU share";
    case Memory::shm: return "shared memory (/dev/shm)";
    case Memory::none: return "a limit on the chip";
  }
  return "";
}

std::string headline(const Diagnosis& d, const Style& style) {
  if (!d.symptom) return style.bold("No out-of-memory in this log") + "\n";
  const Symptom& s = *d.symptom;
  if (s.certainty == Certainty::possible)
    return style.bold(s.memory == Memory::none ? "Not out of device memory" : "Not certain that memory ran out") + "  " + s.kind + "\n";
  std::string out =
      style.red(std::string(s.certainty == Certainty::likely ? "Most likely out of memory: " : "Out of memory: ") + memory_name(s.memory));
  if (s.device) out += fmt::format(" (device {})", *s.device);
  if (d.rank) out += fmt::format(" on rank {}", *d.rank);
  return out + style.dim("  " + s.kind) + "\n";
}

std::string row(const char* name, const std::string& value) { return fmt::format("  {:<22} {}\n", name, value); }

std::string size_row(const char* name, const std::optional<int64_t>& bytes, const std::string& more = "") {
  return bytes ? row(name, fmt::format("{:>10}{}", to_string(Bytes{*bytes}), more.empty() ? "" : "  " + more)) : "";
}

std::string numbers(const Diagnosis& d, const Style& style) {
  const Symptom& s = *d.symptom;
  std::string out;
  out += size_row("asked for", s.tried, s.shape);
  out += size_row(s.kind == "xla_tpu" ? "the device has" : "in all", s.total, s.memory == Memory::mps ? "the most that PyTorch takes" : "");
  out += size_row("allowed", s.allowed);
  out += size_row("free", s.free);
  out += size_row("allocated", s.allocated, s.memory == Memory::host && !s.note.empty() ? s.note : "");
  if (s.reserved && s.allocated)
    out += size_row("reserved, not in use", *s.reserved - *s.allocated,
                    d.fragmentation == Fragmentation::yes ? "more than was asked for: fragmentation" : "");
  out += size_row("in CUDA graphs' pools", s.private_pools);
  out += size_row("this process", s.process, "with what PyTorch does not count");
  if (d.others && d.others->count > 0) {
    const bool exact = s.process || s.memory == Memory::mps;
    out += size_row("other processes", d.others->count, exact ? "" : "at most: this process's CUDA context is in it");
  }
  return out.empty() ? out : "\n" + style.bold("Memory") + "\n" + out;
}

std::string frame_text(const Frame& f) {
  return fmt::format("{}:{} in {}{}", printable(f.file, 120), f.line, printable(f.function, 60),
                     f.statement.empty() ? "" : "\n                         " + printable(f.statement, 120));
}

std::string circumstances(const Diagnosis& d, const Style& style) {
  std::string out;
  if (!d.phase.empty()) out += row("phase", d.phase);
  if (const Frame* f = d.traceback.users()) out += row("your code", frame_text(*f));
  if (const Frame* f = d.traceback.models(); f && f != d.traceback.users()) out += row("model", frame_text(*f));
  if (d.progress && d.progress->training) {
    if (d.progress->done && d.progress->total)
      out += row("progress", fmt::format("{} of {} steps{}", with_commas(*d.progress->done), with_commas(*d.progress->total),
                                         d.first_step == true ? ": in the first" : ""));
    else if (d.progress->done)
      out += row("progress", fmt::format("step {}", with_commas(*d.progress->done)));
    else
      out += row("progress", "after some steps");
  }
  out += row("line", fmt::format("{} of {}", with_commas(d.line), with_commas(d.lines)));
  if (d.occurrences > 1) {
    std::vector<std::string> ranks;
    for (const int r : d.ranks) ranks.push_back(std::to_string(r));
    out += row("also", fmt::format("{} more such texts below; the first counts{}", with_commas(d.occurrences - 1),
                                   ranks.size() > 1 ? "; ranks " + printable(join(ranks, ", "), 60) : ""));
  }
  if (d.recovered) out += row("after it", "the run went on: it was caught, and steps follow");
  return "\n" + style.bold("When and where") + "\n" + out;
}

std::string run_text(const Diagnosis& d, const Style& style) {
  const KnownRun& run = *d.run;
  std::string out =
      "\n" + style.bold("The run") + "  " + run.estimate.job.model + ", " + recipe_text(run.estimate.job, run.estimate.sample) + "\n";
  out += row("needs",
             fmt::format("{}  (tensors {}, peak in {}{})", to_string(run.what_if.device), to_string(run.estimate.peak),
                         phase_name(run.estimate.peak_phase), run.estimate.peak_module.empty() ? "" : ", " + run.estimate.peak_module));
  for (const std::string& m : run.matches) out += row("of the size asked for", m);
  if (run.fit) {
    out += row("on that device", std::string(to_string(run.fit->verdict)) + (run.fit->reason.empty() ? "" : ": " + run.fit->reason));
    if (run.fit->failure) {
      const FirstFailure& f = *run.fit->failure;
      out += row("would fail", fmt::format("in {}, {}{}, asking for {}", f.step, phase_name(f.phase),
                                           f.module.empty() ? "" : ", " + f.module, to_string(Bytes{f.numbers.tried})));
    }
  }
  return out;
}

std::string fixes_text(const Diagnosis& d, const Style& style) {
  std::string out;
  int n = 0;
  for (const Fix& f : d.fixes) {
    out += fmt::format("  {:>2}. {}", ++n, f.change);
    if (f.saving) out += fmt::format("  saves {}", to_string(*f.saving));
    if (f.verdict)
      out += *f.verdict == Verdict::fits ? ", " + style.green("then it fits") : *f.verdict == Verdict::tight ? ", then it is tight" : "";
    out += "\n      " + style.dim(f.why) + "\n";
    if (!f.flags.empty()) out += "      " + f.flags + "\n";
  }
  return out.empty() ? out : "\n" + style.bold("What to change, in this order") + "\n" + out;
}

Json optional_json(const std::optional<int64_t>& value) { return value ? Json(*value) : Json(nullptr); }

Json frame_json(const Frame* f) {
  if (!f) return nullptr;
  return {{"file", f->file}, {"line", f->line}, {"function", f->function}, {"statement", f->statement}};
}

Json progress_json(const std::optional<Progress>& p) {
  if (!p || !p->training) return nullptr;
  return {{"done", optional_json(p->done)}, {"total", optional_json(p->total)}};
}

Json run_json(const std::optional<KnownRun>& run) {
  if (!run) return nullptr;
  Json j{{"job", job_json(run->estimate.job)},
         {"device_bytes", run->what_if.device.count},
         {"peak_bytes", run->estimate.peak.count},
         {"tensors_of_that_size", run->matches},
         {"verdict", run->fit ? Json(to_string(run->fit->verdict)) : Json(nullptr)}};
  return j;
}

}  // namespace

std::string diagnosis_text(const Diagnosis& d, const Style& style) {
  std::string out = headline(d, style);
  if (!d.symptom) {
    out += d.binary ? "  the file is not text\n"
                    : fmt::format("  {} lines were read; no text says that memory ran out, and no process was killed for it\n",
                                  with_commas(d.lines));
    return out;
  }
  out += "  " + style.dim(printable(d.text, 400)) + "\n";
  out += numbers(d, style) + circumstances(d, style);
  if (d.run) out += run_text(d, style);
  out += "\n" + style.bold("Why, the likeliest first") + "\n";
  for (const std::string& c : d.causes) out += "  - " + c + "\n";
  return out + fixes_text(d, style);
}

Json diagnosis_json(const Diagnosis& d) {
  const Symptom s = d.symptom.value_or(Symptom{});
  const bool known = d.symptom.has_value();
  Json fixes = Json::array();
  for (const Fix& f : d.fixes) {
    Json fix{{"change", f.change}, {"why", f.why}};
    if (!f.flags.empty()) fix["flags"] = f.flags;
    if (f.saving) fix["saving_bytes"] = f.saving->count;
    if (f.verdict) fix["verdict"] = to_string(*f.verdict);
    fixes.push_back(std::move(fix));
  }
  Json processes = Json::array();
  for (const ProcessOnDevice& p : s.processes)
    if (s.memory == Memory::gpu) processes.push_back({{"pid", p.pid}, {"bytes", p.bytes}});
  return {{"schema", kExplainSchema},
          {"command", "explain"},
          {"kind", "log"},
          {"is_oom", d.is_oom()},
          {"symptom", known ? Json(s.kind) : Json(nullptr)},
          {"framework", s.framework.empty() ? Json(nullptr) : Json(s.framework)},
          {"memory", known ? to_string(s.memory) : "none"},
          {"certainty", known ? Json(to_string(s.certainty)) : Json(nullptr)},
          {"device_index", s.device ? Json(*s.device) : Json(nullptr)},
          {"rank", d.rank ? Json(*d.rank) : Json(nullptr)},
          {"tried_bytes", optional_json(s.tried)},
          {"total_bytes", optional_json(s.total)},
          {"free_bytes", optional_json(s.free)},
          {"allocated_bytes", optional_json(s.allocated)},
          {"reserved_bytes", optional_json(s.reserved)},
          {"allowed_bytes", optional_json(s.allowed)},
          {"process_bytes", optional_json(s.process)},
          {"private_pool_bytes", optional_json(s.private_pools)},
          {"others_bytes", d.others ? Json(d.others->count) : Json(nullptr)},
          {"processes", processes},
          {"shape", s.shape.empty() ? Json(nullptr) : Json(s.shape)},
          {"note", s.note.empty() ? Json(nullptr) : Json(s.note)},
          {"fragmentation", known ? Json(to_string(d.fragmentation)) : Json(nullptr)},
          {"phase", d.phase.empty() ? Json(nullptr) : Json(d.phase)},
          {"first_step", d.first_step ? Json(*d.first_step) : Json(nullptr)},
          {"progress", progress_json(d.progress)},
          {"frame", frame_json(d.traceback.users())},
          {"model_frame", frame_json(d.traceback.models())},
          {"line", known ? Json(d.line) : Json(nullptr)},
          {"lines", d.lines},
          {"text", known ? Json(d.text) : Json(nullptr)},
          {"occurrences", d.occurrences},
          {"ranks", d.ranks},
          {"recovered", d.recovered},
          {"run", run_json(d.run)},
          {"causes", d.causes},
          {"fixes", fixes}};
}

}  // namespace plimsoll
