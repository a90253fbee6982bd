#include "measure/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/job_flags.h"
#include "cli/number_between.h"
#include "job/settings.h"
#include "measure/as_trained.h"
#include "measure/expectation.h"
#include "measure/saved_state.h"
#include "measure/trainer.h"
#include "measure/twin.h"
#include "step/train.h"
#include "trace/trace_file.h"
#include "util/bytes.h"
#include "util/parse_bytes.h"
#include "util/text.h"

namespace plimsoll::measure {

namespace {

struct Flags {
  JobFlags job;
  TrainSettings train;
  std::string limit, data_dir, save_trace, log, scan = "sequential";
  std::vector<std::string> limit_from;
  std::optional<double> learning_rate;
  std::optional<int64_t> chunk;
  int threads = 1;
  bool json = false, compare = false, walk = false, uncalibrated = false;
};

// One line a step on a terminal, drawn over the last one; nothing elsewhere.
class Progress {
 public:
  explicit Progress(int64_t steps) : steps_(steps), on_(isatty(STDERR_FILENO)) {}
  ~Progress() {
    if (on_) std::cerr << "\r\033[K" << std::flush;
  }
  void show(const StepResult& r) const {
    if (!on_) return;
    constexpr int64_t kWidth = 24;
    const auto done = static_cast<size_t>(kWidth * r.step / steps_);
    std::cerr << fmt::format("\r\033[K[{}{}] {}/{}  loss {:.4f}  {:.2f} s  peak {}  micro-batch {}", std::string(done, '#'),
                             std::string(kWidth - done, '.'), r.step, steps_, r.loss, r.seconds, to_string(Bytes{r.peak}), r.micro_batch)
              << std::flush;
  }

 private:
  int64_t steps_;
  bool on_;
};

nlohmann::ordered_json json_of(const StepResult& r) {
  nlohmann::ordered_json phases;
  for (size_t p = 0; p < kPhases; ++p)
    if (r.by_phase[p] > 0) phases[std::string(phase_name(static_cast<Phase>(p)))] = r.by_phase[p];
  nlohmann::ordered_json out{{"step", r.step},
                             {"loss", r.loss},
                             {"seconds", r.seconds},
                             {"peak", r.peak},
                             {"phases", phases},
                             {"micro_batch", r.micro_batch},
                             {"out_of_memory", r.out_of_memory},
                             {"limit", r.limit},
                             {"decision", r.decision}};
  if (const auto& e = r.evaluation)
    out["evaluation"] = {{"loss", e->loss}, {"peak", e->peak}, {"batch", e->batch}, {"out_of_memory", e->out_of_memory}};
  return out;
}

nlohmann::ordered_json json_of(const Recipe& r) {
  return {{"lr", r.learning_rate}, {"weight_decay", r.weight_decay}, {"betas", {r.beta1, r.beta2}}, {"eps", r.eps}};
}

class Log {
 public:
  explicit Log(const std::string& path) : path_(path) {
    if (path.empty()) return;
    out_.open(path, std::ios::app);
    if (!out_) throw Error("[log] cannot write " + path, "is the folder there, and writable?");
  }
  void add(const nlohmann::ordered_json& line) {
    if (path_.empty()) return;
    out_ << line.dump() << '\n' << std::flush;
    if (!out_) throw Error("[log] cannot write " + path_, "is the disk full?");
  }

