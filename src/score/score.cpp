#include "score/score.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <fstream>
#include <unordered_map>

#include "allocator/timeline.h"
#include "program/run.h"

namespace plimsoll {

namespace {

// The recorder's names.
constexpr std::array<const char*, kCategories> kRecorded{"param",      "buffer",          "input",          "grad",          "optstate",
                                                         "ema",        "forward",         "backward",       "optim",         "workspace",
                                                         "ddp_bucket", "unsharded_param", "unsharded_grad", "allgather_buf", "reduce_buf"};
constexpr std::array<const char*, kPhases> kRecordedPhase{"init", "forward", "backward", "optim", "ema_step", "evaluation", "sampling"};

std::map<std::string, int64_t> breakdown_of(const StepPeak& p) {
  std::map<std::string, int64_t> out;
  for (size_t c = 0; c < kCategories; ++c)
    if (p.by_category[c]) out[kRecorded[c]] = p.by_category[c];
  return out;
}

std::map<std::string, int64_t> phases_of(const StepPeak& p) {
  std::map<std::string, int64_t> out;
  for (size_t c = 0; c < kPhases; ++c)
    if (p.by_phase[c]) out[kRecordedPhase[c]] = p.by_phase[c];
  return out;
}

std::map<std::string, int64_t> pools_of(const StepPeak& p) {
  constexpr std::array<const char*, kStreams> kRecordedStream{"default", "ag_copy_in", "reduce_scatter", "all_reduce", "pre_unshard"};
  std::map<std::string, int64_t> out;
  for (size_t s = 0; s < kStreams; ++s)
    if (p.by_stream[s]) out[kRecordedStream[s]] = p.by_stream[s];
  return out;
}

// "aten.mm.default" -> "mm"
std::string short_op(std::string op) {
  for (const std::string library : {"aten.", "_c10d_functional."})
    if (op.rfind(library, 0) == 0) op = op.substr(library.size());
  return op.substr(0, op.find('.'));
}

}  // namespace

Score score_row(const RecordedRow& row) {
  Score s;
  s.id = row.id;
  s.unsupported = row.unsupported;
  s.measured = row.peak;
  s.recorded_seconds = row.seconds;
  if (!s.unsupported.empty()) return s;
  const auto start = std::chrono::steady_clock::now();
  const Attempt attempted = attempt(row.job, {}, {.all_ranks = false});
  if (attempted.problem) s.unsupported = attempted.problem->what;
  if (!attempted) return s;
  const Simulation& simulation = attempted.run->simulation;
  const Timeline timeline = ideal_timeline(simulation.trace);
  s.simulated_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const StepPeak& peak = timeline.peak();
  s.predicted = peak.bytes;
  s.rounded_equal = row.rounded_peak == 0 || row.rounded_peak == peak.rounded;
  s.breakdown_equal = breakdown_of(peak) == row.breakdown;
  s.phase_peaks_equal = phases_of(peak) == row.phase_peaks;
  s.pools_equal = row.pools.empty() || pools_of(peak) == row.pools;
  std::vector<int64_t> steps;
  for (const StepPeak& p : timeline.steps) steps.push_back(p.bytes);
  s.step_peaks_equal = steps == row.step_peaks;
  s.parameters_equal = simulation.parameters == row.parameters && simulation.trainable == row.trainable;
  return s;
}

std::string first_difference(const RecordedRow& row, const std::string& events_path) {
  std::ifstream in(events_path);
  if (!in) throw Error("[score] cannot open " + events_path, "events are written by the recorder: {\"events\": path} in the spec");
  const std::shared_ptr<const Run> run = execute(row.job, {}, {.all_ranks = false});
  const Trace& trace = run->simulation.trace;

  // Both sides from the input on, as "+bytes op" and "-bytes"; frees between two allocations are compared as a set.
  struct Item {
    std::string text;
    std::vector<int64_t> freed;
    std::string where;
  };
  std::vector<Item> real(1), mine(1);
  std::unordered_map<int64_t, int64_t> size;
  bool started = false;
  try {
    for (const auto& e : nlohmann::json::parse(in)) {
      const std::string kind = e.at(0);
      if (kind == "a") {
        size[e.at(1).get<int64_t>()] = e.at(2).get<int64_t>();
        started |= e.at(3) == "input";
        // Memory that a storage gets back has the name of whatever ran before.
        const std::string op = e.at(3) == "input" ? "input" : e.at(3) == "unsharded_param" ? "unshard" : short_op(e.at(4));
        if (started) real.push_back({fmt::format("{} {}", e.at(2).get<int64_t>(), op), {}, e.at(3)});
      } else if (kind == "f" && started) {
        real.back().freed.push_back(size[e.at(1).get<int64_t>()]);
      }
    }
  } catch (const nlohmann::json::exception& e) {
    throw Error("[score] " + events_path + " does not hold recorded events: " + e.what(), "record it again: tools/recorder/README.md");
  }
  started = false;
  for (const Event& e : trace.events) {
    if (e.kind == Event::Kind::alloc) {
      const StorageRecord& s = trace.storages[e.storage];
      started |= s.born_as == Category::input;
      if (started)
        mine.push_back(
            {fmt::format("{} {}", s.bytes, trace.names[s.op]), {}, fmt::format("{} {}", phase_name(s.phase), trace.scope_path(s.scope))});
    } else if (e.kind == Event::Kind::free && started) {
      mine.back().freed.push_back(trace.storages[e.storage].bytes);
    }
  }
  auto context = [&](size_t i) {
    std::string text;
    for (size_t k = i < 4 ? 0 : i - 4; k < i + 4; ++k) {
      auto show = [&](const std::vector<Item>& side) {
        if (k >= side.size()) return std::string("-");
        std::string freed;
        for (int64_t b : side[k].freed) freed += fmt::format(" f{}", b);
        return side[k].text + freed;
      };
      text += fmt::format("  {}{:<60} | {:<60} {}\n", k == i ? ">" : " ", show(real), show(mine), k < mine.size() ? mine[k].where : "");
    }
    return text;
  };
  // The recorder notices a sum of gradients at the next operation, and gives it that one's name.
  auto same = [](const Item& a, const Item& b) {
    const size_t space = b.text.find(' ');
    return a.text == b.text ||
           (b.text.substr(space + 1) == "add" && a.where == "backward" && a.text.substr(0, space) == b.text.substr(0, space));
  };
  for (size_t i = 0; i < std::max(real.size(), mine.size()); ++i) {
    if (i >= real.size() || i >= mine.size() || !same(real[i], mine[i]))
      return fmt::format("event {}: recorded | simulated\n{}", i, context(i));
    std::sort(real[i].freed.begin(), real[i].freed.end());
    std::sort(mine[i].freed.begin(), mine[i].freed.end());
    if (real[i].freed != mine[i].freed) return fmt::format("frees after event {}: recorded | simulated\n{}", i, context(i));
  }
  return "";
}

}  // namespace plimsoll
