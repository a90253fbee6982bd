#include "supervise/supervisor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "job/config.h"
#include "supervise/allocator_variables.h"
#include "supervise/checkpoints.h"
#include "supervise/child.h"
#include "supervise/failure.h"
#include "supervise/found_settings.h"
#include "supervise/resume.h"
#include "supervise/run_folder.h"
#include "supervise/run_state.h"
#include "supervise/scheduler.h"
#include "util/checked.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using OrderedJson = nlohmann::ordered_json;

std::string now_text() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", text, std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000);
}

class Supervisor {
 public:
  explicit Supervisor(const SupervisorRequest& request)
      : request_(request), folder_(request.folder.empty() ? usual_folder(request.command) : request.folder, request.events) {}

  int run() {
    slurm_ = slurm_job(environment_here());
    if ((request_.requeue || request_.requeue_exit) && !slurm_)
      throw Error("[run] there is no Slurm job to put back into the queue", "use --requeue inside sbatch", ExitCode::usage);
    folder_.lock(request_.patience, [this] {
      say_always(fmt::format("plimsoll: waiting for another `plimsoll run` in {}, at most {:g} s", folder_.path(), request_.patience));
    });
    signals_.emplace();
    set_up();
    for (;;) {
      const Launch launch = prepare();
      const ChildEnd end = start(launch);
      if (end.error) return not_started(end.error);
      const Failure failure = judged(end);
      state_.best_step = std::max(state_.best_step, failure.step.value_or(0));
      if (failure.kind == FailureKind::none) return finished(end);
      if (failure.kind == FailureKind::stopped) {
        save();
        return exit_code_of(end.status);
      }
      if (!failure.is_memory()) {
        save();
        say("plimsoll: " + failure.reason + "; that is not memory, so nothing is changed");
        return exit_code_of(end.status);
      }
      if (const std::optional<int> code = next(failure)) return *code;
    }
  }

 private:
  // ---- words

  void event(const char* what, OrderedJson fields) {
    OrderedJson out = {{"time", now_text()}, {"event", what}, {"attempt", state_.attempt}};
    out.update(fields);
    if (!folder_.write_event(out) && !std::exchange(events_lost_, true))
      say_always(fmt::format("plimsoll: events cannot be written ({}); the run goes on without", std::strerror(errno)));
  }
  void say(const std::string& text) const {
    if (!request_.quiet) say_always(text);
  }
  void say_always(const std::string& text) const {
    if (request_.say) request_.say(text + "\n");
  }
  void save() {
    if (scaler_) state_.scaler = nlohmann::json::parse(dump(scaler_->saved()));
    std::string problem;
    if (folder_.save(state_.json(request_.command), &problem)) {
      unsaved_ = false;
    } else if (!std::exchange(unsaved_, true)) {
      say_always("plimsoll: " + problem + "; the run goes on, but a new start would not know of this");
    }
  }

  // ---- the beginning

  void set_up() {
    FoundSettings found = found_settings(request_);
    settings_ = std::move(found.settings);
    unknown_ = found.why;
    first_ = settings_ ? settings_->now() : RunValues{};
    if (first_.batch > 0) scaler_.emplace(scaler_settings(request_, first_));
    if (scaler_ && request_.predict) scaler_->predict_with(request_.predict);
    resume_ = request_.resume_flag.empty() ? resume_of_trainer(request_.command)
                                           : Resume{request_.resume_flag, request_.checkpoints, "--resume-flag"};

    std::string broken;
    if (request_.anew) folder_.set_aside();
    const std::optional<nlohmann::json> saved = folder_.load(&broken);
    if (!broken.empty()) {
      say_always("plimsoll: " + broken);
      event("state_lost", {{"reason", broken}});
    }
    if (saved)
      go_on_from(*saved);
    else
      begin_anew();
    event("begin", {{"command", request_.command},
                    {"settings", to_string(first_)},
                    {"reason", settings_ ? "settings are written as " + settings_->how() : "settings cannot be changed: " + unknown_},
                    {"resumes_by", resume_.how}});
    if (!found.note.empty()) say("plimsoll: " + found.note);
    for (const std::string& note : request_.first_notes) {
      say("plimsoll: " + note);
      event("estimate", {{"reason", note}});
    }
    if (const int64_t nodes = nodes_beside(request_.command); nodes > 1)
      warn(
          fmt::format("this is one of {} nodes, and supervisors on the others decide for themselves: start all nodes by one command, as in "
                      "plimsoll run -- srun torchrun ...",
                      nodes));
    if (settings_) try_to_say();
  }

  void warn(const std::string& reason) {
    event("warning", {{"reason", reason}});
    say("plimsoll: " + reason);
  }

  void begin_anew() {
    state_ = {};
    state_.workers = first_.workers;
    state_.before = checkpoints_of(resume_.checkpoints);
  }