 private:
  std::string path_;
  std::ofstream out_;
};

std::string title(const Job& job, const Outcome& out, double lr) {
  return fmt::format("{}  {} parameters, {} trained, batch {} x {}, {}{}, lr {:g}\n\n", job.model.empty() ? job.family : job.model,
                     with_commas(out.parameters), with_commas(out.trainable), job.batch, job.accumulation,
                     job.precision == Precision::fp32 ? "fp32" : "bf16 autocast", job.checkpointing.on ? ", checkpointing" : "", lr);
}

// What was out of the ordinary in a step.
std::string remark(const StepResult& r, int64_t limit_before) {
  std::vector<std::string> said;
  if (r.limit != limit_before) said.push_back("limit " + to_string(Bytes{r.limit}));
  if (r.out_of_memory > 1) said.push_back(fmt::format("{} out of memory", r.out_of_memory));  // the last one is the decision's
  if (!r.decision.empty()) said.push_back(r.decision);
  if (const auto& e = r.evaluation)
    said.push_back(fmt::format("evaluation {:.4f} in batches of {}{}", e->loss, e->batch,
                               e->out_of_memory ? fmt::format(", {} out of memory", e->out_of_memory) : ""));
  return join(said, "; ");
}

std::string text_of(const Job& job, const Outcome& out, double lr, int64_t limit) {
  std::string text = title(job, out, lr);
  text += fmt::format("  {:>6} {:>10} {:>9} {:>15} {:>12}  {}\n", "step", "loss", "seconds", "peak", "micro-batch", "");
  const size_t n = out.steps.size();
  constexpr size_t kShown = 5;
  for (size_t i = 0; i < n; ++i) {
    if (n > 2 * kShown && i == kShown) text += fmt::format("  {:>6}\n", "...");
    const StepResult& r = out.steps[i];
    const std::string said = remark(r, i > 0 ? out.steps[i - 1].limit : r.limit);
    if (n > 2 * kShown && i >= kShown && i < n - kShown && said.empty()) continue;
    text +=
        fmt::format("  {:>6} {:>10.4f} {:>9.3f} {:>15} {:>12}  {}\n", r.step, r.loss, r.seconds, with_commas(r.peak), r.micro_batch, said);
  }
  text += fmt::format("\n  peak  {} bytes ({})", with_commas(out.peak), to_string(Bytes{out.peak}));
  return text + (limit > 0 ? fmt::format(" of {}\n", to_string(Bytes{limit})) : "\n");
}

// As the trainer does it; arguments of the optimizer win over that, and --lr over both.
Recipe chosen_recipe(const Flags& flags, const Job& job) {
  Recipe r = recipe_of(job.family, flags.job.input);
  const Config& a = job.optimizer.args;
  r.learning_rate = flags.learning_rate.value_or(a.number({"lr"}, r.learning_rate));
  r.weight_decay = a.number({"weight_decay"}, r.weight_decay);
  r.eps = a.number({"eps"}, r.eps);
  if (const nlohmann::json* betas = a.find({"betas"})) {
    if (!betas->is_array() || betas->size() != 2 || !(*betas)[0].is_number() || !(*betas)[1].is_number())
      throw Error("[optimizer] betas is " + betas->dump().substr(0, 80) + ", expected two numbers",
                  "e.g. --optimizer-args betas=[0.9,0.95]");
    r.beta1 = (*betas)[0];
    r.beta2 = (*betas)[1];
  }
  return r;
}

// As many as there are to be; the job itself is simulated in two.
int64_t steps_of(const std::string& text) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos || std::stoll(text) < 1)
    throw Error("[steps] '" + text + "' is no number of steps", "a whole number from 1 on", ExitCode::usage);
  return std::stoll(text);
}

// "11=24MiB": another limit from that step on.
std::map<int64_t, int64_t> limits_of(const std::vector<std::string>& words) {
  std::map<int64_t, int64_t> out;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const std::string step = word.substr(0, equals);
    if (equals == std::string::npos || step.empty() || step.size() > 9 || step.find_first_not_of("0123456789") != std::string::npos ||
        std::stoll(step) < 1)
      throw Error("[limit] '" + word + "' is no step and size", "e.g. --limit-from 11=24MiB", ExitCode::usage);
    out[std::stoll(step)] = parse_bytes(word.substr(equals + 1), "--limit-from").count;
  }
  return out;
}

