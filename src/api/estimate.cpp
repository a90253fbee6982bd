#include "api/estimate.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "allocator/snapshot_writer.h"
#include "estimate/calibration.h"
#include "estimate/insights.h"
#include "job/lint.h"
#include "report/estimate_screen.h"
#include "report/fit_report.h"
#include "report/levers_report.h"
#include "trace/trace_file.h"
#include "util/output_file.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int64_t kMostTensors = 1000;

// What the allocator is asked for: of a JAX job two calls of its compiled step.
void save_trace(const Run& run, const std::string& path) {
  write_trace(run.xla ? allocator_trace(*run.xla, run.xla->temporaries.usual) : run.simulation.trace, path);
}

// The same for memory_viz, which knows PyTorch's allocator alone.
void save_snapshot(const Run& run, const std::string& path) {
  const Job& job = run.job;
  if (job.program.framework != Framework::pytorch)
    throw Error("[estimate] --snapshot is for framework pytorch", "--save-trace writes what XLA's allocator is asked for", ExitCode::usage);
  check_output_file(path);
  write_output_file(path, snapshot_pickle(run.simulation.trace, parse_alloc_conf(job.alloc_conf), step_names(job)));
}

// The model of a host and the levers are those of a PyTorch process.
void check_framework(const EstimateRequest& request, const Job& job) {
  if (job.captured && request.host.any())
    throw Error("[estimate] host memory, unified memory and rules of thumb are for simulated runs",
                "leave their flags out: a capture knows the device", ExitCode::usage);
  if (job.program.framework == Framework::pytorch) return;
  if (request.host.any())
    throw Error("[estimate] host memory, unified memory and rules of thumb are for framework pytorch",
                "leave their flags out with framework jax", ExitCode::usage);
  if (request.what_if)
    throw Error("[estimate] --what-if is for framework pytorch", "with framework jax, compare: --vary donate=false,true", ExitCode::usage);
}

// The estimate for the first device that was asked about, and what follows from it. `e`: as far as one device alone was.
EstimateScreen screen_of(Runs& runs, const EstimateRequest& request, const Estimate& e, const std::vector<Fit>& fits,
                         const OnProgress& progress) {
  EstimateScreen out{e, fits, {}, {}, ""};
  const bool some = fits.size() > 1 && fits.size() <= kMostHeadlines;
  if (some) {
    out.estimate = estimate(runs, e.job, 0, fits[0].device.spec);
    out.estimate.memory = fits[0].memory;
  }
  const std::optional<DeviceSpec> device = fits.empty() || fits.size() > kMostHeadlines ? std::nullopt : std::optional(fits[0].device.spec);
  out.insights = insights(out.estimate, *runs.execute(e.job, target_of(e.job, device)));
  if (device && (fits[0].verdict == Verdict::does_not_fit || fits[0].verdict == Verdict::tight)) {
    out.change = cheapest_change(runs, e.job, fits[0], e.parameters, progress);
    out.fix_command = command_text("fix", request.job, request.devices, request.devices.names.empty() ? "" : request.devices.names[0]);
  }
  return out;
}

ExitCode exit_code(Verdict v) { return v == Verdict::does_not_fit ? ExitCode::no : v == Verdict::tight ? ExitCode::tight : ExitCode::ok; }

}  // namespace

const Keys<EstimateRequest>& estimate_keys() {
  using R = EstimateRequest;
  static const Keys<R> kKeys{
      {"save_trace", &R::save_trace, "FILE", "write the simulated allocations to FILE, for `plimsoll replay`"},
      {"snapshot", &R::snapshot, "FILE.pickle", "write the run as a PyTorch memory snapshot to FILE, for memory_viz"},
      {"top", &R::top, "N", "how many of the largest tensors to list (default 10); as a flag it turns --verbose on", "", {0, kMostTensors}},
      {"what_if", &R::what_if, "", "what each change of the recipe would save for this job, by simulating it"},
      {.key = "verbose",
       .member = &R::verbose,
       .value = "",
       .help = "everything: the module tree, the largest tensors, overheads and their sources, every step",
       .flag = false},
      {.key = "calibrated", .member = &R::calibrated, .value = "", .help = kCalibratedHelp, .flag = false}};
  return kKeys;
}

std::vector<RequestKey> estimate_request_keys() { return job_keys() + device_keys() + described(estimate_keys()) + described(host_keys()); }

EstimateRequest estimate_request(const nlohmann::json& request) {
  const Config fields = request_of(request, estimate_request_keys());
  EstimateRequest out;
  out.job = job_request(fields);
  out.devices = device_request(fields);
  read_keys(fields, host_keys(), out.host);
  read_keys(fields, estimate_keys(), out);
  return out;
}

ExitCode answer(const EstimateRequest& request, const Show& show) {
  if (request.top < 0 || request.top > kMostTensors)
    throw Error(fmt::format("[estimate] top {} is not from 0 to {}", request.top, kMostTensors), "e.g. 10");
  request.host.check();
  Job job = request.job.job();
  const std::vector<TargetDevice> devices = request.devices.devices();
  lint(job, devices.size() == 1 ? GpuFacts{devices[0].name, devices[0].spec.compute_capability} : GpuFacts{});
  check_framework(request, job);
  Runs runs;
  Estimate e = estimate(runs, job, static_cast<size_t>(request.top), only_device(devices));
  std::vector<Fit> fits = fits_of(runs, job, devices);
  const std::shared_ptr<const Run> run = runs.execute(job, target_of(job, only_device(devices)));
  if (!request.save_trace.empty()) save_trace(*run, request.save_trace);
  if (!request.snapshot.empty()) save_snapshot(*run, request.snapshot);
  std::optional<Correction> tensors;
  if (request.calibrated) {
    calibrate(e, fits);
    calibrate(e);
    tensors = tensors_correction(e);
  }
  std::optional<WhatIf> changes;
  if (request.what_if) changes = what_if(runs, job, devices.empty() ? std::nullopt : std::optional(devices[0]), show.progress);
  const EstimateScreen screen = screen_of(runs, request, e, fits, show.progress);
  const HostSections machine = host_sections(request.host, e);
  show(
      [&] {
        doc::Document document = screen_head(screen);
        doc::append(document.blocks, request.verbose ? estimate_document(e, request.text).blocks : screen_rows(screen));
        doc::append(document.blocks, warning_blocks(e.job));
        if (tensors) document.blocks.emplace_back(tensors_facts(*tensors));
        if (request.verbose) doc::append(document.blocks, fits_blocks(fits));
        if (changes) doc::append(document.blocks, what_if_blocks(*changes));
        doc::append(document.blocks, host_blocks(machine, e));
        return document;
      },
      [&] {
        nlohmann::ordered_json json = estimate_json(e);
        json["headline"] = headline_text(screen);
        json["insights"] = insights_json(screen.insights);
        json["cheapest_change"] = change_json(screen.change);
        if (tensors) json["tensors_correction"] = correction_json(*tensors);
        json["executions"] = runs.executed();
        json["fits"] = fits_json(fits);
        json["findings"] = findings_json(e.job);
        if (changes) json["what_if"] = what_if_json(*changes);
        add_host_sections(json, machine);
        return json;
      });
  const ExitCode host = exit_code(machine.verdict()), device = exit_code_of(fits);
  return host == ExitCode::no || device == ExitCode::ok ? host : device;
}

}  // namespace plimsoll
