#include <memory>

#include "cli/command.h"
#include "cli/job_flags.h"
#include "cli/number_between.h"
#include "watch/session.h"

namespace plimsoll {

namespace {

struct WatchFlags {
  WatchRequest request;
  JobFlags job;
  std::string run;
  bool once = false, jsonl = false, uncalibrated = false;
  double warning = 90, critical = 97;
  OutputFlags output;
};

WatchRequest watch_request_of(const WatchFlags& flags) {
  WatchRequest r = flags.request;
  r.job = flags.job.request();
  if (!flags.run.empty()) r.job.run = {flags.run};
  r.job_given = !r.job.run.empty() || !r.job.job_file.empty();
  if (!r.job_given && !r.job.settings.empty())
    throw Error("[watch] flags of a run, but no run", "name it with --run, e.g. --run gpt2, or --job FILE", ExitCode::usage);
  r.calibrated = !flags.uncalibrated;
  if (flags.warning > flags.critical) throw Error("[watch] --warn is above --critical", "e.g. --warn 90 --critical 97", ExitCode::usage);
  r.thresholds = {flags.warning / 100, flags.critical / 100};
  const OutputForm form = flags.output.form();
  if (form == OutputForm::markdown || form == OutputForm::html)
    throw Error("[watch] what is watched has no form in " + flags.output.format, "--format text or json, or --jsonl", ExitCode::usage);
  if (flags.jsonl && (flags.once || form == OutputForm::json))
    throw Error("[watch] --jsonl is every look, --once and --json are one", "leave one of them out", ExitCode::usage);
  r.output = flags.jsonl                ? WatchOutput::jsonl
             : form == OutputForm::json ? WatchOutput::json
             : flags.once               ? WatchOutput::once
                                        : WatchOutput::view;
  r.style = Style::detect(flags.output.colour, flags.output.ascii);
  return r;
}

}  // namespace

std::function<ExitCode()> set_up_watch(CLI::App& app) {
  auto flags = std::make_shared<WatchFlags>();
  WatchRequest& r = flags->request;
  app.footer(
      "Watches a run while it trains: memory on devices and host, workers, pressure, steps; warns of leaks, thrashing, a starving\n"
      "loader and full memory, and says what to do. The prediction for the same job stands beside what is measured.\n"
      "  plimsoll watch 4242                            a process, what it started, and the devices it uses\n"
      "  plimsoll watch 4242 train.log                  with the steps that its log tells\n"
      "  plimsoll watch train.log                       the process that writes this log\n"
      "  plimsoll watch -- python train.py              starts the command and watches it\n"
      "  plimsoll watch --device 0                      everything on one device\n"
      "  plimsoll watch 4242 --run gpt2 --batch 8       beside what was predicted; without: its own command line, where it is understood\n"
      "  plimsoll watch 4242 --once                     one look as text; --json: for programs; --jsonl: every look as a line\n"
      "  plimsoll watch 4242 --listen 127.0.0.1:9400    for Prometheus (examples/grafana has a dashboard)\n"
      "  plimsoll watch 4242 --history run.db           kept in SQLite; --replay run.db judges it again\n"
      "Without a terminal, alerts come line by line. Keys: h. What each alert means: docs/watch.md.\n"
      "Exit codes: 0 done, 2 wrong usage, 5 no such process or file, 6 no such device, 1 a bug.");
  app.add_option("target", r.target, "a pid, a log file, both, or -- and a command")->type_name("PID|LOG|-- COMMAND");
  app.add_option("--device", r.devices, "only these devices, by number (repeatable)")->allow_extra_args(false)->type_name("N");
  app.add_option("--log", r.log, "the log of the run: steps and their rate; of a command that is started here: where its output goes")
      ->type_name("FILE");
  app.add_option("--interval", r.interval, "seconds between two looks (default 1)")->check(number_between(0.1, 3600))->type_name("SECONDS");
  app.add_option("--for", r.seconds, "end after this time (default: with the run)")->check(number_between(0.1, 1e9))->type_name("SECONDS");
  app.add_flag("--once", flags->once, "one look as text");
  app.add_flag("--jsonl", flags->jsonl, "every look as one line of JSON");
  app.add_option("--listen", r.listen, "answer Prometheus on this port of this machine")->type_name("[ADDRESS:]PORT");
  app.add_flag("--listen-anywhere", r.listen_anywhere, "allow an address that other machines reach");
  app.add_option("--history", r.history, "keep every look and alert in this SQLite file")->type_name("FILE");
  app.add_option("--replay", r.replay, "judge what --history or --jsonl kept")->type_name("FILE");
  app.add_option("--warn", flags->warning, "percent of a memory from which on to warn (default 90)")
      ->check(number_between(1, 100))
      ->type_name("PERCENT");
  app.add_option("--critical", flags->critical, "and from which on it is critical (default 97)")
      ->check(number_between(1, 100))
      ->type_name("PERCENT");
  app.add_option("--run", flags->run, "what is run, to predict it: a model, a file, a directory or a command in quotes")
      ->type_name("RUN")
      ->group(kCommonGroup);
  app.add_flag("--no-calibration", flags->uncalibrated, "predict without what was measured of like runs on this machine");
  flags->job.add_to(app);
  constexpr const char* kMachine = "The machine";
  app.add_option("--root", r.root, "read /proc, /sys and /dev below this folder")->type_name("DIR")->group(kMachine);
  app.add_option("--nvml", r.nvml, "NVIDIA's management library (default libnvidia-ml.so.1)")->type_name("FILE")->group(kMachine);
  app.add_option("--rocm-smi", r.rocm_smi, "AMD's management library (default librocm_smi64.so)")->type_name("FILE")->group(kMachine);
  flags->output.add_to(app);
  return [flags] { return watch(watch_request_of(*flags)); };
}

}  // namespace plimsoll
