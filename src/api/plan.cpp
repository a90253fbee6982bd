#include "api/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/host_request.h"
#include "api/plan_files.h"
#include "api/plan_generate.h"
#include "api/plan_matrix.h"
#include "api/trainer_words.h"
#include "estimate/calibration.h"
#include "job/distribution.h"
#include "job/lint.h"
#include "plan/layout_kinds.h"
#include "plan/layouts.h"
#include "plan/plan.h"
#include "report/estimate_report.h"
#include "report/layouts_report.h"
#include "report/plan_report.h"
#include "util/output_file.h"
#include "util/text.h"

namespace plimsoll {

namespace {

std::vector<TargetDevice> devices_of(const SearchRequest& request) {
  if (request.devices.names.empty() && request.devices.group.empty()) {
    DeviceRequest here = request.devices;
    here.names = {"this"};
    return here.devices();
  }
  return request.devices.devices();
}

constexpr double kPreferFree = 0.03;  // of the device: about what two runs of one program differ by

Cluster cluster_of(const SearchRequest& r) { return {r.node, r.network * 1e9}; }

// The user's own step time, or what was timed of like runs on this machine.
Calibration calibration_of(const SearchRequest& r, const Job& job, const TargetDevice& device) {
  if (r.step_time != 0) return calibrate(job, device.spec, r.step_time, cluster_of(r));
  if (!r.calibrated || job.program.framework != Framework::pytorch) return {};
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
  out.constraints.keep = {r.keep.begin(), r.keep.end()};
  out.constraints.allow = {r.allow.begin(), r.allow.end()};
  if (r.total_batch != 0) out.constraints.global_batch = r.total_batch;
  out.constraints.gpus = r.num_gpus;
  if (r.goal != "gpus") out.objective = parse_objective(r.goal);
  out.leave_free = r.leave_free.value_or(0);
  if (!r.leave_free) out.prefer_free = kPreferFree;
  out.calibration = calibration_of(r, job, devices.front());
  out.cluster = cluster_of(r);
  out.brief = devices.size() > 1;
  out.full = r.full;
  return out;
}

// --gpu 8xh100-sxm is --gpu h100-sxm --num-gpus 8.
SearchRequest with_counted_devices(SearchRequest r) {
  const int64_t count = r.devices.count();
  if (count == 1) return r;
  if (r.world == 0 && r.num_gpus == 1) r.num_gpus = count;
  if (const int64_t said = r.world != 0 ? r.world : r.num_gpus; said != count)
    throw Error(fmt::format("[plan] --gpu {} are {} devices, and {} {} says otherwise", r.devices.names[0], count,
                            r.world != 0 ? "--world" : "--num-gpus", said),
                "leave one of the two out", ExitCode::usage);
  return r;
}

void check_goal(const SearchRequest& r) {
  static const std::vector<std::string> kGoals{"throughput", "memory", "batch", "sequence", "gpus"};
  const auto refuse = [](const std::string& what, const std::string& hint) { throw Error("[plan] " + what, hint, ExitCode::usage); };
  if (std::find(kGoals.begin(), kGoals.end(), r.goal) == kGoals.end())
    refuse(fmt::format("the goal '{}' is not known", printable(r.goal, 60)), did_you_mean(r.goal, kGoals));
  if (r.goal == "gpus" && r.num_gpus == 1 && r.world == 0)
    refuse("--goal gpus: how many devices there are is not said", "--num-gpus 8 for those of one machine, --world 64 for a cluster");
  if (r.world > 0 && r.goal != "gpus" && r.goal != "throughput")
    refuse(fmt::format("--goal {} is not for --world", r.goal),
           "layouts are searched for throughput, or for the fewest devices: --goal gpus");
}

void check(const SearchRequest& r) {
  check_goal(r);
  const auto refuse = [](const std::string& what, const char* hint) { throw Error("[plan] " + what, hint, ExitCode::usage); };
  if (r.total_batch < 0 || r.total_batch > int64_t{1} << 31)
    refuse(fmt::format("a total batch of {}", r.total_batch), "--total-batch is between 1 and 2^31");
  if (r.num_gpus < 1 || r.num_gpus > 1 << 20) refuse(fmt::format("{} devices", r.num_gpus), "--num-gpus is 1 or more");
  if (r.world < 0 || r.world > 1 << 17) refuse(fmt::format("--world {}", r.world), "the number of devices, at most 131072");
  if (r.node < 1 || r.node > 1 << 17) refuse(fmt::format("nodes of {} devices", r.node), "--node is 1 or more; 8 when it is left out");
  if (!(r.network > 0 && r.network <= 1e5))
    refuse(fmt::format("a network of {} GB/s", r.network), "--network is the inter-node bandwidth per device, e.g. 40 for 400 Gb/s");
  if (r.leave_free && !(*r.leave_free >= 0 && *r.leave_free < 1))
    refuse(fmt::format("{} of the device left free", *r.leave_free), "--leave-free is a part, e.g. 0.1");
  if (r.step_time != 0 && !(r.step_time >= 1e-6 && r.step_time <= 1e6))
    refuse(fmt::format("a step of {} seconds", r.step_time),
           "--step-time is what one optimizer step takes, between a microsecond and a million seconds");
  if (!r.write.empty()) check_new_file(r.write);
  if (r.flags + r.diff + !r.generate.empty() > 1) refuse("--flags, --diff and --generate are mutually exclusive", "ask for one of them");
  if (r.flags && !r.write.empty()) refuse("--flags makes no file to write", "leave --write out, or --flags");
  if (!r.host_memory.empty() && (r.world > 0 || wants_file(r)))
    refuse("--host-memory is answered beside a plan alone", "ask for it without --world, --flags, --diff, --write and --generate");
}

// How many devices a run has is its own affair once it says so.
void check_devices(const SearchRequest& r, const Job& job) {
  if (r.num_gpus == 1) return;
  if (job.program.framework == Framework::jax)
    throw Error(fmt::format("[plan] --num-gpus {} is for framework pytorch", r.num_gpus), "JAX's devices are --replicas", ExitCode::usage);
  if (is_distributed(job))
    throw Error(fmt::format("[plan] --num-gpus {} beside a run that says its layout over {} ranks itself", r.num_gpus, world_size(job)),
                "leave one of the two out", ExitCode::usage);
}

// A table shows runs as they are asked for: what a plan would be made by has no meaning there.
void check_matrix(const SearchRequest& r) {
  const std::pair<const char*, bool> others[]{{"--goal", r.goal != "throughput"},
                                              {"--keep", !r.keep.empty()},
                                              {"--allow", !r.allow.empty()},
                                              {"--total-batch", r.total_batch != 0},
                                              {"--num-gpus", r.num_gpus != 1},
                                              {"--leave-free", r.leave_free.has_value()},
                                              {"--host-memory", !r.host_memory.empty()},
                                              {"--step-time", r.step_time != 0},
                                              {"--world", r.world != 0},
                                              {"--layouts", !r.layouts.empty()},
                                              {"--flags", r.flags},
                                              {"--diff", r.diff},
                                              {"--write", !r.write.empty()},
                                              {"--generate", !r.generate.empty()}};
  for (const auto& [flag, given] : others)
    if (given)
      throw Error(fmt::format("[plan] {} means nothing to --matrix, which shows runs as they are", flag), "leave one of the two out",
                  ExitCode::usage);
}

bool any_fits(const std::vector<Plan>& plans) {
  return std::any_of(plans.begin(), plans.end(), [](const Plan& p) { return p.best.has_value(); });
}

// Somebody ended the search: no other is begun.
bool any_unfinished(const std::vector<Plan>& plans) {
  return std::any_of(plans.begin(), plans.end(), [](const Plan& p) { return p.unfinished; });
}

// As few devices as will do, of those that there are: doubled until something fits, then halved in between. All of them when nothing does.
int64_t fewest_devices(PlanRequest request, const std::vector<TargetDevice>& devices) {
  const int64_t most = request.constraints.gpus;
  request.brief = true;
  const auto fits = [&](int64_t n) {
    request.constraints.gpus = n;
    return any_fits(make_plans(request, devices));
  };
  int64_t few = 0, enough = 1;
  while (!fits(enough)) {
    if (enough == most) return most;
    few = enough;
    enough = std::min(enough * 2, most);
  }
  while (enough - few > 1) (fits((few + enough) / 2) ? enough : few) = (few + enough) / 2;
  return enough;
}

// Where the user's file has no word for something all the same, the plan does without it if it can.
std::vector<Plan> without_unwritten(const SearchRequest& request, const TrainerWords& words, PlanRequest plan,
                                    const std::vector<TargetDevice>& devices, std::vector<Plan> plans) {
  if (plans.size() != 1) return plans;
  std::vector<std::string> left_out;
  for (std::vector<std::string> settings = unwritten_settings(request, words, plans[0]); !settings.empty();) {
    plan.constraints.without.insert(settings.begin(), settings.end());
    std::vector<Plan> other = make_plans(plan, devices);
    if (!other[0].best || any_unfinished(other)) return plans;
    plans = std::move(other);
    left_out.insert(left_out.end(), settings.begin(), settings.end());
    if (request.flags) plans[0].not_in_flags = left_out;
    std::vector<std::string> more = unwritten_settings(request, words, plans[0]);
    if (more == settings) return plans;
    settings = std::move(more);
  }
  return plans;
}

// Inside what the user's file or command can say, so that the plan, its flags, its difference and its file are one answer.
std::vector<Plan> plans_in_words(const SearchRequest& request, const TrainerWords& words, PlanRequest plan,
                                 const std::vector<TargetDevice>& devices) {
  const std::set<std::string> environment = environment_levers(plan.job);
  const bool beside = !words.is_script() && !words.is_own_file();  // variables are no part of the text
  plan.constraints.placements = words.is_own_file();
  plan.constraints.without = words.unsaid();
  if (beside) plan.constraints.without.insert(environment.begin(), environment.end());
  plan.beyond_words = !plan.brief && !words.is_own_file();
  std::vector<Plan> plans = make_plans(plan, devices);
  if (any_unfinished(plans)) return plans;
  if (beside && !any_fits(plans)) {
    PlanRequest with_variable = plan;
    for (const std::string& name : environment) with_variable.constraints.without.erase(name);
    if (std::vector<Plan> others = make_plans(with_variable, devices); any_fits(others)) {
      plan = std::move(with_variable);
      plans = std::move(others);
    }
  }
  plans = without_unwritten(request, words, plan, devices, std::move(plans));
  for (Plan& p : plans) {
    p.trainer = words.trainer();
    take_consequences(p, words);
  }
  return plans;
}

std::vector<Plan> plans_for(const SearchRequest& request, const TrainerWords& words, const PlanRequest& plan,
                            const std::vector<TargetDevice>& devices) {
  if (!request.generate.empty()) return plans_to_generate(request, plan, devices);
  if (request.unrestricted || !words.any()) return make_plans(plan, devices);
  std::vector<Plan> plans = plans_in_words(request, words, plan, devices);
  if (plans.size() == 1 || any_unfinished(plans)) return plans;
  for (size_t i = 0; i < plans.size(); ++i)  // a table has something for every device
    if (!plans[i].best) plans[i] = make_plans(plan, {devices[i]}).front();
  return plans;
}

// The plan's own host side, or that of the run as it is when there is no plan.
struct HostAnswer {
  Estimate estimate;
  HostSections sections;
};

std::optional<HostAnswer> host_of(const SearchRequest& request, const Plan& plan) {
  if (request.host_memory.empty()) return std::nullopt;
  const Job& job = plan.best ? plan.best->run.job : plan.as_is.job;
  if (job.program.framework != Framework::pytorch)
    throw Error("[plan] host memory is for framework pytorch", "leave --host-memory out with framework jax", ExitCode::usage);
  HostRequest host;
  host.memory = request.host_memory;
  HostAnswer out{estimate(job, 0, plan.device.spec), {}};
  out.sections = host_sections(host, out.estimate);
  return out;
}

std::string layout_names() {
  std::vector<std::string> names;
  for (const LayoutKind& k : layout_kinds()) names.emplace_back(k.name);
  return join(names, ", ");
}

}  // namespace

const Keys<SearchRequest>& plan_keys() {
  using R = SearchRequest;
  constexpr const char* kGoal = "The goal";
  constexpr const char* kCluster = "Many devices";
  constexpr const char* kAnswer = "The answer";
  static const Keys<R> kKeys{
      {"goal", &R::goal, "NAME", "throughput (default), memory, batch, sequence or gpus (as few as will do)", kGoal},
      {"keep", &R::keep, "KNOB,...", "knobs that stay as they are (see below)", kGoal},
      {"allow", &R::allow, "KNOB,...", "also allow changes to these knobs: seq, model", kGoal},
      {"total_batch", &R::total_batch, "N", "samples of an optimizer step, all devices together", kGoal, kAboveZero},
      {"num_gpus", &R::num_gpus, "N", "devices there are: DDP, ZeRO-1 to -3, and FSDP2 are tried", kGoal, kAboveZero},
      {"world", &R::world, "N", "the fastest layouts for N devices with PyTorch, DeepSpeed, torchtitan and Megatron-LM", kCluster,
       kAboveZero},
      {"layouts", &R::layouts, "KIND,...", "only these kinds: " + layout_names(), kCluster},
      {"node", &R::node, "N", "devices of one node (default 8)", kCluster, kAboveZero},
      {"network", &R::network, "GB/S", "inter-node bandwidth per device, GB/s (default 40: a 400 Gb/s adapter each)", kCluster, kAboveZero},
      {"leave_free",
       &R::leave_free,
       "PART",
       "part of the device to leave free, beside the interval, e.g. 0.1; left out: 0.03 where that costs under 2 % of the time",
       kGoal,
       {0, 0.99}},
      {"unrestricted", &R::unrestricted, "", "also settings that the trainer of the file or command has no word for", kGoal},
      {"host_memory", SizeText<R>{&R::host_memory}, "BYTES", "RAM of the machine: does the plan fit there, too, and with how many workers?",
       kGoal},
      {"step_time", &R::step_time, "SECONDS", "measured seconds per step of the current run; calibrates the time estimates", kGoal,
       kAboveZero},
      {.key = "calibrated", .member = &R::calibrated, .value = "", .help = kCalibratedHelp, .flag = false},
      {"flags", &R::flags, "", "only what changes, as flags of the trainer, on one line", kAnswer},
      {"diff", &R::diff, "", "what changes in the file or script", kAnswer},
      {"write", &R::write, "FILE", "write the file with the changes; comments and all else stay", kAnswer},
      {"generate", &R::generate, "KIND",
       "a fresh file for the plan: deepspeed, accelerate, torchrun, training_arguments, ai_toolkit; with --world torchtitan and megatron, "
       "too",
       kAnswer},
      {"full", &R::full, "", "every candidate executed in full, even where that takes seconds each"},
      {"matrix", &R::matrix, "KEY=A,B,KEY=...", "need and verdict for all combinations, instead of a plan", kAnswer}};
  return kKeys;
}

std::vector<RequestKey> plan_request_keys() { return job_keys() + device_keys() + described(plan_keys()); }

SearchRequest search_request(const nlohmann::json& request) {
  if (request.is_object() && request.contains("rules"))
    throw Error("[plan] 'rules' is no longer a key of plan", kAiToolkitHint, ExitCode::usage);
  const Config fields = request_of(request, plan_request_keys());
  SearchRequest out;
  out.job = job_request(fields);
  out.devices = device_request(fields);
  read_keys(fields, plan_keys(), out);
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
  out.leave_free = r.leave_free.value_or(0);
  out.cluster = cluster_of(r);
  out.calibration = calibration_of(r, job, device);
  return out;
}

ExitCode answer_layouts(const SearchRequest& request, const Job& job, const std::vector<TargetDevice>& devices, const Show& show) {
  if (devices.size() != 1) throw Error("[plan] --world is asked for one kind of device", "name it with --gpu", ExitCode::usage);
  if (request.flags || request.diff)
    throw Error("[plan] --world has its flags in its answer", "leave --flags and --diff out, or --generate a file", ExitCode::usage);
  LayoutRequest layouts = layout_request(request, job, devices[0]);
  layouts.progress = show.progress;
  const LayoutPlan plan = request.goal == "gpus" ? plan_fewest_devices(layouts) : plan_layouts(layouts);
  if (!request.generate.empty()) return answer_with_launch_file(request, plan, show);
  show([&] { return layouts_document(plan); }, [&] { return layouts_json(plan); });
  return plan.fitting.empty() ? ExitCode::no : ExitCode::ok;
}

}  // namespace

