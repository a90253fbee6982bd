#include "api/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "api/explain.h"
#include "api/recorded_file.h"
#include "estimate/stand_in.h"
#include "job/distribution.h"
#include "job/lint.h"
#include "report/card.h"
#include "report/page.h"
#include "report/renderers.h"
#include "systems/seed_report.h"
#include "util/parse_bytes.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr size_t kTensorsOfPage = 40;

std::string rank_names(int64_t first, int64_t count) {
  return count > 1 ? fmt::format("{} to {}", first, first + count - 1) : std::to_string(first);
}

// Processes of one job, those that are alike in one row; of replicas of the same shards, one. Megatron-LM and torchtitan number their ranks
// with the pipeline outermost: a stage has one run of them.
std::vector<PageRank> ranks_of(const Run& run, const Estimate& e, const std::optional<DeviceSpec>& device) {
  const int64_t world = world_size(run.job);
  std::vector<PageRank> out;
  if (world <= 1 || !e.memory) return out;
  const bool stages = run.job.program.has_stages();
  if (run.ranks.empty()) {
    const std::optional<int64_t> named = ranks_of(run.job).named;
    return {{named ? rank_names(*named, 1) : rank_names(0, world), *e.memory}};
  }
  const int64_t each = stages ? world / static_cast<int64_t>(run.ranks.size()) : 1;
  for (const RankRun& r : run.ranks) {
    const std::string name = stages ? fmt::format("{} ({})", rank_names(r.span.first * each, each), r.name)
                                    : rank_names(r.span.first, r.span.last - r.span.first + 1);
    const DeviceFacts facts{device, run.job.platform.torch, uses_convolutions(run.simulation.trace), world};
    out.push_back({name, with_stand_in_range(run.job, run.simulation.trace, device_memory(r.cuda, facts))});
  }
  if (const int64_t more = ranks_of(run.job).left_out; more > 0) out.back().name += fmt::format(", {} more not executed", more);
  return out;
}

// Every device of the catalogue that has its memory established and is not asked about already.
std::vector<Fit> other_devices(Runs& runs, const Job& job, const std::vector<TargetDevice>& asked) {
  Fitting fitting(runs, job);
  std::vector<Fit> out;
  for (const DeviceSpec& spec : catalogue()) {
    const TargetDevice d = target_device(spec);
    const bool known = std::any_of(asked.begin(), asked.end(), [&](const TargetDevice& a) { return a.spec.id == spec.id; });
    if (d.capacity && !known) out.push_back(fitting.need_on(d));
  }
  return out;
}

// The user's own question with some changes; `request` outlives it.
std::function<std::string(const Patch&)> typed(const ReportRequest& request) {
  const std::string device = request.devices.names.empty() ? "" : request.devices.names[0];
  return [&request, device](const Patch& changes) {
    JobRequest changed = request.job;
    changed.settings = merged(changed.settings, changes);
    return command_text("estimate", changed, request.devices, device);
  };
}

std::optional<MeasuredMemory> measured_of(const ReportRequest& request) {
  if (request.measured.empty()) return std::nullopt;
  if (is_recorded_file({request.measured})) return measured_file({request.measured, {}, "", request.progress});
  std::error_code none;
  if (std::filesystem::exists(request.measured, none))
    throw Error("[report] " + printable(request.measured, 120) + " is no recording of memory",
                "torch.cuda.memory._dump_snapshot() writes one; or give what nvidia-smi showed: --measured 35GiB", ExitCode::usage);
  return MeasuredMemory{"as given", {{"device", parse_bytes(request.measured, "--measured").count}}, {}};
}

Plan plan_for(const Runs& runs, const Job& job, const TargetDevice& device, const OnProgress& progress) {
  PlanRequest request;
  request.job = job;
  request.known = &runs;
  request.progress = progress;
  return make_plans(request, {device}).front();
}

// Other devices, levers and a plan.
void add_recommendations(JobPage& page, Runs& runs, const Job& job, const std::vector<TargetDevice>& devices, const OnProgress& progress) {
  if (devices.size() < 2) page.table = other_devices(runs, job, devices);
  if (page.explanation.estimate.xla) return;
  page.what_if = what_if(runs, job, devices.empty() ? std::nullopt : std::optional(devices[0]), progress);
  if (!devices.empty() && devices[0].capacity) page.plan = plan_for(runs, job, devices[0], progress);
}

