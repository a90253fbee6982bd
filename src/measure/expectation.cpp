#include "measure/expectation.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "measure/trainer.h"
#include "measure/twin.h"
#include "program/run.h"
#include "util/bytes.h"

namespace plimsoll::measure {

namespace {

double middle(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

Expectation expect(const Job& job, int threads, int64_t steps, bool calibrated) {
  const std::shared_ptr<const Run> run = execute(simulated_twin(job, steps), {}, {.all_ranks = false});
  const Simulation& simulated = run->simulation;
  Estimate like;
  like.job = job;
  like.parameters = simulated.parameters;
  Expectation e;
  e.run = measured_run(like, threads == 1 ? kTensors : fmt::format("tensors and {} threads", threads));
  e.run.predicted = {ideal_timeline(simulated.trace).peak().bytes};
  e.run.source = "measure";
  if (!calibrated) return e;
  const std::vector<MeasuredRun> runs = read_measured_runs(measured_runs_file());
  e.correction = correction(e.run, ByteRange::exact(e.run.predicted), runs);
  std::vector<double> seconds;
  for (const MeasuredRun& r : runs)
    if (alike(r, e.run) && r.predicted == e.run.predicted && r.measured_seconds > 0) seconds.push_back(r.measured_seconds);
  e.seconds = middle(seconds);
  return e;
}

void keep(const Expectation& expected, const Job& job, const Outcome& out) {
  const std::string file = measured_runs_file();
  MeasuredRun run = expected.run;
  std::vector<double> seconds;
  for (const StepResult& s : out.steps) {
    if (s.out_of_memory > 0 || s.micro_batch != job.batch) return;
    run.measured = std::max(run.measured, Bytes{s.peak});
    seconds.push_back(s.seconds);
  }
  if (file.empty() || seconds.size() < 2) return;
  run.measured_seconds = middle(seconds);
  run.time = static_cast<int64_t>(std::time(nullptr));
  try {
    add_measured_run(file, run);
  } catch (const Error& e) {
    std::cerr << "plimsoll measure: " << e.what() << "; what was measured is not kept\n";
  }
}

std::string expectation_text(const Expectation& e) {
  std::string text = fmt::format("  expected  {} bytes", with_commas(e.peak().count));
  if (e.correction && e.correction->residual.count != 0)
    text += fmt::format(": {} simulated, {:+} measured before in like runs on this machine ({}; --no-calibration leaves them out)",
                        with_commas(e.run.predicted.count), e.correction->residual.count, e.correction->runs);
  if (e.seconds > 0) text += fmt::format(", {:.3f} s a step", e.seconds);
  return text + "\n";
}

nlohmann::ordered_json expectation_json(const Expectation& e) {
  nlohmann::ordered_json j{{"bytes", e.peak().count}, {"simulated_bytes", e.run.predicted.count}};
  if (e.correction) j["measured_before"] = {{"bytes", e.correction->residual.count}, {"runs", e.correction->runs}};
  if (e.seconds > 0) j["step_seconds"] = e.seconds;
  return j;
}

}  // namespace plimsoll::measure