  // That a file cannot be changed is better known now than after a night.
  void try_to_say() {
    RunValues smaller = values();
    if (smaller.batch > 1 && smaller.batch % 2 == 0) smaller.batch /= 2, smaller.accumulation *= 2;
    try {
      settings_->say(smaller, folder_.path());
    } catch (const Error& e) {
      if (!request_.set.empty()) throw;
      event("warning", {{"reason", std::string("other settings could not be written: ") + e.what()}});
      say(std::string("plimsoll: should memory run out, other settings could not be written: ") + e.what());
    }
  }

  void go_on_from(const nlohmann::json& saved) {
    check_version(saved, folder_.file("state.json"));
    try {
      if (saved.value("command", nlohmann::json()) != nlohmann::json(request_.command))
        throw Error("it belongs to another command", "give this run a folder of its own: --state DIR");
      state_ = RunState::of(saved);
      if (scaler_ && state_.scaler.is_object()) scaler_->restore(state_.scaler);
    } catch (const Error& e) {
      begin_anew();
      const std::string kept = folder_.set_aside();
      say_always(fmt::format("plimsoll: the saved state is not used: {}; it is now {}", e.what(), kept));
      event("state_lost", {{"reason", e.what()}, {"kept", kept}});
      return;
    }
    const std::string at = to_string(values());
    event("go_on", {{"settings", at}, {"reason", fmt::format("after attempt {}, which an earlier supervisor started", state_.attempt)}});
    say(fmt::format("plimsoll: going on after attempt {}{}{} (--anew begins anew)", state_.attempt, at.empty() ? "" : " with ", at));
    if (!scaler_) return;
    if (scaler_->state() == ScalerState::stopped) {  // the user starts it again: one more try at what was the last
      const nlohmann::json fresh = {{"state", "settling"}, {"batch", scaler_->batch()}};
      scaler_->restore(fresh);
      state_.failures = 0;
    }
    if (state_.well < request_.grow_after) return;
    const ScalerDecision d =
        scaler_->try_larger(fmt::format("{:.0f} minutes went well with a micro-batch of {}", state_.well / 60, scaler_->batch()));
    if (d.action != ScalerAction::resize) return;
    state_.well = 0;
    decided(d.reason);
  }

  RunValues values() const {
    RunValues v = first_;
    if (scaler_) {
      v.batch = scaler_->batch();
      if (first_.accumulation > 0) v.accumulation = static_cast<int64_t>(scaler_->step().size());
    }
    v.workers = state_.workers;
    return v;
  }

  // ---- one attempt

  Launch prepare() {
    Launch launch{request_.command, {}, {}};
    const RunValues v = values();
    if (settings_ && (v != first_ || !request_.set.empty())) {
      try {
        launch = settings_->say(v, folder_.path());
      } catch (const Error& e) {
        event("gave_up", {{"settings", to_string(v)}, {"reason", e.what()}});
        throw;
      }
    }
    if (state_.attempt > 0) add_words(launch, folder_.path(), words_to_go_on());
    ++state_.attempt;
    launch.environment["PLIMSOLL_ATTEMPT"] = std::to_string(state_.attempt);
    if (v.batch > 0) launch.environment["PLIMSOLL_BATCH"] = std::to_string(v.batch);
    if (v.accumulation > 0) launch.environment["PLIMSOLL_ACCUMULATION"] = std::to_string(v.accumulation);
    if (state_.allocator)
      for (const auto& [name, value] : allocator_) launch.environment[name] = value;
    if (own_error_file_ || !std::getenv("TORCHELASTIC_ERROR_FILE")) {
      own_error_file_ = true;
      launch.environment["TORCHELASTIC_ERROR_FILE"] = error_file();
    }
    return launch;
  }
  std::string error_file() const {
    return own_error_file_ ? std::filesystem::absolute(folder_.file("error.json")).string() : std::getenv("TORCHELASTIC_ERROR_FILE");
  }
  // The newest checkpoint that is whole and of this run.
  std::vector<std::string> words_to_go_on() {
    const NewestCheckpoint newest = newest_checkpoint(resume_.checkpoints, state_.before);
    for (const std::string& skipped : newest.skipped) warn("not a whole checkpoint: " + skipped);
    return resume_words(resume_, newest.path);
  }

  ChildEnd start(const Launch& launch) {
    save();
    event(
        "start",
        {{"command", launch.command}, {"settings", to_string(values())}, {"written", launch.written}, {"environment", launch.environment}});
    std::error_code ignored;
    if (own_error_file_) std::filesystem::remove(error_file(), ignored);
    kills_before_ = oom_kills();
    ChildRequest child;
    child.command = launch.command;
    child.environment = launch.environment;
    child.lock = folder_.lock_descriptor();
    child.grace = std::chrono::milliseconds(std::llround(request_.grace * 1000));
    if (request_.hang > 0) {
      child.hangs = waits_for_the_dead;
      child.silence = std::chrono::milliseconds(std::llround(request_.hang * 1000));
    }
    if (request_.peak) {
      request_.peak->clear();
      child.look = [this](const std::vector<int64_t>& pids) { request_.peak->look(pids); };
    }
    return run_child(child, *signals_);
  }