JobPage job_page(const ReportRequest& request) {
  Job job = request.job.job();
  const std::vector<TargetDevice> devices = request.devices.devices();
  lint(job, devices.size() == 1 ? GpuFacts{devices[0].name, devices[0].spec.compute_capability} : GpuFacts{});
  const std::optional<DeviceSpec> device = devices.empty() ? std::nullopt : std::optional(devices[0].spec);
  JobPage page;
  page.command = typed(request);
  page.measured = measured_of(request);
  Runs runs;
  // With all that any part of the page asks for.
  const Detail everything{.shapes = true, .work = job.program.framework == Framework::pytorch};
  const std::shared_ptr<const Run> run = runs.execute(job, target_of(job, device), everything);
  page.explanation = explanation(runs, job, device, kTensorsOfPage);
  page.explanation.fits = fits_of(runs, job, devices);
  const Estimate& e = page.explanation.estimate;
  page.trace = run->trace();
  page.ranks = ranks_of(*run, e, device);
  if (!request.brief) add_recommendations(page, runs, job, devices, request.progress);
  page.executions = runs.executed() + (page.plan ? page.plan->executed - page.plan->taken : 0);
  return page;
}

// What people read without pictures: Markdown and text are renderings of it.
doc::Document job_document(const ReportRequest& request) {
  const Job job = request.job.job();
  const std::vector<TargetDevice> devices = request.devices.devices();
  if (devices.size() > 1) throw Error("[report] a document is about one device", "name one with --gpu", ExitCode::usage);
  std::vector<std::pair<std::string, Job>> others;
  for (size_t i = 0; i < request.against.size(); ++i) others.emplace_back(request.against_name[i], request.against[i].job());
  return seed_report_document(make_seed_report(job, devices.empty() ? std::nullopt : std::optional(devices[0]), others), request.language);
}

bool is_document(OutputForm format) { return format == OutputForm::markdown || format == OutputForm::text; }

std::string rendered(const doc::Document& document, OutputForm format) {
  return format == OutputForm::text ? doc::to_text(document, Style{}) : doc::to_markdown(document);
}

std::string rendered(const nlohmann::ordered_json& page, OutputForm format) {
  switch (format) {
    case OutputForm::html: return page_html(page);
    case OutputForm::csv: return page_csv(page);
    case OutputForm::json: return dump(page, 2) + "\n";
    case OutputForm::text:
    case OutputForm::markdown: break;
  }
  return rendered(page_document(page), format);
}

}  // namespace

OutputForm document_format_of(const std::string& path) {
  const std::string ending = lower(std::filesystem::path(path).extension().string());
  if (ending == ".html" || ending == ".htm") return OutputForm::html;
  if (ending == ".json") return OutputForm::json;
  if (ending == ".csv") return OutputForm::csv;
  if (ending.empty() || ending == ".md" || ending == ".markdown" || ending == ".txt") return OutputForm::markdown;
  throw Error("[report] the ending of " + printable(path, 120) + " stands for no format",
              "end it in .html, .md, .json or .csv, or add --format", ExitCode::usage);
}

std::string card(const ReportRequest& request, const std::string& path) {
  const std::string ending = lower(std::filesystem::path(path).extension().string());
  if (ending != ".svg" && ending != ".png")
    throw Error("[report] a card is a picture, and " + printable(path, 120) + " ends in neither .svg nor .png", "--card answer.svg",
                ExitCode::usage);
  ReportRequest shortly = request;
  shortly.brief = true;
  const nlohmann::ordered_json page =
      is_recorded_file(request.job.run) ? recorded_page({request.job.run[0], {}, "", request.progress}) : page_json(job_page(shortly));
  return ending == ".svg" ? card_svg(page) : card_png(page);
}

std::string document(const ReportRequest& request) {
  if (is_recorded_file(request.job.run)) return rendered(recorded_page({request.job.run[0], {}, "", request.progress}), request.format);
  if (is_document(request.format)) return rendered(job_document(request), request.format);
  if (!request.against.empty())
    throw Error("[report] --against is for Markdown and text", "leave it out, or write Markdown", ExitCode::usage);
  return rendered(page_json(job_page(request)), request.format);
}

}  // namespace plimsoll