void check_together(const Flags& flags) {
  const TrainSettings& t = flags.train;
  const auto needs = [](bool wrong, const char* what, const char* hint) {
    if (wrong) throw Error(what, hint, ExitCode::usage);
  };
  needs(t.resume && t.checkpoint.empty(), "[resume] no checkpoint is named", "add --checkpoint FILE");
  needs(t.save_every > 0 && t.checkpoint.empty(), "[save-every] no checkpoint is named", "add --checkpoint FILE");
  needs(t.grow && !t.auto_scale, "[grow] only --auto-scale makes micro-batches smaller", "add --auto-scale");
  needs(t.eval_samples > 0 && t.eval_every == 0, "[eval-samples] nothing is evaluated", "add --eval-every N");
  needs(flags.chunk && flags.scan != "chunked", "[chunk] only a chunked scan has chunks", "add --scan chunked");
  const bool traced = flags.compare || flags.walk;
  needs(traced && flags.threads > 1, "[compare] what is simulated is one thread", "leave --threads out");
  needs(traced && t.eval_every > 0 && t.eval_every <= t.traced_steps,
        "[compare] what is simulated are steps without an evaluation between them", "leave --eval-every out");
}

void note(const std::string& text) { std::cerr << "plimsoll measure: note: " << text << "\n"; }

Job job_of(const Flags& flags) {
  Job job = as_trained_here(flags.job.job(), note);
  if (flags.scan != "sequential" && flags.scan != "chunked")
    throw Error("[scan] '" + flags.scan + "' is not known", "sequential or chunked", ExitCode::usage);
  if (flags.scan == "chunked") {
    if (job.family != "mamba-trainer") throw Error("[scan] " + job.family + " has no scan", "leave --scan out", ExitCode::usage);
    apply_setting(job, "config", {{"scan_chunk", flags.chunk.value_or(64)}}, "--scan");
  }
  return job;
}

struct Answer {
  int64_t limit = 0;  // bytes, to begin with; 0: none
  Outcome out;
  Expectation expected;
  std::optional<TwinResult> twin;
  std::string difference;  // the first one; empty: none
};

Expectation expected_of(const Flags& flags, const Job& job, int64_t limit) {
  Expectation e = expect(job, flags.threads, std::min<int64_t>(flags.train.steps, 2), !flags.uncalibrated);
  if (limit > 0 && e.peak().count > limit && !flags.train.auto_scale)
    note(fmt::format("{} are expected, and the limit is {}", to_string(e.peak()), to_string(Bytes{limit})));
  return e;
}

void compare(const Flags& flags, const Job& job, Answer& a) {
  if (!flags.compare && !flags.walk) return;
  const int64_t steps = std::min<int64_t>(flags.train.traced_steps, static_cast<int64_t>(a.out.steps.size()));
  const std::shared_ptr<const Run> simulated = execute(simulated_twin(job, steps), {}, {.all_ranks = false});
  a.twin = compare_twins(a.out.trace, simulated->trace());
  if (flags.walk) a.difference = first_difference(a.out.trace, simulated->trace());
}

// What a command names is its own machine's, and perhaps not here.
std::string data_folder(const Flags& flags) {
  const std::string folder = flags.data_dir.empty() ? data_dir_of(flags.job.input) : flags.data_dir;
  std::error_code error;
  if (!flags.data_dir.empty() || folder.empty() || std::filesystem::is_directory(folder, error)) return folder;
  note(fmt::format("the command's --data_dir {} is not here: samples are made up", folder));
  return "";
}