ExitCode answer(const SearchRequest& asked, const Show& show) {
  const SearchRequest request = with_counted_devices(asked);
  check(request);
  Job job = request.job.job();
  if (!request.matrix.empty()) {
    check_matrix(request);
    return answer_matrix(request, job, show);
  }
  const std::vector<TargetDevice> devices = devices_of(request);
  check_devices(request, job);
  if (!request.host_memory.empty() && devices.size() > 1)
    throw Error(fmt::format("[plan] --host-memory is asked about one device, and {} were named", devices.size()),
                "name one: --gpu rtx-4090", ExitCode::usage);
  if (request.world > 0) return answer_layouts(request, job, devices, show);
  lint(job, devices.size() == 1 ? GpuFacts{devices[0].name, devices[0].spec.compute_capability} : GpuFacts{});
  PlanRequest plan = plan_request(request, job, devices);
  plan.progress = show.progress;
  plan.keep_best = show.best_so_far && !wants_file(request);
  const TrainerWords words(request.job, job);
  plan.brief |= wants_file(request);
  if (request.goal == "gpus") plan.constraints.gpus = fewest_devices(plan, devices);
  std::vector<Plan> plans = plans_for(request, words, plan, devices);
  for (Plan& p : plans) p.fewest = request.goal == "gpus";
  if (wants_file(request)) return answer_with_file(request, words, plans, show);
  if (plans.size() == 1) {
    const std::optional<HostAnswer> host = host_of(request, plans[0]);
    show(
        [&] {
          doc::Document document = plan_document(plans[0]);
          doc::append(document.blocks, warning_blocks(job));
          if (host) doc::append(document.blocks, host_blocks(host->sections, host->estimate));
          return document;
        },
        [&] {
          nlohmann::ordered_json out = plan_json(plans[0]);
          if (host) add_host_sections(out, host->sections);
          return out;
        });
    if (host && host->sections.verdict() == Verdict::does_not_fit) return ExitCode::no;
  } else {
    const CommandOf command = [&](const PlannedRun& run) { return command_for(request, words, run); };
    show([&] { return plans_document(plans, command); }, [&] { return plans_json(plans, command); });
  }
  if (any_unfinished(plans)) {
    show.note("plimsoll: ended before the search was over: this is the best of what was executed by then, not the plan\n");
    return Cancelled::kCode;
  }
  return any_fits(plans) ? ExitCode::ok : ExitCode::no;
}

}  // namespace plimsoll
