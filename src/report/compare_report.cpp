#include "report/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "job/settings.h"
#include "report/fit_report.h"
#include "report/schema_versions.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

Bytes part(const Estimate& e, const std::string& category) {
  for (const TreeNode& c : e.by_category.children)
    if (c.name == category) return c.bytes;
  return {};
}

// Categories that any of the jobs has at its peak, the first job's largest first.
std::vector<std::string> categories(const std::vector<ComparedJob>& jobs) {
  std::vector<std::string> out;
  for (const ComparedJob& j : jobs)
    for (const TreeNode& c : j.estimate.by_category.children)
      if (std::find(out.begin(), out.end(), c.name) == out.end()) out.push_back(c.name);
  return out;
}

std::string difference(Bytes value, Bytes first) {
  const int64_t d = value.count - first.count;
  if (d == 0) return "=";
  return (d < 0 ? "-" : "+") + to_string(Bytes{d < 0 ? -d : d});
}

Bytes device_peak(const Estimate& e) { return e.memory ? e.memory->device.bytes : e.peak; }

}  // namespace

std::string compare_text(const std::vector<ComparedJob>& jobs, const Style& style) {
  size_t width = 12;
  for (const ComparedJob& j : jobs) width = std::max(width, j.name.size());
  const std::vector<std::string> names = categories(jobs);
  const Estimate& first = jobs.front().estimate;
  std::string out = style.bold("Peaks") + "\n";
  out += style.dim(fmt::format("  {:<{}} {:>11} {:>11} {:>11} {:>11} {:>12}  {}", "job", width, "tensors", "allocated", "reserved",
                               "device", "difference", "reached in")) +
         "\n";
  for (const ComparedJob& j : jobs) {
    const Estimate& e = j.estimate;
    auto counter = [&](ByteRange DeviceMemory::*which) { return e.memory ? to_string(((*e.memory).*which).bytes) : std::string("?"); };
    out += fmt::format("  {:<{}} {:>11} {:>11} {:>11} {:>11} {:>12}  {}\n", j.name, width, to_string(e.peak),
                       counter(&DeviceMemory::allocated), counter(&DeviceMemory::reserved), counter(&DeviceMemory::device),
                       &j == &jobs.front() ? "" : difference(device_peak(e), device_peak(first)),
                       style.dim(fmt::format("{}, {}", e.steps[e.worst].name, phase_name(e.peak_phase))));
  }
  out += "\n" + style.bold("What is alive at the peak, and the difference from the first") + "\n";
  for (const std::string& name : names) {
    out += fmt::format("  {:<20}", name);
    for (const ComparedJob& j : jobs) {
      const Bytes bytes = part(j.estimate, name);
      out += fmt::format(" {:>11} {:<13}", to_string(bytes),
                         &j == &jobs.front() ? std::string() : style.dim(fmt::format("{:<13}", difference(bytes, part(first, name)))));
    }
    while (out.back() == ' ') out.pop_back();
    out += "\n";
  }
  if (jobs.front().fits.empty()) return out;
  out += "\n" + style.bold("Will it fit?") + "\n";
  for (size_t d = 0; d < jobs.front().fits.size(); ++d) {
    out += fmt::format("  {}\n", jobs.front().fits[d].device.name);
    for (const ComparedJob& j : jobs) {
      const Fit& f = j.fits[d];
      out += fmt::format("    {:<{}} {:<13} {:>12}\n", j.name, width, to_string(f.verdict),
                         f.device.capacity ? difference(f.margin, {}) : std::string("?"));
    }
  }
  return out;
}

Json compare_json(const std::vector<ComparedJob>& jobs) {
  Json out{{"schema", kCompareSchema}, {"command", "compare"}, {"jobs", Json::array()}};
  for (const ComparedJob& j : jobs) {
    const Estimate& e = j.estimate;
    Json job{{"name", j.name}, {"job", job_json(e.job)}, {"peak_bytes", e.peak.count}, {"memory", nullptr}};
    if (e.memory)
      job["memory"] = {{"allocated", range_json(e.memory->allocated)},
                       {"reserved", range_json(e.memory->reserved)},
                       {"device", range_json(e.memory->device)}};
    job["difference_bytes"] = device_peak(e).count - device_peak(jobs.front().estimate).count;
    job["by_category"] = Json::object();
    for (const std::string& name : categories(jobs)) job["by_category"][name] = part(e, name).count;
    job["fits"] = fits_json(j.fits);
    out["jobs"].push_back(job);
  }
  return out;
}

}  // namespace plimsoll