  int not_started(int error) {
    const std::string reason = fmt::format("'{}' cannot be started: {}", printable(request_.command[0], 120), std::strerror(error));
    event("not_started", {{"reason", reason}});
    folder_.forget();
    say_always("plimsoll: " + reason + "\n  hint: the command stands behind --, as in: plimsoll run -- python train.py");
    return error == ENOENT ? 127 : 126;
  }

  Failure judged(const ChildEnd& end) {
    FailureEvidence e;
    e.status = end.status;
    e.forwarded = end.forwarded;
    e.output = end.output;
    if (const std::string text = read_error_file(error_file()); !text.empty()) e.error_files.push_back(text);
    e.oom_kills = std::max<int64_t>(0, oom_kills() - kills_before_);
    if (slurm_ && end.status != 0) e.slurm_state = newest_step_state(*slurm_);
    const Failure f = judge(e);
    if (end.hung) {
      const std::string reason =
          fmt::format("memory ran out, and nothing was written for {:g} s after it: what still ran was ended", request_.hang);
      event("hung", {{"reason", reason}});
      say("plimsoll: " + reason);
    }
    OrderedJson fields = {{"exit_code", exit_code_of(end.status)},
                          {"seconds", std::round(end.seconds * 1000) / 1000},
                          {"kind", to_string(f.kind)},
                          {"reason", f.kind == FailureKind::none ? "it ended well" : f.reason},
                          {"sources", f.sources}};
    if (!f.ranks.empty()) fields["ranks"] = f.ranks;
    if (f.step) fields["step"] = *f.step;
    if (f.limit) fields["limit"] = *f.limit;
    if (end.left_behind > 0) fields["left_behind"] = end.left_behind;
    event("end", fields);
    if (!f.is_memory() && (f.kind != FailureKind::other || f.step)) {  // it trained
      state_.well += end.seconds;
      if (scaler_) scaler_->report(StepReport{});  // this size is one to come back to
      keep_measured(end, f);
    }
    return f;
  }

  // For the next estimate of a like job. One that was ended early has not seen its peak.
  void keep_measured(const ChildEnd& end, const Failure& f) {
    constexpr double kEnough = 60, kEnoughToTheEnd = 10;  // seconds
    const auto most = request_.peak ? request_.peak->most() : std::nullopt;
    if (!most || !request_.measured || end.seconds < (f.kind == FailureKind::none ? kEnoughToTheEnd : kEnough)) return;
    const std::string said = request_.measured(values(), *most);
    if (said.empty()) return;
    event("measured", {{"reason", said}, {"device", most->device.name}, {"bytes", most->bytes.count}});
    say("plimsoll: " + said);
  }

  int finished(const ChildEnd& end) {
    event("finished", {{"settings", to_string(values())},
                       {"reason", fmt::format("after {} attempt{}", state_.attempt, state_.attempt == 1 ? "" : "s")}});
    folder_.forget();
    return exit_code_of(end.status);
  }

  // ---- after a failure

  // Nothing: start again. Otherwise the code to exit with.
  std::optional<int> next(const Failure& failure) {
    say(fmt::format("plimsoll: attempt {}: {}", state_.attempt, failure.reason.substr(0, failure.reason.find(": "))));
    if (failure.step.value_or(0) > last_failed_step_.value_or(0)) state_.failures = 0;  // it got further than before
    last_failed_step_ = failure.step;
    const std::string problem = change(failure);
    if (!problem.empty()) return give_up(problem);
    if (++state_.failures > request_.retries) return give_up(fmt::format("memory ran out {} times without progress", state_.failures));
    state_.well = 0;
    save();
    if (request_.requeue || request_.requeue_exit) {
      if (const std::optional<int> code = put_back()) return code;
    }
    const double wait = std::min(60.0, request_.backoff * std::pow(2, static_cast<double>(state_.failures - 1)));
    event("wait", {{"seconds", wait}, {"reason", "before the next start"}});
    if (const auto signal = signals_->wait(std::chrono::milliseconds(std::llround(wait * 1000)))) {
      event("stopped", {{"reason", fmt::format("signal {} ({}) between two attempts", *signal, strsignal(*signal))}});
      return 128 + *signal;
    }
    return {};
  }

