#include "api/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/host_request.h"
#include "api/plan_files.h"
#include "api/plan_matrix.h"
#include "estimate/calibration.h"
#include "job/lint.h"
#include "plan/layouts.h"
#include "plan/plan.h"
#include "report/layouts_report.h"
#include "report/plan_report.h"
#include "util/output_file.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr const char* kKnobsHint = R"(a list of what a plan turns: ["precision", "optimizer"])";

std::vector<TargetDevice> devices_of(const SearchRequest& request) {
  if (request.devices.names.empty() && request.devices.group.empty()) {
    DeviceRequest here = request.devices;
    here.names = {"this"};
    return here.devices();
  }
  return request.devices.devices();
}

Cluster cluster_of(const SearchRequest& r) { return {r.node, r.network * 1e9}; }

// The user's own step time, or what was timed of like runs on this machine.
Calibration calibration_of(const SearchRequest& r, const Job& job, const TargetDevice& device) {
  if (r.step_time != 0) return calibrate(job, device.spec, r.step_time, cluster_of(r));
  if (!r.calibrated || job.framework != Framework::pytorch) return {};
  const std::vector<MeasuredRun> runs = read_measured_runs(measured_runs_file());
  const std::string label = device_label(device);
  const auto timed = [&](const MeasuredRun& m) { return m.device == label && m.family == job.family && m.measured_seconds > 0; };
  if (std::none_of(runs.begin(), runs.end(), timed)) return {};
  const std::optional<StepRatio> ratio = step_ratio(measured_run(estimate(job, 0, device.spec), label), runs);
  if (!ratio) return {};
  return {ratio->factor, fmt::format("{} run{} like it on this machine took {:.2f} times as long as predicted", ratio->runs,
                                     ratio->runs == 1 ? "" : "s", ratio->factor)};
}

PlanRequest plan_request(const SearchRequest& r, const Job& job, const std::vector<TargetDevice>& devices) {
  PlanRequest out;
  out.job = job;
  out.wishes.keep = {r.keep.begin(), r.keep.end()};
  out.wishes.allow = {r.allow.begin(), r.allow.end()};
  if (r.total_batch != 0) out.wishes.global_batch = r.total_batch;
  out.wishes.gpus = r.num_gpus;
  if (r.goal != "gpus") out.objective = parse_objective(r.goal);
  out.leave_free = r.leave_free;
  out.calibration = calibration_of(r, job, devices.front());
  out.cluster = cluster_of(r);
  out.brief = devices.size() > 1;
  out.full = r.full;
  out.progress = r.progress;
  return out;
}

void check(const SearchRequest& r) {
  const auto refuse = [](const std::string& what, const char* hint) { throw Error("[plan] " + what, hint, ExitCode::usage); };
  if (r.total_batch < 0 || r.total_batch > int64_t{1} << 31)
    refuse(fmt::format("a total batch of {}", r.total_batch), "--total-batch is between 1 and 2^31");
  if (r.num_gpus < 1 || r.num_gpus > 1 << 20) refuse(fmt::format("{} devices", r.num_gpus), "--num-gpus is 1 or more");
  if (r.world < 0 || r.world > 1 << 17) refuse(fmt::format("--world {}", r.world), "the number of devices, at most 131072");
  if (r.node < 1 || r.node > 1 << 17) refuse(fmt::format("nodes of {} devices", r.node), "--node is 1 or more; 8 when it is left out");
  if (!(r.network > 0 && r.network <= 1e5))
    refuse(fmt::format("a network of {} GB/s", r.network), "--network is what a device reaches other nodes with, e.g. 40 for 400 Gb/s");
  if (!(r.leave_free >= 0 && r.leave_free < 1))
    refuse(fmt::format("{} of the device left free", r.leave_free), "--leave-free is a part, e.g. 0.1");
  if (r.step_time != 0 && !(r.step_time >= 1e-6 && r.step_time <= 1e6))
    refuse(fmt::format("a step of {} seconds", r.step_time),
           "--step-time is what one optimizer step takes, between a microsecond and a million seconds");
  if (!r.write.empty()) check_new_file(r.write);
  if (r.flags + r.diff + !r.generate.empty() > 1) refuse("--flags, --diff and --generate are three answers", "ask for one of them");
}