Answer train(Flags& flags, const Job& job) {
  Answer a;
  flags.train.recipe = chosen_recipe(flags, job);
  flags.train.limits = limits_of(flags.limit_from);
  if (!flags.limit.empty()) a.limit = parse_bytes(flags.limit, "--limit").count;
  const Data data(data_folder(flags), flags.train.seed);
  Log log(flags.log);
  if (!flags.save_trace.empty()) check_writable(flags.save_trace, "save-trace");
  Budget& budget = Budget::instance();
  budget.set_limit(a.limit);
  if (flags.save_trace.empty() && !flags.compare && !flags.walk) flags.train.traced_steps = 0;
  if (flags.train.traced_steps > 0) budget.record(true);
  Trainer trainer(job, flags.train, data);
  a.expected = expected_of(flags, job, a.limit);
  {
    const Progress progress(flags.train.steps);
    a.out = trainer.run([&](const StepResult& r) {
      progress.show(r);
      log.add(json_of(r));
    });
  }
  keep(a.expected, job, a.out);
  if (!flags.save_trace.empty()) write_trace(a.out.trace, flags.save_trace);
  compare(flags, job, a);
  return a;
}

nlohmann::ordered_json answer_document(const Flags& flags, const Job& job, const Answer& a) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const StepResult& r : a.out.steps) steps.push_back(json_of(r));
  nlohmann::ordered_json document{{"schema", 1},
                                  {"command", "measure"},
                                  {"model", job.model},
                                  {"parameters", a.out.parameters},
                                  {"trainable", a.out.trainable},
                                  {"recipe", json_of(flags.train.recipe)},
                                  {"limit", a.limit},
                                  {"peak", a.out.peak},
                                  {"expected", expectation_json(a.expected)},
                                  {"steps", steps}};
  if (a.twin) document["simulated"] = twin_json(*a.twin);
  if (flags.walk) document["first_difference"] = a.difference;
  return document;
}

ExitCode run(Flags& flags) {
  at::set_num_threads(flags.threads);
  at::globalContext().setUserEnabledMkldnn(false);  // what oneDNN takes for itself differs from one processor to the next
  const Job job = job_of(flags);
  const Answer a = train(flags, job);
  if (flags.json) {
    std::cout << answer_document(flags, job, a).dump(2) << '\n';
  } else {
    std::cout << text_of(job, a.out, flags.train.recipe.learning_rate, a.out.steps.empty() ? a.limit : a.out.steps.back().limit);
    std::cout << (a.twin ? "\n" + twin_text(*a.twin) : expectation_text(a.expected));
    if (flags.walk) std::cout << '\n' << (a.difference.empty() ? "Every allocation is the same.\n" : a.difference);
  }
  return a.twin && !a.twin->equal() ? ExitCode::no : ExitCode::ok;
}

bool is_trainer_flag(const std::string& flag) {
  static const std::vector<std::string> kFlags{"--model_size", "--vram", "--vram_auto", "--vram_safety_margin", "--training_preset"};
  return std::find(kFlags.begin(), kFlags.end(), flag) != kFlags.end();
}

}  // namespace

std::vector<std::string> own_arguments(const std::vector<std::string>& arguments) {
  std::vector<std::string> own, command;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--" && !command.empty())
      throw Error("[measure] " + command[0] + " is of a command, and another command follows --", "give it behind --", ExitCode::usage);
    if (word == "--") return arguments;
    const bool file = word == "--config" && i + 1 < arguments.size() && arguments[i + 1].find('=') == std::string::npos;
    if (!file && !is_trainer_flag(word)) {
      own.push_back(word);
      continue;
    }
    command.push_back(word);
    if (word != "--vram_auto" && i + 1 < arguments.size()) command.push_back(arguments[++i]);
  }
  if (command.empty()) return own;
  own.insert(own.end(), {"--", "python", "train.py"});
  own.insert(own.end(), command.begin(), command.end());
  return own;
}

