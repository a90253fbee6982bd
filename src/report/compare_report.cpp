#include "report/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "job/settings.h"
#include "report/captured_report.h"
#include "report/estimate_screen.h"
#include "report/fit_report.h"
#include "report/headline.h"
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

Bytes device_peak(const Estimate& e) { return e.memory ? e.memory->device.bytes : e.peak; }

// What a job is called in the other tables.
std::string number_of(const std::vector<ComparedJob>& jobs, const ComparedJob& job) { return fmt::format("#{}", &job - jobs.data() + 1); }

constexpr size_t kMostLines = 8;

// The verdict of each on the first device; without one what it needs.
doc::Blocks headlines(const std::vector<ComparedJob>& jobs) {
  doc::Blocks out;
  if (jobs.size() > kMostLines) return out;
  for (const ComparedJob& j : jobs) {
    const std::string grade = j.estimate.job.captured ? "; " + grade_text(j.estimate.job) : "";
    out.emplace_back(
        doc::Paragraph{doc::dim(number_of(jobs, j)) + " " + (j.fits.empty() ? headline(j.estimate) : headline(j.fits[0])) + grade});
  }
  return out;
}

doc::Table peaks_table(const std::vector<ComparedJob>& jobs) {
  using doc::Kind;
  doc::Table out{{{""},
                  {"job"},
                  {"tensors", Kind::size},
                  {"allocated", Kind::size},
                  {"reserved", Kind::size},
                  {"device", Kind::size},
                  {"difference", Kind::size},
                  {"peak in"}}};
  const Bytes first = device_peak(jobs.front().estimate);
  for (const ComparedJob& j : jobs) {
    const Estimate& e = j.estimate;
    const auto counter = [&](ByteRange DeviceMemory::*which) { return e.memory ? doc::Text(((*e.memory).*which).bytes) : doc::Text("?"); };
    out.rows.push_back({{number_of(jobs, j), j.name, e.peak, counter(&DeviceMemory::allocated), counter(&DeviceMemory::reserved),
                         counter(&DeviceMemory::device), &j == &jobs.front() ? doc::Text() : doc::Text(doc::Change{device_peak(e) - first}),
                         doc::dim(phase_name(e.peak_phase))}});
  }
  return out;
}

// "+1.25 GiB" in the unit of its column; "=" for none.
std::string difference_in(Bytes difference, doc::Unit unit) {
  if (difference.count == 0) return "=";
  return (difference.count < 0 ? "-" : "+") + doc::print(doc::Span{doc::In{Bytes{std::abs(difference.count)}, unit}});
}

// A row for each category, and for each job its bytes and their difference from the first. What is nowhere a thousandth of the largest
// peak is one row.
doc::Table parts_table(const std::vector<ComparedJob>& jobs) {
  doc::Table out{{{"category"}}};
  Bytes largest;
  for (const ComparedJob& j : jobs) {
    out.columns.push_back({number_of(jobs, j), doc::Kind::size});
    if (&j != &jobs.front()) out.columns.push_back({number_of(jobs, j) + " - #1", doc::Kind::size});
    largest = std::max(largest, j.estimate.peak);
  }
  const doc::Unit unit = doc::unit_for(largest);
  const auto add = [&](const std::string& name, const std::vector<Bytes>& bytes) {
    doc::Row row{{name}};
    for (size_t i = 0; i < jobs.size(); ++i) {
      row.cells.emplace_back(doc::In{bytes[i], unit});
      if (i > 0) row.cells.push_back(doc::dim(difference_in(bytes[i] - bytes[0], unit)));
    }
    out.rows.push_back(std::move(row));
  };
  std::vector<Bytes> other(jobs.size());
  for (const std::string& name : categories(jobs)) {
    std::vector<Bytes> bytes;
    for (const ComparedJob& j : jobs) bytes.push_back(part(j.estimate, name));
    const bool small = std::all_of(bytes.begin(), bytes.end(), [&](Bytes b) { return b.count * 1000 < largest.count; });
    if (!small) add(name, bytes);
    for (size_t i = 0; small && i < jobs.size(); ++i) other[i] += bytes[i];
  }
  if (std::any_of(other.begin(), other.end(), [&](Bytes b) { return b.count * 2000 >= largest.count; })) add("other", other);
  return out;
}

doc::Table verdicts_table(const std::vector<ComparedJob>& jobs) {
  doc::Table out{{{"device"}, {"job"}, {"verdict"}, {"margin", doc::Kind::size}}};
  for (size_t d = 0; d < jobs.front().fits.size(); ++d)
    for (const ComparedJob& j : jobs) {
      const Fit& f = j.fits[d];
      out.rows.push_back({{f.device.name, number_of(jobs, j) + " " + j.name, verdict_text(f.verdict),
                           f.device.capacity ? doc::Text(doc::Change{f.margin}) : doc::Text("?")}});
    }
  return out;
}

}  // namespace

doc::Document compare_document(const std::vector<ComparedJob>& jobs) {
  doc::Document out;
  out.blocks = headlines(jobs);
  doc::append(out.blocks, {doc::Heading{"Peaks"}, peaks_table(jobs),
                           doc::Heading{"What is alive at the peak, and the difference from the first"}, parts_table(jobs)});
  if (!jobs.front().fits.empty()) doc::append(out.blocks, {doc::Heading{"Will it fit?"}, verdicts_table(jobs)});
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
    job["headline"] = j.fits.empty() ? headline_text(e) : headline_text(j.fits[0]);
    job["insights"] = insights_json(j.insights);
    out["jobs"].push_back(job);
  }
  return out;
}

}  // namespace plimsoll