// With as few devices as will do: one, two, four, ... up to what is allowed.
std::vector<Plan> fewest_gpus(PlanRequest request, const std::vector<TargetDevice>& devices) {
  std::vector<Plan> plans;
  const int64_t most = request.wishes.gpus;
  for (int64_t n = 1;; n = std::min(n * 2, most)) {
    request.wishes.gpus = n;
    plans = make_plans(request, devices);
    if (n == most || std::any_of(plans.begin(), plans.end(), [](const Plan& p) { return p.best.has_value(); })) return plans;
  }
}

// Where the user's file has no word for something, the plan does without it if it can.
std::vector<Plan> sayable(const SearchRequest& request, const Job& job, PlanRequest plan, const std::vector<TargetDevice>& devices,
                          std::vector<Plan> plans) {
  if (plans.size() != 1) return plans;
  for (std::vector<std::string> settings = unsaid(request, job, plans[0]); !settings.empty();) {
    plan.wishes.without.insert(settings.begin(), settings.end());
    std::vector<Plan> other = make_plans(plan, devices);
    if (!other[0].best) return plans;
    plans = std::move(other);
    std::vector<std::string> more = unsaid(request, job, plans[0]);
    if (more == settings) return plans;
    settings = std::move(more);
  }
  return plans;
}

// Before its flags, and after them.
std::pair<std::string, std::string> run_text(const JobRequest& job) {
  if (job.run.size() == 1) return {"plimsoll estimate " + job.run[0], ""};
  if (job.run.empty()) return {"plimsoll estimate --job " + job.job_file, ""};
  return {"plimsoll estimate", " -- " + join(job.run, " ")};
}

// The plan's own host side, or that of the run as it is when there is no plan.
struct HostAnswer {
  Estimate estimate;
  HostSections sections;
};

std::optional<HostAnswer> host_of(const SearchRequest& request, const Plan& plan) {
  if (request.host_memory.empty()) return std::nullopt;
  const Job& job = plan.best ? plan.best->run.job : plan.as_is.job;
  if (job.framework != Framework::pytorch)
    throw Error("[plan] host memory is for framework pytorch", "leave --host-memory out with framework jax", ExitCode::usage);
  HostRequest host;
  host.memory = request.host_memory;
  HostAnswer out{estimate(job, 0, plan.device.spec), {}};
  out.sections = host_sections(host, out.estimate);
  return out;
}

}  // namespace

void check_rules(const std::string& rules) {
  if (rules != "ai-toolkit")
    throw Error("[plan] rules '" + printable(rules, 60) + "' are not known", did_you_mean(rules, {"ai-toolkit"}), ExitCode::usage);
}

SearchRequest search_request(const nlohmann::json& request) {
  const Config fields = request_of(
      request, with_device_keys(with_job_keys({"goal", "keep", "allow", "total_batch", "num_gpus", "leave_free", "step_time", "host_memory",
                                               "matrix", "world", "layouts", "node", "network", "full", "calibrated"})));
  SearchRequest out;
  out.job = job_request(fields);
  out.devices = device_request(fields);
  out.goal = fields.text({"goal"}, out.goal);
  out.keep = texts(fields, "keep", kKnobsHint);
  out.allow = texts(fields, "allow", kKnobsHint);
  if (fields.find({"total_batch"})) out.total_batch = fields.size({"total_batch"}, 1);
  out.num_gpus = fields.size({"num_gpus"}, 1);
  out.leave_free = fields.number({"leave_free"}, 0);
  out.step_time = fields.number({"step_time"}, 0);
  out.host_memory = text_or_number(fields, "host_memory");
  out.matrix = fields.text({"matrix"}, "");
  out.world = fields.integer({"world"}, 0);
  out.layouts = texts(fields, "layouts", R"(a list of kinds of layout: ["fsdp2", "megatron"])");
  out.node = fields.integer({"node"}, out.node);
  out.network = fields.number({"network"}, out.network);
  out.full = fields.flag({"full"}, false);
  out.calibrated = fields.flag({"calibrated"}, false);
  return out;
}