std::function<ExitCode()> set_up_measure(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.footer(
      "Examples:\n"
      "  plimsoll measure --model_size small --vram 8gb --seq 64 --steps 3       the trainer's own flags, a shorter sequence\n"
      "  plimsoll measure --config mamba.json --limit 2GiB --auto-scale          on a virtual device of 2 GiB\n"
      "  plimsoll measure mamba-trainer-small --seq 64 --batch 2 --compare       beside the simulation, by phase and category\n"
      "  plimsoll measure mamba-trainer-small --seq 256 --scan chunked           a scan that really saves memory\n"
      "  plimsoll measure gsa.yaml --data_dir texts --steps 100 --checkpoint run.safetensors --save-every 20 --log run.jsonl\n"
      "  plimsoll measure gsa.yaml --save-trace run.trace && plimsoll replay run.trace\n"
      "Jobs are read as by `plimsoll estimate`; flags win. docs/measure.md has the models and what each prints.\n"
      "Exit codes: 0 done (with --compare: all equal), 3 does not fit, or not equal, 2 wrong usage, 5 input not understood, 1 a bug.");
  flags->job.add_input_to(app);
  app.add_option("--limit", flags->limit, "bytes of the virtual device (8GiB); beyond it PyTorch's out-of-memory error")->type_name("SIZE");
  app.add_option("--limit-from", flags->limit_from, "another limit from step N on, as when a neighbour leaves (repeatable)")
      ->allow_extra_args(false)
      ->type_name("N=SIZE");
  app.add_option("--data_dir,--data-dir", flags->data_dir,
                 "folder of text, or of pictures (" + picture_endings() + "); without it, samples are made up")
      ->type_name("DIR");
  app.add_option("--lr", flags->learning_rate, "learning rate (default: the trainer's, by its file, flags or preset)")
      ->check(number_between(1e-12, 1e6))
      ->type_name("X");
  app.add_option("--seed", flags->train.seed, "of weights, samples and dropout (default 1)")->type_name("N");
  app.add_option("--checkpoint", flags->train.checkpoint, "file that the run is saved to, whole or not at all")->type_name("FILE");
  app.add_option("--save-every", flags->train.save_every, "steps between checkpoints (default: at the end alone)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  app.add_flag("--resume", flags->train.resume, "go on from --checkpoint, to the same result as a run that never stopped");
  app.add_option("--eval-every", flags->train.eval_every, "steps between evaluations, in batches of --eval-batch (default: none)")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  app.add_option("--eval-samples", flags->train.eval_samples, "samples of an evaluation, none of them trained on (default: one batch)")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  app.add_flag("--auto-scale", flags->train.auto_scale, "out of memory: smaller micro-batches, the same samples and gradients");
  app.add_flag("--grow", flags->train.grow, "with --auto-scale: try larger micro-batches again when it goes well");
  app.add_option("--grow-after", flags->train.grow_after, "whole steps before that (default 20)")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  app.add_option("--scan", flags->scan, "Mamba's scan: sequential (as published) or chunked (computed again in backward)")
      ->type_name("NAME");
  app.add_option("--chunk", flags->chunk, "tokens of a chunk (default 64)")->check(CLI::PositiveNumber)->type_name("N");
  app.add_option("--threads", flags->threads, "of libtorch's kernels (default 1: some take memory for each)")
      ->check(CLI::Range(1, 256))
      ->type_name("N");
  app.add_option("--log", flags->log, "a JSON line for each step, added to FILE")->type_name("FILE");
  app.add_option("--save-trace", flags->save_trace, "write the allocations to FILE, for `plimsoll replay`")->type_name("FILE");
  app.add_option("--trace-steps", flags->train.traced_steps, "how many steps are traced (default 2)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  app.add_flag("--compare", flags->compare, "simulate the same job and print both, by phase and category");
  app.add_flag("--walk", flags->walk, "with the first allocation that differs");
  app.add_flag("--no-calibration", flags->uncalibrated, "expect without what was measured of like runs on this machine");
  app.add_flag("--json", flags->json, "one JSON document on stdout");
  flags->job.add_to(app);
  return [flags] {
    if (const auto steps = flags->job.values.find("steps"); steps != flags->job.values.end() && !steps->second.empty()) {
      flags->train.steps = steps_of(steps->second);
      steps->second.clear();  // the job's own are those that are simulated
    }
    check_together(*flags);
    return run(*flags);
  };
}

}  // namespace plimsoll::measure
