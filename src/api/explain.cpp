#include "api/explain.h"

#include <fmt/format.h>

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

ExplainRequest explain_request(const nlohmann::json& request) {
  const Config fields = request_of(request, with_device_keys(with_job_keys({"log_of", "bundle", "device", "marks"})));
  ExplainRequest out{job_request(fields), device_request(fields), fields.text({"log_of"}, ""), fields.text({"bundle"}, "")};
  out.marks = fields.text({"marks"}, "");
  if (const std::optional<int64_t> device = fields.optional_integer({"device"})) {
    if (*device < 0 || *device > UINT16_MAX)
      throw Error(fmt::format("[explain] device {} is not the number of a device", *device), "the first one is 0");
    out.device = static_cast<int>(*device);
  }
  return out;
}

ExitCode answer(const ExplainRequest& request, const Show& show) {
  check_bundle(request);
  if (is_recorded_file(request.job.run))
    return answer(RecordedFileRequest{request.job.run[0], request.device, request.marks, request.progress}, show);
  if (request.device || !request.marks.empty())
    throw Error("[explain] --device and --marks are for memory snapshots", "name the snapshot's file", ExitCode::usage);
  if (auto log = read_log(request.job.run)) return answer_log(request, std::move(*log), show);
  if (!request.run.empty())
    throw Error("[explain] --run describes the run beside a log, and no log is given", "plimsoll explain LOG --run " + request.run,
                ExitCode::usage);
  Job job = request.job.job();
  const std::vector<TargetDevice> devices = request.devices.devices();
  lint(job, devices.size() == 1 ? GpuFacts{devices[0].name, devices[0].spec.compute_capability} : GpuFacts{});
  Runs runs;
  Explanation x = explanation(runs, job, only_device(devices), 0);
  x.fits = fits_of(runs, job, devices);
  show([&](const Style& style) { return explain_text(x, style); }, [&] { return explain_json(x); });
  HelpBundle bundle;
  bundle.estimate = x.estimate;
  save_bundle(request, std::move(bundle), request.job.run);
  return ExitCode::ok;
}

}  // namespace plimsoll
