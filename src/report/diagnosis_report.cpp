#include "report/diagnosis_report.h"

#include <fmt/format.h>

#include <algorithm>
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

doc::Text what_happened(const Diagnosis& d) {
  if (!d.symptom) return doc::bold("No out-of-memory error in this log");
  const Symptom& s = *d.symptom;
  if (s.certainty == Certainty::possible)
    return doc::bold(s.memory == Memory::none ? "Not out of device memory" : "Not certain that memory ran out") + "  " + s.kind;
  doc::Text out = std::string(s.certainty == Certainty::likely ? "Most likely out of memory: " : "Out of memory: ") + memory_name(s.memory);
  if (s.device) out += fmt::format(" (device {})", *s.device);
  if (d.rank) out += fmt::format(" on rank {}", *d.rank);
  return doc::bad(out) + doc::dim("  " + s.kind);
}

doc::Facts numbers(const Diagnosis& d) {
  const Symptom& s = *d.symptom;
  doc::Facts out;
  const auto add = [&](const char* name, const std::optional<int64_t>& bytes, const std::string& more = "") {
    if (bytes) out.facts.push_back({name, Bytes{*bytes}, more});
  };
  add("asked for", s.tried, s.shape);
  add(s.kind == "xla_tpu" ? "the device has" : "in all", s.total, s.memory == Memory::mps ? "the most that PyTorch takes" : "");
  add("allowed", s.allowed);
  add("free", s.free);
  add("allocated", s.allocated, s.memory == Memory::host && !s.note.empty() ? s.note : "");
  if (s.reserved && s.allocated)
    add("reserved, not in use", *s.reserved - *s.allocated, d.fragmented() ? "more than was asked for, in pieces: fragmentation" : "");
  add("in CUDA graphs' pools", s.private_pools);
  add("this process", s.process, "with what PyTorch does not count");
  if (d.others && d.others->count > 0) {
    const bool exact = s.process || s.memory == Memory::mps;
    add("other processes", d.others->count, exact ? "" : "at most: this process's CUDA context is in it");
  }
  return out;
}

void add_frame(doc::Facts& facts, const char* name, const Frame& f) {
  facts.facts.push_back({name, fmt::format("{}:{} in {}", printable(f.file, 120), f.line, printable(f.function, 60))});
  if (!f.statement.empty()) facts.facts.push_back({"", doc::code(printable(f.statement, 120))});
}

std::string progress_text(const Diagnosis& d) {
  const Progress& p = *d.progress;
  if (!p.done) return "after some steps";
  if (!p.total) return fmt::format("step {}", with_commas(*p.done));
  return fmt::format("{} of {} steps{}", with_commas(*p.done), with_commas(*p.total), d.first_step == true ? ": in the first" : "");
}

doc::Facts circumstances(const Diagnosis& d) {
  doc::Facts out;
  const auto row = [&](const char* name, const std::string& value) { out.facts.push_back({name, value}); };
  if (!d.phase.empty()) row("phase", d.phase);
  if (const Frame* f = d.traceback.users()) add_frame(out, "your code", *f);
  if (const Frame* f = d.traceback.models(); f && f != d.traceback.users()) add_frame(out, "model", *f);
  if (d.progress && d.progress->training) row("progress", progress_text(d));
  row("line", fmt::format("{} of {}", with_commas(d.line), with_commas(d.lines)));
  if (d.ranks.size() > 1) {
    std::vector<std::string> ranks;
    for (const int r : d.ranks) ranks.push_back(std::to_string(r));
    row("ranks", printable(join(ranks, ", "), 60));
  }
  if (d.occurrences > 1) {
    row("also", fmt::format("{} other message{} of this kind below; this is about the first", with_commas(d.occurrences - 1),
                            d.occurrences == 2 ? "" : "s"));
  }
  if (d.recovered) row("after it", "the run went on: it was caught, and steps follow");
  return out;
}

