#include "watch/session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "hardware/detect.h"
#include "util/text.h"
#include "watch/history.h"
#include "watch/listener.h"
#include "watch/prometheus.h"
#include "watch/screen.h"
#include "watch/view.h"
#include "watch/watcher.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t stop_asked = 0;
void ask_to_stop(int) { stop_asked = 1; }

// Seconds since 1970 that never jump: the system's clock at the beginning, and the steady one since.
class Time {
 public:
  double now() const { return wall_ + std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  double wall_ = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  Clock::time_point begin_ = Clock::now();
};

void say(const std::string& text) { std::cerr << "plimsoll: " << text << "\n"; }

// A command that the watch starts. It goes on when the watch ends.
class Child {
 public:
  // `alone`: the keys and Ctrl-C of the terminal are the watch's.
  Child(const std::vector<std::string>& words, const std::string& output, bool alone) {
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0) throw Error("[watch] cannot start a process", std::strerror(errno));
    std::vector<char*> arguments;
    for (const std::string& w : words) arguments.push_back(const_cast<char*>(w.c_str()));
    arguments.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      const int to = output.empty() ? STDERR_FILENO : open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      if (to >= 0) dup2(to, STDOUT_FILENO);
      if (to >= 0 && !output.empty()) dup2(to, STDERR_FILENO);
      if (alone) {
        setsid();
        if (const int nothing = open("/dev/null", O_RDONLY); nothing >= 0) dup2(nothing, STDIN_FILENO);
      }
      execvp(arguments[0], arguments.data());
      const int why = errno;
      if (write(report[1], &why, sizeof why) < 0) _exit(126);
      _exit(127);
    }
    close(report[1]);
    int why = 0;
    const bool failed = pid_ < 0 || read(report[0], &why, sizeof why) == sizeof why;
    close(report[0]);
    if (!failed) return;
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    throw Error("[watch] cannot start '" + words[0] + "': " + std::strerror(why), "give a pid, a log file, or -- and a command",
                ExitCode::usage);
  }

  int64_t pid() const { return pid_; }
  // How it ended, or that it goes on.
  std::string end() const {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return fmt::format("the command goes on as process {}", pid_);
    if (WIFSIGNALED(status)) return fmt::format("the command was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
    return fmt::format("the command ended with {}", WEXITSTATUS(status));
  }

 private:
  pid_t pid_ = -1;
};

bool is_number(const std::string& text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos; }

bool is_log(const std::string& word) {
  std::error_code error;
  return fs::is_regular_file(word, error) && access(word.c_str(), X_OK) != 0;
}

// What the words mean: a pid and a log in any order, else a command.
struct Words {
  WatchTarget target;
  std::vector<std::string> command;
};

Words understand(const WatchRequest& r) {
  Words out;
  out.target.devices = r.devices;
  out.target.log = r.log;
  size_t i = 0;
  for (; i < r.target.size() && i < 2; ++i) {
    const std::string& word = r.target[i];
    if (is_number(word) && !out.target.pid) {
      const auto pid = whole_number(word);
      if (!pid || *pid <= 0 || *pid > INT32_MAX)
        throw Error("[watch] '" + printable(word, 40) + "' is no pid", "`ps` lists them", ExitCode::usage);
      out.target.pid = pid;
    } else if (is_log(word) && out.target.log.empty()) {
      out.target.log = word;
    } else {
      break;
    }
  }
  if (i == r.target.size()) return out;
  if (out.target.pid)
    throw Error("[watch] '" + printable(r.target[i], 60) + "' after a pid is no log file", "give one pid, and its log if it has one",
                ExitCode::usage);
  out.command = {r.target.begin() + static_cast<long>(i), r.target.end()};
  if (i > 0 || (out.command.size() == 1 && out.command[0].find('/') != std::string::npos && !fs::exists(out.command[0])))
    throw Error("[watch] there is no file '" + printable(out.command[0], 60) + "'", "give a pid, a log file, or -- and a command",
                ExitCode::usage);
  return out;
}

Surroundings surroundings_of(const WatchRequest& r) {
  Surroundings s = Surroundings::here();
  std::error_code error;
  if (!r.root.empty() && !fs::is_directory(r.root, error))
    throw Error("[watch] --root '" + r.root + "' is not a folder", "give the folder that holds proc and sys, e.g. --root /host",
                ExitCode::usage);
  s.root = r.root;
  if (!r.nvml.empty()) s.nvml = {r.nvml};
  if (!r.rocm_smi.empty()) s.rocm_smi = {r.rocm_smi};
  return s;
}

