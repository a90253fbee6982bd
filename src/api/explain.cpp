#include "api/explain.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>

#include "api/explain_log.h"
#include "api/recorded_file.h"
#include "job/config_log.h"
#include "job/lint.h"
#include "model/registry.h"
#include "report/explain_report.h"

namespace plimsoll {

namespace {

// Whose defaults a missing key has: LlamaConfig for LlamaForCausalLM.
std::string configuration_class(const std::string& family) {
  const ModelEntry* entry = find_model(family);
  if (!entry || entry->classes.empty() || !entry->family->is_transformers()) return family;
  const std::string& name = entry->classes.front();
  const size_t end = std::min(name.find("For"), name.find("LMHead"));
  return (end == std::string::npos ? name : name.substr(0, end)) + "Config";
}

}  // namespace

Explanation explanation(Runs& runs, Job job, const std::optional<DeviceSpec>& device, size_t tensors) {
  const auto log = std::make_shared<ConfigLog>();
  job.config.watch(log);
  const Estimate e = estimate(runs, job, tensors, device);
  return explain_job(e, log->lookups(), configuration_class(job.family));
}

const Keys<ExplainRequest>& explain_keys() {
  using R = ExplainRequest;
  constexpr const char* kFailure = "After a failure";
  constexpr const char* kSnapshot = "Memory snapshots";
  static const Keys<R> kKeys{
      {.key = "log_of",
       .member = &R::run,
       .value = "RUN",
       .help = "the run whose log it is: a model, a file, a directory or a command in quotes",
       .group = kFailure,
       .flag = false},
      {.key = "verbose", .member = &R::verbose, .value = "", .help = "of a log: every change that may help, not three", .flag = false},
      {"bundle", &R::bundle, "FILE.tar", "write hardware, configuration, error and estimate to a tar archive, without secrets and names",
       kFailure},
      {"device", &R::device, "N", "the device to look at (default: the one with the most events)", kSnapshot, {0, UINT16_MAX}},
      {"marks", &R::marks, "N,N,...|TEXT", "where steps begin: numbers of entries, or a part of an annotation's or a place's name",
       kSnapshot}};
  return kKeys;
}

std::vector<RequestKey> explain_request_keys() { return job_keys() + device_keys() + described(explain_keys()); }

ExplainRequest explain_request(const nlohmann::json& request) {
  const Config fields = request_of(request, explain_request_keys());
  ExplainRequest out;
  out.job = job_request(fields);
  out.devices = device_request(fields);
  read_keys(fields, explain_keys(), out);
  return out;
}

ExitCode answer(const ExplainRequest& request, const Show& show) {
  check_bundle(request);
  if (request.device && (*request.device < 0 || *request.device > UINT16_MAX))
    throw Error(fmt::format("[explain] device {} is not the number of a device", *request.device), "the first one is 0");
  if (is_recorded_file(request.job.run))
    return answer(RecordedFileRequest{request.job.run[0], request.device, request.marks, show.progress}, show);
  if (request.device || !request.marks.empty())
    throw Error("[explain] --device and --marks are for memory snapshots", "name the snapshot's file", ExitCode::usage);
  if (auto log = read_log(request.job.run, show)) return answer_log(request, std::move(*log), show);
  if (!request.run.empty())
    throw Error("[explain] --run describes the run beside a log, and no log is given", "plimsoll explain LOG --run " + request.run,
                ExitCode::usage);
  Job job = request.job.job();
  const std::vector<TargetDevice> devices = request.devices.devices();
  lint(job, devices.size() == 1 ? GpuFacts{devices[0].name, devices[0].spec.compute_capability} : GpuFacts{});
  Runs runs;
  Explanation x = explanation(runs, job, only_device(devices), 0);
  x.fits = fits_of(runs, job, devices);
  HelpBundle bundle;
  bundle.estimate = x.estimate;
  const std::optional<WrittenBundle> written = save_bundle(request, std::move(bundle), request.job.run);
  show([&] { return explain_document(x); },
       [&] {
         nlohmann::ordered_json json = explain_json(x);
         add_bundle(json, request, written);
         return json;
       });
  if (written) show.note(bundle_note(request, *written));
  return ExitCode::ok;
}

}  // namespace plimsoll