doc::Blocks run_blocks(const KnownRun& run) {
  doc::Facts facts{{{"needs", run.what_if.device,
                     doc::Text("tensors ") + run.estimate.peak +
                         fmt::format(", peak in {}{}", phase_name(run.estimate.peak_phase),
                                     run.estimate.peak_module.empty() ? "" : ", " + run.estimate.peak_module)}}};
  for (const std::string& m : run.matches) facts.facts.push_back({"of the size asked for", m});
  if (run.fit) {
    doc::Text verdict = verdict_text(run.fit->verdict);
    if (!run.fit->reason.empty()) verdict += ": " + run.fit->reason;
    facts.facts.push_back({"on that device", verdict});
    if (run.fit->failure) {
      const FirstFailure& f = *run.fit->failure;
      facts.facts.push_back(
          {"would fail", fmt::format("in {}, {}{}, asking for ", f.step, phase_name(f.phase), f.module.empty() ? "" : ", " + f.module) +
                             doc::Text(Bytes{f.numbers.tried})});
    }
  }
  return {doc::Heading{"The run", run.estimate.job.model + ", " + recipe_text(run.estimate.job, run.estimate.sample)}, std::move(facts)};
}

doc::Row fix_row(const Fix& f, size_t number) {
  doc::Text change = f.change;
  if (f.saving) change += doc::Text("  saves ") + *f.saving;
  if (f.verdict && *f.verdict == Verdict::fits) change += ", " + doc::good("then it fits");
  if (f.verdict && *f.verdict == Verdict::tight) change += ", then it is tight";
  doc::Row row{{fmt::format("{}.", number), change}, {doc::dim(f.why)}};
  if (!f.flags.empty()) row.details.push_back(doc::code(f.flags));
  return row;
}

doc::Blocks fix_blocks(const Diagnosis& d, bool verbose) {
  if (d.fixes.empty()) return {};
  const size_t shown = verbose ? d.fixes.size() : std::min(kShownFixes, d.fixes.size());
  doc::Table table{{{"", doc::Kind::number}, {"change"}}};
  for (size_t i = 0; i < shown; ++i) table.rows.push_back(fix_row(d.fixes[i], i + 1));
  doc::Blocks out{doc::Heading{"What to change, in this order"}, std::move(table)};
  std::string more = shown < d.fixes.size() ? fmt::format("{} more: -v", d.fixes.size() - shown) : "";
  if (!d.run && d.symptom->memory == Memory::gpu && d.is_oom())
    more += std::string(more.empty() ? "" : ". ") +
            "What each saves is computed for the command that failed: plimsoll explain LOG -- python train.py ...";
  if (!more.empty()) out.emplace_back(doc::Paragraph{doc::dim(more)});
  return out;
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

doc::Document diagnosis_document(const Diagnosis& d, bool verbose) {
  doc::Document out{"", what_happened(d)};
  if (!d.symptom) {
    out.blocks.emplace_back(
        doc::Paragraph{d.binary ? std::string("The file is not text.")
                                : fmt::format("{} lines were read; no message says that memory ran out, and no process was killed for it.",
                                              with_commas(d.lines))});
    return out;
  }
  out.blocks.emplace_back(doc::Paragraph{doc::dim(printable(d.text, 400))});
  if (doc::Facts memory = numbers(d); !memory.facts.empty()) doc::append(out.blocks, {doc::Heading{"Memory"}, std::move(memory)});
  doc::append(out.blocks, {doc::Heading{"When and where"}, circumstances(d)});
  if (d.run) doc::append(out.blocks, run_blocks(*d.run));
  doc::List causes;
  for (const std::string& c : d.causes) causes.items.emplace_back(c);
  doc::append(out.blocks, {doc::Heading{"Why, the likeliest first"}, std::move(causes)});
  doc::append(out.blocks, fix_blocks(d, verbose));
  return out;
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