// The words of a process are relative to its own directory.
class InDirectory {
 public:
  explicit InDirectory(const std::string& path) {
    std::error_code error;
    before_ = fs::current_path(error);
    if (!path.empty()) fs::current_path(path, error);
  }
  ~InDirectory() {
    std::error_code error;
    fs::current_path(before_, error);
  }

 private:
  fs::path before_;
};

std::optional<TargetDevice> first_device(const Watcher& watcher) {
  for (const DetectedDevice& d : watcher.devices())
    if (d.visible != Visible::no) return target_device(d);
  return {};
}

// Of what the user described; else of the process's own command line, and then what is not understood is no error.
std::optional<Prediction> prediction_of(const WatchRequest& r, const Watcher& watcher) {
  if (r.job_given) {
    Prediction p = predict(r.job.job(), first_device(watcher), r.calibrated);
    p.source = !r.job.job_file.empty() ? "--job " + r.job.job_file : r.job.run.empty() ? "flags" : "--run " + join(r.job.run, " ");
    return p;
  }
  if (!watcher.tree()) return {};
  const std::vector<std::string> words = watcher.tree()->command();
  if (words.empty()) return {};
  try {
    const InDirectory there(watcher.tree()->directory());
    JobRequest job;
    for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})
      if (const std::string value = watcher.tree()->variable(name); !value.empty()) job.run.push_back(std::string(name) + "=" + value);
    job.run.insert(job.run.end(), words.begin(), words.end());
    Prediction p = predict(job.job(), first_device(watcher), r.calibrated);
    p.source = "its command line";
    return p;
  } catch (const Error& e) {
    return {};
  }
}

// What the watch tells the next estimate. A short look at a run has not seen its peak.
void keep_measured(const Judge& judge, bool ended) {
  constexpr double kEnough = 60;
  const auto& p = judge.prediction();
  if (!p || !p->run || !judge.peaks().process) return;
  const double watched = judge.now().time - judge.began();
  if (watched < kEnough && !(ended && watched >= kEnough / 6)) return;
  MeasuredRun run = *p->run;
  run.measured = *judge.peaks().process;
  run.source = "watch";
  if (const auto& steps = judge.now().steps; steps && steps->rate && *steps->rate > 0) run.measured_seconds = 1 / *steps->rate;
  if (const std::string said = keep_measured_run(run); !said.empty()) say(said);
}

std::string title_of(const WatchTarget& t, const std::vector<std::string>& command) {
  std::vector<std::string> parts;
  if (t.pid) parts.push_back(fmt::format("process {}", *t.pid));
  if (!command.empty()) parts.push_back(printable(join(command, " "), 80));
  for (const int d : t.devices) parts.push_back(fmt::format("device {}", d));
  if (!t.log.empty()) parts.push_back(t.log);
  return parts.empty() ? "this machine" : join(parts, "  ");
}

void print_lines(const Judge& judge) {
  for (const std::string& e : judge.now().events)
    std::cout << change_text({false, {"", Level::note, e, {}, 0}}, judge.now().time).replace(9, 8, "event   ");
  for (const AlertChange& c : judge.changes()) std::cout << change_text(c, judge.now().time);
  std::cout.flush();
}

