#include "api/run_page.h"

#include <fmt/format.h>

#include <filesystem>

#include "report/page.h"
#include "trace/trace_file.h"
#include "util/mapped_file.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

nlohmann::ordered_json trace_page(const Trace& trace, const std::string& name) {
  const Timeline timeline = ideal_timeline(trace);
  if (timeline.steps.empty()) throw Error("[report] " + name + " has no step", "a line {\"step\": true} begins one (docs/trace-format.md)");
  const StepPeak& peak = timeline.peak();
  const CudaTimeline cuda = cuda_timeline(trace);
  RunPage page{.kind = "trace",
               .title = fs::path(name).filename().string(),
               .subtitle = fmt::format("{} events, {} storages", with_commas(static_cast<int64_t>(trace.events.size())),
                                       with_commas(static_cast<int64_t>(trace.storages.size()))),
               .state = "note",
               .sentence = fmt::format("{} are alive at the peak, in {}; the allocator holds {}.", to_string(Bytes{peak.bytes}),
                                       phase_name(peak.phase), to_string(Bytes{cuda.reserved_peak})),
               .trace = trace,
               .curve = memory_curve(trace, peak.at_event),
               .alive = alive_at(trace, peak.at_event),
               .numbers = {{"tensors", peak.bytes}, {"allocated", cuda.allocated_peak}, {"reserved", cuda.reserved_peak}},
               .notes = {"PyTorch's caching allocator with its default settings, on a device that never runs out."}};
  return page_json(page);
}

}  // namespace

std::optional<nlohmann::ordered_json> run_page(const std::vector<std::string>& words, const std::function<void(size_t, size_t)>& progress) {
  std::error_code error;
  if (words.size() != 1 || !fs::is_regular_file(words[0], error)) return {};
  const MappedFile file(words[0]);
  if (file.bytes().starts_with("{\"plimsoll_trace\"")) return trace_page(read_trace_text(file.bytes(), words[0]), words[0]);
  return {};
}

}  // namespace plimsoll
