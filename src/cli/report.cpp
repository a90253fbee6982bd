#include "api/report.h"

#include <unistd.h>

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/job_flags.h"
#include "cli/progress.h"
#include "util/output_file.h"

namespace plimsoll {

namespace {

struct ReportFlags {
  JobFlags job;
  DeviceFlags devices;
  std::string language = "en", output, html, card, measured, format;
  std::vector<std::string> against;
  bool brief = false;
};

ReportRequest report_request_of(const ReportFlags& flags) {
  ReportRequest out;
  out.job = flags.job.request();
  out.devices = flags.devices;
  for (const std::string& other : flags.against) {
    JobFlags its = flags.job;
    its.input = {other};
    out.against.push_back(its.request());
    out.against_name.push_back(other);
  }
  out.language = parse_language(flags.language);
  out.brief = flags.brief;
  out.measured = flags.measured;
  return out;
}

ExitCode write_report(const ReportFlags& flags, const OnProgress& progress) {
  ReportRequest request = report_request_of(flags);
  request.progress = progress;
  for (const std::string& path : {flags.html, flags.card, flags.output})
    if (!path.empty()) check_output_file(path);
  if (!flags.card.empty()) write_output_file(flags.card, card(request, flags.card));
  if (!flags.html.empty()) {
    request.format = OutputForm::html;
    write_output_file(flags.html, document(request));
  }
  if ((!flags.html.empty() || !flags.card.empty()) && flags.output.empty() && flags.format.empty()) return ExitCode::ok;
  request.format = !flags.format.empty() ? parse_form(flags.format, true) : document_format_of(flags.output);
  const std::string text = document(request);
  if (flags.output.empty()) {
    std::cout << text;
  } else {
    write_output_file(flags.output, text);
  }
  return ExitCode::ok;
}

}  // namespace

std::function<ExitCode()> set_up_report(CLI::App& app) {
  auto flags = std::make_shared<ReportFlags>();
  app.footer(
      "Examples:\n"
      "  plimsoll report gpt2 --batch 8 --gpu rtx-4090 --html memory.html      one page: timeline, tree, segments, levers, plan\n"
      "  plimsoll report stdiff-kitti-64x2048 --gpu a100-80gb > memory.md\n"
      "  plimsoll report fsdm-lag --framework jax --language vi --output bo-nho.md\n"
      "  plimsoll report config.yaml --against config-small.yaml --gpu 24GiB\n"
      "  plimsoll report gpt2 --output peak.csv                                the tensors at the peak, for a spreadsheet\n"
      "  plimsoll report snap.pickle --html run.html                           a recorded snapshot, or a trace file\n"
      "  plimsoll report gpt2 --gpu rtx-4090 --card answer.png                  the answer as a picture; .svg or .png\n"
      "  plimsoll report gpt2 --html m.html --measured snap.pickle              predicted and measured in one picture\n"
      "The page needs no network and no other file. Exit codes: 0 done, 2 wrong usage, 5 input not understood, 1 a bug.");
  flags->job.add_input_to(app);
  app.add_option("--language", flags->language, "en or vi, of Markdown and text")->type_name("LANGUAGE");
  app.add_option("--against", flags->against,
                 "another configuration for the comparison (repeatable; default: smaller batches, or larger ones)")
      ->allow_extra_args(false)
      ->type_name("JOB");
  app.add_option("--html", flags->html, "write the page to FILE, beside --output if there is one")->type_name("FILE");
  app.add_option("--card", flags->card, "write the answer as a picture to FILE, .svg or .png, to be shared")->type_name("FILE");
  app.add_option("--measured", flags->measured,
                 "what the run was measured to need, for the page to compare: a snapshot.pickle, or device memory like 35GiB")
      ->type_name("FILE|SIZE");
  app.add_option("--format", flags->format, "markdown, text, html, json or csv (default: by the ending of --output, else markdown)")
      ->check(CLI::IsMember({"markdown", "md", "text", "html", "json", "csv"}))
      ->type_name("FORMAT");
  app.add_option("--output", flags->output, "write to FILE instead of stdout")->type_name("FILE");
  app.add_flag("--brief", flags->brief, "a page without levers, plan and the table of devices: quicker");
  flags->job.add_to(app);
  flags->devices.add_to(app);
  return [flags] { return with_progress([&](const OnProgress& progress) { return write_report(*flags, progress); }); };
}

}  // namespace plimsoll
