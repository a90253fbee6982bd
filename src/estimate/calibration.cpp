#include "estimate/calibration.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

constexpr size_t kLongestLine = 4096, kMostRuns = 20;  // of those alike, the last ones

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

Bytes scaled(Bytes b, double factor) { return {static_cast<int64_t>(std::llround(static_cast<double>(b.count) * factor))}; }

std::optional<MeasuredRun> run_of(const std::string& line) {
  const nlohmann::json j = nlohmann::json::parse(line, nullptr, false);
  if (!j.is_object() || j.value("schema", nlohmann::json()) != 1) return {};
  MeasuredRun r;
  try {
    r.machine = j.at("machine").get<std::string>();
    r.device = j.at("device").get<std::string>();
    r.family = j.at("family").get<std::string>();
    r.precision = j.at("precision").get<std::string>();
    r.optimizer = j.at("optimizer").get<std::string>();
    r.parameters = j.at("parameters").get<int64_t>();
    r.predicted = {j.at("predicted_bytes").get<int64_t>()};
    r.measured = {j.at("measured_bytes").get<int64_t>()};
    r.source = j.at("source").get<std::string>();
    r.time = j.at("time").get<int64_t>();
    r.predicted_seconds = j.value("predicted_step_seconds", 0.0);
    r.measured_seconds = j.value("measured_step_seconds", 0.0);
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  constexpr int64_t kPiB = int64_t{1} << 50;
  const auto possible = [](Bytes b) { return b.count > 0 && b.count < kPiB; };
  return possible(r.predicted) && possible(r.measured) ? std::optional(r) : std::nullopt;
}

}  // namespace

std::string device_label(const TargetDevice& device) { return device.spec.name.empty() ? device.name : device.spec.name; }

MeasuredRun measured_run(const Estimate& e, const std::string& device) {
  return {host_name(), device, e.job.family, to_string(e.job.precision), e.job.optimizer.name, e.parameters, {}, {}, "", 0, 0, 0};
}

bool alike(const MeasuredRun& a, const MeasuredRun& b) {
  return a.machine == b.machine && a.device == b.device && a.family == b.family && a.precision == b.precision &&
         a.optimizer == b.optimizer && a.parameters == b.parameters;
}

std::string measured_runs_file() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state && *state == '/') return std::string(state) + "/plimsoll/measured.jsonl";
  const char* home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.local/state/plimsoll/measured.jsonl" : "";
}

std::vector<MeasuredRun> read_measured_runs(const std::string& file) {
  std::vector<MeasuredRun> out;
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line))
    if (line.size() <= kLongestLine)
      if (const auto run = run_of(line)) out.push_back(*run);
  return out;
}

void add_measured_run(const std::string& file, const MeasuredRun& r) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
  nlohmann::ordered_json json{{"schema", 1},
                              {"time", r.time},
                              {"machine", r.machine},
                              {"device", r.device},
                              {"family", r.family},
                              {"parameters", r.parameters},
                              {"precision", r.precision},
                              {"optimizer", r.optimizer},
                              {"predicted_bytes", r.predicted.count},
                              {"measured_bytes", r.measured.count},
                              {"source", r.source}};
  if (r.predicted_seconds > 0) json["predicted_step_seconds"] = r.predicted_seconds;
  if (r.measured_seconds > 0) json["measured_step_seconds"] = r.measured_seconds;
  const std::string line = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  // One write to the end of the file: runs that finish together do not mix their lines.
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const ssize_t written = descriptor < 0 ? -1 : write(descriptor, line.data(), line.size());
  if (descriptor >= 0) close(descriptor);
  if (written != static_cast<ssize_t>(line.size()))
    throw Error("[calibration] cannot write " + file, "is the folder writable, and the disk not full?");
}

std::optional<StepRatio> step_ratio(const MeasuredRun& run, const std::vector<MeasuredRun>& runs) {
  constexpr double kLongest = 1e6;  // seconds: more than any step
  std::vector<double> ratios;
  for (const MeasuredRun& r : runs) {
    const bool timed = r.predicted_seconds > 0 && r.measured_seconds > 0 && r.predicted_seconds < kLongest && r.measured_seconds < kLongest;
    if (timed && alike(r, run)) ratios.push_back(r.measured_seconds / r.predicted_seconds);
  }
  if (ratios.empty()) return {};
  if (ratios.size() > kMostRuns) ratios.erase(ratios.begin(), ratios.end() - kMostRuns);
  std::sort(ratios.begin(), ratios.end());
  const size_t half = ratios.size() / 2;
  const double middle = ratios.size() % 2 ? ratios[half] : (ratios[half - 1] + ratios[half]) / 2;
  return StepRatio{middle, static_cast<int64_t>(ratios.size())};
}