  // Decides what is different next time. Empty, or why nothing can be.
  std::string change(const Failure& f) {
    if (f.kind == FailureKind::device_memory) {
      const bool fresh = request_.allocator && !state_.allocator && !allocator_.empty();
      if (fresh) state_.allocator = true;
      if (fresh && (f.fragmented || !scaler_)) {
        decided(f.fragmented ? "the memory was free, but not in one piece: the same batch with expandable segments"
                             : "no batch flag is known in the command: the same batch with expandable segments");
        return "";
      }
    } else if (state_.workers > 0) {
      const int64_t fewer = state_.workers / 2;
      decided(fmt::format("{}: {} instead of {}, before the batch",
                          f.kind == FailureKind::worker ? "workers share the host's memory" : "each worker is a copy on the host", fewer,
                          state_.workers),
              fewer);
      return "";
    }
    if (!scaler_) return settings_ ? "the command does not say its batch" : "no batch flag is known in the command: " + unknown_;
    StepReport r;
    r.out_of_memory = true;
    if (f.kind == FailureKind::device_memory) r.limit = f.limit;
    const ScalerDecision d = scaler_->report(r);
    if (d.action == ScalerAction::give_up) return d.reason;
    decided(d.reason);
    return "";
  }
  void decided(const std::string& reason, std::optional<int64_t> workers = {}) {
    if (workers) state_.workers = *workers;
    event("decision",
          {{"settings", to_string(values())}, {"allocator", state_.allocator ? "expandable_segments:True" : ""}, {"reason", reason}});
    const std::string at = to_string(values());
    say("plimsoll: " + reason + (at.empty() ? "" : "; next: " + at));
    if (scaler_ && first_.accumulation == 0 && scaler_->batch() != first_.batch && !std::exchange(warned_, true))
      warn(
          fmt::format("no accumulation flag is known: the global batch changes from {} to {}, unless the command itself keeps it "
                      "(--set '--accum={{accumulation}}' would)",
                      first_.batch, scaler_->batch()));
  }

  int give_up(const std::string& reason) {
    event("gave_up", {{"settings", to_string(values())}, {"reason", reason}});
    save();
    say_always(fmt::format("plimsoll: giving up: {}\n  hint: what was tried is in {}; `plimsoll plan` searches for settings that fit",
                           reason, folder_.file("events.jsonl")));
    return kExhausted;
  }

  // Slurm starts the job again; this process ends with it.
  std::optional<int> put_back() {
    if (request_.requeue_exit) {
      event("requeue", {{"reason", fmt::format("exit code {} asks Slurm to start the job again (RequeueExit)", *request_.requeue_exit)}});
      return *request_.requeue_exit;
    }
    event("requeue", {{"reason", "scontrol requeue " + slurm_->id}});
    const std::string problem = requeue(*slurm_);
    if (problem.empty()) {
      say("plimsoll: job " + slurm_->id + " is back in the queue");
      return 0;
    }
    warn(problem + "; restarting here");
    return {};
  }

  const SupervisorRequest& request_;
  RunFolder folder_;
  std::optional<Signals> signals_;
  RunState state_;
  std::unique_ptr<RunSettings> settings_;
  std::string unknown_;  // why there are none
  RunValues first_;      // as the command says them
  std::optional<BatchScaler> scaler_;
  Resume resume_;
  const std::map<std::string, std::string> allocator_ = with_expandable_segments(environment_here());
  std::optional<SlurmJob> slurm_;
  int64_t kills_before_ = 0;
  std::optional<int64_t> last_failed_step_;
  bool own_error_file_ = false, events_lost_ = false, unsaved_ = false, warned_ = false;
};

}  // namespace

// What the user asked for is the most, and a whole number of micro-batches makes the step.
ScalerSettings scaler_settings(const SupervisorRequest& request, const RunValues& first) {
  ScalerSettings s;
  s.batch = first.batch;
  s.global_batch = checked_mul(first.batch, std::max<int64_t>(1, first.accumulation));
  s.minimum = std::min(request.minimum, s.global_batch);
  s.maximum = request.maximum > 0 ? request.maximum : first.batch;
  s.equal_parts = true;
  s.most_failures = s.global_batch + 1;  // the supervisor counts them, and starts anew where there was progress
  return s;
}

int supervise(const SupervisorRequest& request) {
  if (request.command.empty()) throw Error("[run] there is no command", "plimsoll run -- python train.py", ExitCode::usage);
  if (queues_only(request.command))
    throw Error("[run] sbatch only puts a job into the queue: there would be nothing to supervise",
                "put it inside the script: plimsoll run -- srun ..., and give that to sbatch", ExitCode::usage);
  if (const auto rank = rank_here(environment_here()))
    throw Error(
        fmt::format("[run] this is rank {} of {} of {}: here each rank would decide for itself", rank->rank, rank->ranks, rank->launcher),
        fmt::format("put it before the launcher: plimsoll run -- {} ...", rank->launcher), ExitCode::usage);
  return Supervisor(request).run();
}

}  // namespace plimsoll