namespace {

LayoutRequest layout_request(const SearchRequest& r, const Job& job, const TargetDevice& device) {
  LayoutRequest out;
  out.job = job;
  out.device = device;
  out.world = r.world;
  out.global_batch = r.total_batch;
  out.kinds = {r.layouts.begin(), r.layouts.end()};
  out.keep = {r.keep.begin(), r.keep.end()};
  out.leave_free = r.leave_free;
  out.cluster = cluster_of(r);
  out.calibration = calibration_of(r, job, device);
  out.progress = r.progress;
  return out;
}

ExitCode answer_layouts(const SearchRequest& request, const Job& job, const std::vector<TargetDevice>& devices, const Show& show) {
  if (devices.size() != 1) throw Error("[plan] --world is asked for one kind of device", "name it with --gpu", ExitCode::usage);
  if (request.flags || request.diff)
    throw Error("[plan] --world has its flags in its answer", "leave --flags and --diff out, or --generate a file", ExitCode::usage);
  const LayoutRequest layouts = layout_request(request, job, devices[0]);
  const LayoutPlan plan = request.goal == "gpus" ? plan_fewest_devices(layouts) : plan_layouts(layouts);
  if (!request.generate.empty()) return answer_with_launch_file(request, plan, show);
  show([&](const Style& style) { return layouts_text(plan, style); }, [&] { return layouts_json(plan); });
  return plan.fitting.empty() ? ExitCode::no : ExitCode::ok;
}

}  // namespace

ExitCode answer(const SearchRequest& request, const Show& show) {
  check(request);
  Job job = request.job.job();
  if (!request.matrix.empty()) return answer_matrix(request, job, show);
  const std::vector<TargetDevice> devices = devices_of(request);
  if (request.world > 0) return answer_layouts(request, job, devices, show);
  lint(job, devices.size() == 1 ? GpuFacts{devices[0].name, devices[0].spec.compute_capability} : GpuFacts{});
  PlanRequest plan = plan_request(request, job, devices);
  plan.wishes.placements = !wants_file(request);
  plan.brief |= wants_file(request);
  std::vector<Plan> plans = request.goal == "gpus" ? fewest_gpus(plan, devices) : make_plans(plan, devices);
  if (wants_file(request)) plans = sayable(request, job, plan, devices, std::move(plans));
  const bool any = std::any_of(plans.begin(), plans.end(), [](const Plan& p) { return p.best.has_value(); });
  if (wants_file(request)) return answer_with_file(request, job, plans, show);
  if (plans.size() == 1) {
    const std::optional<HostAnswer> host = host_of(request, plans[0]);
    show(
        [&](const Style& style) {
          return plan_text(plans[0], style) + (host ? "\n" + host_sections_text(host->sections, host->estimate, style) : "");
        },
        [&] {
          nlohmann::ordered_json out = plan_json(plans[0]);
          if (host) add_host_sections(out, host->sections);
          return out;
        });
  } else {
    const auto [run, after] = run_text(request.job);
    show([&, run = run, after = after](const Style& style) { return plans_table(plans, run, after, style); },
         [&] {
           nlohmann::ordered_json out{{"schema", 1}, {"plans", nlohmann::ordered_json::array()}};
           for (const Plan& p : plans) out["plans"].push_back(plan_json(p));
           return out;
         });
  }
  return any ? ExitCode::ok : ExitCode::no;
}

ExitCode answer_plan(const nlohmann::json& request, const Show& show) {
  if (!request.is_object() || !request.contains("rules")) return answer(search_request(request), show);
  check_rules(Config("request", request).text({"rules"}, ""));
  return answer(ai_toolkit_request(request), show);
}

}  // namespace plimsoll