std::optional<Correction> correction(const MeasuredRun& run, const ByteRange& device, const std::vector<MeasuredRun>& runs) {
  std::vector<const MeasuredRun*> like;
  for (const MeasuredRun& r : runs)
    if (alike(r, run)) like.push_back(&r);
  if (like.empty() || device.bytes.count <= 0) return {};
  if (like.size() > kMostRuns) like.erase(like.begin(), like.end() - kMostRuns);
  std::vector<Bytes> middles;
  Correction c;
  c.before = device;
  c.runs = static_cast<int64_t>(like.size());
  for (const MeasuredRun* r : like) {
    const Bytes constant = r->measured - r->predicted;
    const Bytes growing = scaled(constant, static_cast<double>(device.bytes.count) / static_cast<double>(r->predicted.count));
    const auto [low, high] = std::minmax(constant, growing);
    c.lowest = middles.empty() ? low : std::min(c.lowest, low);
    c.highest = middles.empty() ? high : std::max(c.highest, high);
    middles.push_back({low.count + (high - low).count / 2});
  }
  std::sort(middles.begin(), middles.end());
  const size_t half = middles.size() / 2;
  c.residual = middles.size() % 2 ? middles[half] : Bytes{(middles[half - 1].count + middles[half].count) / 2};
  return c;
}

void apply(const Correction& c, DeviceMemory& memory) {
  const double narrower = 1 / std::sqrt(1 + static_cast<double>(c.runs));
  const Bytes centre = c.before.bytes + c.residual;
  const Bytes down = std::max(scaled(c.before.bytes - c.before.low, narrower), c.residual - c.lowest);
  const Bytes up = std::max(scaled(c.before.high - c.before.bytes, narrower), c.highest - c.residual);
  memory.device = {centre, std::max(Bytes{0}, centre - down), centre + up};
  memory.correction = c;
}

namespace {

// Verdict and margin by the corrected need.
void settle(Fit& fit) {
  if (!fit.device.capacity || fit.verdict == Verdict::unknown) return;
  const Capacity& capacity = *fit.device.capacity;
  fit.margin = capacity.bytes - fit.device.others - fit.memory.device.bytes;
  const bool certain = fit.memory.device.high + fit.device.others <= capacity.low;
  if (certain) {
    fit.verdict = Verdict::fits;
    fit.reason = "even the upper end of the interval fits, corrected by measured runs";
  } else if (fit.margin.count >= 0) {
    fit.verdict = Verdict::tight;
    fit.reason = "the expected need, corrected by measured runs, fits; the upper end of the interval does not";
  } else if (fit.verdict != Verdict::tight || fit.retries == 0) {  // a cache that is given back still helps
    fit.verdict = Verdict::does_not_fit;
    fit.reason = "the need, corrected by measured runs, is larger than the device";
  }
}

}  // namespace

void apply(const Correction& c, Fit& fit) {
  apply(c, fit.memory);
  settle(fit);
}

namespace {

std::optional<Correction> of_tensors(const Estimate& e, const std::vector<MeasuredRun>& runs) {
  return correction(measured_run(e, kTensors), ByteRange::exact(e.peak), runs);
}

std::optional<Correction> of_device(const Estimate& e, const std::string& device, const ByteRange& range,
                                    const std::vector<MeasuredRun>& runs) {
  return device.empty() ? std::nullopt : correction(measured_run(e, device), range, runs);
}

void shift(ByteRange& range, Bytes by) { range = {range.bytes + by, range.low + by, range.high + by}; }

void shift(DeviceMemory& memory, Bytes by) {
  for (ByteRange* range : {&memory.allocated, &memory.reserved, &memory.device}) shift(*range, by);
}

}  // namespace

void calibrate(const Estimate& e, std::vector<Fit>& fits) {
  const std::vector<MeasuredRun> runs = read_measured_runs(measured_runs_file());
  const auto tensors = of_tensors(e, runs);
  for (Fit& fit : fits) {
    if (const auto c = of_device(e, device_label(fit.device), fit.memory.device, runs)) {
      apply(*c, fit);
    } else if (tensors && tensors->residual.count != 0) {
      shift(fit.memory, tensors->residual);
      settle(fit);
    }
  }
}

void calibrate(Estimate& e) {
  if (!e.memory) return;
  const std::vector<MeasuredRun> runs = read_measured_runs(measured_runs_file());
  if (const auto c = of_device(e, e.device, e.memory->device, runs))
    apply(*c, *e.memory);
  else if (const auto tensors = of_tensors(e, runs))
    shift(*e.memory, tensors->residual);
}

std::optional<Correction> tensors_correction(const Estimate& e) { return of_tensors(e, read_measured_runs(measured_runs_file())); }

std::string keep_measured_run(MeasuredRun run) {
  const std::string file = measured_runs_file();
  if (run.measured.count <= 0 || run.predicted.count <= 0 || file.empty()) return "";
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  run.time = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  try {
    add_measured_run(file, run);
  } catch (const Error& e) {
    return std::string(e.what()) + "; what was measured is not kept";
  }
  return fmt::format("kept for the next estimate of a like job: {} predicted, {} measured ({})", to_string(run.predicted),
                     to_string(run.measured), file);
}

}  // namespace plimsoll
