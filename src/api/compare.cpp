#include "api/compare.h"

#include <fmt/format.h>

#include <set>

#include "report/compare_report.h"
#include "report/estimate_report.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr size_t kMostCompared = 64;

void check_count(size_t runs) {
  if (runs > kMostCompared)
    throw Error(fmt::format("[vary] {} jobs are more than {}", runs, kMostCompared), "vary fewer settings at once", ExitCode::usage);
}

std::vector<NamedRun> with_each(const std::vector<NamedRun>& runs, const Variation& variation) {
  check_count(runs.size() * variation.values.size());
  std::vector<NamedRun> out;
  for (const NamedRun& run : runs) {
    for (const Variation::Value& v : variation.values) {
      NamedRun next = run;
      next.job.set(variation.key, v.value, "vary");
      next.name += (next.name.empty() ? "" : " ") + variation.key + "=" + v.text;
      out.push_back(std::move(next));
    }
  }
  return out;
}

ComparedJob compared(const NamedRun& run, const std::vector<TargetDevice>& devices) {
  const Job job = run.job.job();
  Runs runs;
  const std::optional<DeviceSpec> device = only_device(devices);
  Estimate e = estimate(runs, job, 0, device);
  std::vector<Insight> found = insights(e, *runs.execute(job, target_of(job, device)));
  return {run.name.empty() ? job.model : run.name, std::move(e), fits_of(runs, job, devices), std::move(found)};
}

// Each once, though several of the jobs have it.
doc::Blocks warnings_of(const std::vector<ComparedJob>& jobs) {
  Job all;
  std::set<std::tuple<std::string, std::string, std::string>> said;
  for (const ComparedJob& c : jobs)
    for (const Finding& f : c.estimate.job.findings)
      if (said.insert({f.source, f.setting, f.what}).second) all.findings.push_back(f);
  return warning_blocks(all);
}

// "gpt2", ["python", "train.py"], or {"name": "a", "run": "gpt2", "settings": {...}}; the settings of all come first.
NamedRun run_of(const nlohmann::json& value, const JobRequest& common) {
  const bool whole = value.is_object();
  const RequestKey name{"name", KeyType::text, "of the run in the answer"};
  const Config fields = request_of(whole ? value : nlohmann::json{{"run", value}}, job_keys() + std::vector{name});
  NamedRun out{"", job_request(fields)};
  read_value(fields, name, out.name);
  if (out.name.empty()) out.name = join(out.job.run, " ");
  if (out.job.run.empty()) out.job.run = common.run;
  if (out.job.job_file.empty()) out.job.job_file = common.job_file;
  if (out.job.as.empty()) out.job.as = common.as;
  out.job.add(common);
  return out;
}

Variation variation_of(const std::string& key, const nlohmann::json& values) {
  if (!values.is_array() || values.empty())
    throw Error(fmt::format("[request] vary: {} has no list of values", printable(key, 80)), R"(e.g. "vary": {"batch": [1, 2, 4]})");
  Variation out{key, {}};
  for (const nlohmann::json& v : values) out.values.push_back({v.is_string() ? v.get<std::string>() : dump(v), v});
  return out;
}

}  // namespace

std::vector<RequestKey> compare_request_keys() {
  return job_keys() + device_keys() +
         std::vector<RequestKey>{
             {"jobs", KeyType::list, R"(runs: what "run" may be, or objects with "name", "run", "job" and "settings")"},
             {"vary", KeyType::object, R"(settings with lists of values, one run for each combination: {"batch": [1, 2, 4]})"}};
}

CompareRequest compare_request(const nlohmann::json& request) {
  const Config fields = request_of(request, compare_request_keys());
  CompareRequest out;
  out.devices = device_request(fields);
  const JobRequest common = job_request(fields);
  if (const nlohmann::json* jobs = fields.find({"jobs"})) {
    if (!jobs->is_array()) throw Error("[request] jobs is not a list", R"(e.g. "jobs": ["gpt2", "gpt2-medium"])");
    for (const nlohmann::json& job : *jobs) out.runs.push_back(run_of(job, common));
  }
  if (out.runs.empty()) out.runs.push_back({join(common.run, " "), common});
  if (const nlohmann::json* vary = fields.find({"vary"})) {
    if (!vary->is_object()) throw Error("[request] vary is not an object", R"(e.g. "vary": {"batch": [1, 2, 4]})");
    for (const auto& item : vary->items()) out.varied.push_back(variation_of(item.key(), item.value()));
  }
  return out;
}

ExitCode answer(const CompareRequest& request, const Show& show) {
  const std::vector<TargetDevice> devices = request.devices.devices();
  if (request.varied.empty() && request.runs.size() < 2)
    throw Error("[compare] one job has nothing to be compared with", "name a second one, or --vary batch=1,2,4", ExitCode::usage);
  std::vector<NamedRun> runs = request.runs;
  check_count(runs.size());
  for (const Variation& v : request.varied) runs = with_each(runs, v);
  std::vector<ComparedJob> jobs;
  for (const NamedRun& run : runs) {
    jobs.push_back(compared(run, devices));
    if (show.progress && !show.progress(jobs.size(), runs.size(), "runs executed")) throw Cancelled{};
  }
  show(
      [&] {
        doc::Document document = compare_document(jobs);
        doc::append(document.blocks, warnings_of(jobs));
        return document;
      },
      [&] { return compare_json(jobs); });
  return ExitCode::ok;
}

}  // namespace plimsoll
