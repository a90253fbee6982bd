#include "model/captured.h"

#include <fmt/format.h>

#include <filesystem>

#include "trace/trace_file.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr const char* kAsCaptured = "as captured";

// What is not given is as it was captured.
void take_size(Job& job, const char* key, int64_t Job::*member) {
  if (job.origin.contains(key)) return;
  const CapturedSymbol* symbol = job.captured->find_symbol(key);
  if (!symbol) return;
  job.*member = symbol->at;
  job.origin[key] = kAsCaptured;
}

void take_versions(Job& job) {
  if (job.origin.contains("torch") || job.captured->torch.empty()) return;
  try {
    job.platform.torch = parse_version("torch", job.captured->torch);
  } catch (const Error& e) {
    job.findings.push_back({Effect::note, "torch", job.model,
                            fmt::format("the version '{}' is not understood", printable(job.captured->torch, 40)),
                            fmt::format("taken for {}", to_string(job.platform.torch))});
    return;
  }
  job.origin["torch"] = kAsCaptured;
}

void take_notes(Job& job) {
  for (const CapturedNote& n : job.captured->notes)
    job.findings.push_back({Effect::note, "", printable(n.where.empty() ? job.model : n.where, 120),
                            printable(n.text, 200) + (n.skipped ? " was skipped" : ""), "in the capture"});
}

}  // namespace

void resolve_captured(Job& job) {
  job.captured = std::make_shared<const CapturedTrace>(read_captured_trace(job.model));
  const CapturedTrace& t = *job.captured;
  if (t.steps() == 0)
    throw Error(fmt::format("[captured] {} has no training step", printable(job.model, 200)),
                "plimsoll replay " + job.model + " takes any trace");
  job.family = "captured " + (t.script.empty() ? std::filesystem::path(job.model).filename().string() : t.script);
  job.inputs = InputKind::own;  // what a sample is only the script knows
  take_size(job, "batch", &Job::batch);
  take_size(job, "seq", &Job::seq);
  if (!job.origin.contains("steps")) job.steps = t.steps();
  take_versions(job);
  take_notes(job);
}

}  // namespace plimsoll