void print_json(const Judge& judge, int indent) {
  nlohmann::ordered_json j{{"schema", 1}, {"command", "watch"}};
  j.update(look_json(judge));
  std::cout << j.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

// A run that was kept, judged again.
ExitCode replay(const WatchRequest& r) {
  std::optional<Prediction> prediction;
  if (r.job_given) {
    prediction = predict(r.job.job(), {}, r.calibrated);
    prediction->source = "flags";
  }
  Judge judge(r.thresholds, prediction);
  int64_t looks = 0;
  read_samples(r.replay, [&](const Sample& s) {
    judge.add(s);
    ++looks;
    if (r.output == WatchOutput::jsonl) print_json(judge, -1);
    if (r.output == WatchOutput::view || r.output == WatchOutput::once) print_lines(judge);
  });
  if (looks == 0) throw Error("[watch] " + r.replay + " holds no looks", "give what --history or --jsonl wrote");
  if (r.output == WatchOutput::json) print_json(judge, 2);
  if (r.output == WatchOutput::view || r.output == WatchOutput::once)
    std::cout << (judge.alerts().empty() ? "" : "\n")
              << once_text(judge, fmt::format("{}: {} looks, {}", r.replay, looks, duration_text(judge.now().time - judge.began())),
                           r.style);
  return ExitCode::ok;
}

// Everything that looks go to.
class Session {
 public:
  Session(const WatchRequest& r, Words words) : r_(r), words_(std::move(words)), surroundings_(surroundings_of(r)) {
    if (!r.listen.empty()) listener_ = std::make_unique<Listener>(r.listen, r.listen_anywhere);
    const bool screen = r.output == WatchOutput::view && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO);
    if (!words_.command.empty()) start(screen);
    if (!words_.target.pid && !words_.target.log.empty()) words_.target.pid = writer_of(surroundings_, words_.target.log);
    watcher_ = std::make_unique<Watcher>(surroundings_, detect(surroundings_), words_.target);
    title_ = title_of(words_.target, words_.command.empty() && watcher_->tree() ? watcher_->tree()->command() : words_.command);
    if (!r.history.empty()) history_ = std::make_unique<History>(r.history, title_);
    judge_ = Judge(r.thresholds, prediction_of(r, *watcher_));
    if (listener_) say("metrics for Prometheus: " + listener_->url());
    if (screen) screen_ = std::make_unique<Screen>(ViewOptions{title_, r.style.unicode}, r.style.colour);
  }

  ExitCode run() {
    const double begin = time_.now();
    const bool single = r_.output == WatchOutput::once || r_.output == WatchOutput::json;
    // Loads are what happened between two looks.
    const double until = r_.seconds > 0 ? r_.seconds : single ? std::min(r_.interval, 1.0) : -1;
    for (int64_t n = 1;; ++n) {
      look();
      const bool over = watcher_->ended() || stop_asked || (until >= 0 && time_.now() - begin >= until - 1e-3);
      show(over);
      if (over || !wait(begin + static_cast<double>(n) * std::min(r_.interval, until > 0 ? until : r_.interval))) break;
    }
    return finish();
  }

 private:
  void start(bool screen) {
    std::string output = words_.target.log;
    if (output.empty() && screen) output = fmt::format("{}/plimsoll-watch-{}.log", fs::temp_directory_path().string(), getpid());
    child_ = std::make_unique<Child>(words_.command, output, screen);
    words_.target.pid = child_->pid();
    words_.target.log = output;
  }

  void look() {
    Sample sample = watcher_->look(time_.now());
    // When the process is gone its last figures stay, with what is said about the end.
    if (watcher_->ended() && judge_.now().time > 0) {
      Sample last = judge_.now();
      last.time = sample.time;
      last.events = sample.events;
      for (ProcessSample& p : last.processes) p.state = 'X', p.cpu = p.blocked = p.queued = 0;
      sample = std::move(last);
    }
    judge_.add(sample);
    if (history_)
      if (const std::string problem = history_->keep(judge_); !problem.empty()) problems_.push_back(problem);
    if (listener_) listener_->show(prometheus_text(judge_));
    if (!screen_) {
      for (const std::string& p : problems_) say(p);
      problems_.clear();
    }
  }

  void show(bool last) {
    if (r_.output == WatchOutput::jsonl) print_json(judge_, -1);
    if (last && r_.output == WatchOutput::json) print_json(judge_, 2);
    if (last && r_.output == WatchOutput::once) std::cout << once_text(judge_, title_, r_.style);
    if (r_.output == WatchOutput::view && !screen_) print_lines(judge_);
  }

  // Until the next look; false: the user ended it.
  bool wait(double until) {
    if (screen_) return screen_->wait(std::max(0.0, until - time_.now()), judge_, [] { return stop_asked != 0; });
    while (!stop_asked && time_.now() < until)
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.5, std::max(0.0, until - time_.now()))));
    return true;
  }

  ExitCode finish() {
    const bool had_screen = screen_ != nullptr;
    screen_.reset();
    for (const std::string& p : problems_) say(p);
    if (had_screen) std::cout << once_text(judge_, title_, r_.style);
    if (child_) {
      say(child_->end() + (had_screen ? "; its output: " + words_.target.log : ""));
    }
    keep_measured(judge_, watcher_->ended());
    return ExitCode::ok;
  }

  const WatchRequest& r_;
  Words words_;
  Surroundings surroundings_;
  Time time_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<Watcher> watcher_;
  std::unique_ptr<History> history_;
  std::unique_ptr<Screen> screen_;
  Judge judge_;
  std::string title_;
  std::vector<std::string> problems_;
};

}  // namespace

ExitCode watch(const WatchRequest& request) {
  if (!request.replay.empty()) return replay(request);
  Words words = understand(request);
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  std::signal(SIGPIPE, SIG_DFL);
  return Session(request, std::move(words)).run();
}

}  // namespace plimsoll
