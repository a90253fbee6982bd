#include "supervise/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "util/error.h"

extern char** environ;

namespace plimsoll {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kTail = 4 << 20;  // of the output that is kept: more than any traceback of a hundred ranks
constexpr std::array kStopping{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array kOthers{SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGWINCH};

bool asks_to_stop(int signal) { return std::find(kStopping.begin(), kStopping.end(), signal) != kStopping.end(); }

sigset_t passed_on() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : kStopping) sigaddset(&set, s);
  for (const int s : kOthers) sigaddset(&set, s);
  return set;
}

// A descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Descriptor() { close(); }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

struct Pipe {
  Descriptor read, write;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw Error(std::string("[run] no pipe: ") + std::strerror(errno), "too many open files?");
    read = Descriptor(ends[0]);
    write = Descriptor(ends[1]);
  }
};

// What the keeper reports, one after the other.
struct Report {
  enum class What : int { started, failed, ended } what = What::started;
  int value = 0;        // the pid, errno, the status
  int left_behind = 0;  // with `ended`
};

// ---- the tree of processes

// Everything below a process, by the parents in /proc.
std::vector<pid_t> descendants(pid_t of = getpid()) {
  std::vector<std::pair<pid_t, pid_t>> parents;  // of pid
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const pid_t pid = static_cast<pid_t>(std::atoi(at->path().filename().c_str()));
    if (pid <= 0) continue;
    std::ifstream in(at->path() / "stat");
    std::string text;
    std::getline(in, text);
    const size_t name_end = text.rfind(')');  // a name may hold anything
    if (name_end == std::string::npos || text.size() < name_end + 5 || text[name_end + 2] == 'Z') continue;
    parents.emplace_back(pid, static_cast<pid_t>(std::atoi(text.c_str() + name_end + 4)));
  }
  std::vector<pid_t> found{of};
  for (size_t i = 0; i < found.size(); ++i)
    for (const auto& [pid, parent] : parents)
      if (parent == found[i] && pid != found[i]) found.push_back(pid);
  found.erase(found.begin());
  return found;
}

void reap() {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

// Ends all of them; they are told first. Returns how many there were.
int end_descendants(milliseconds grace) {
  const int count = static_cast<int>(descendants().size());
  for (const pid_t pid : descendants()) kill(pid, SIGTERM), kill(pid, SIGCONT);
  const auto end = Clock::now() + grace;
  for (;;) {
    const std::vector<pid_t> left = descendants();
    reap();
    if (left.empty()) return count;
    if (Clock::now() > end)
      for (const pid_t pid : left) kill(pid, SIGKILL);
    poll(nullptr, 0, 10);
  }
}

// ---- the keeper

struct Streams {
  int in = -1, out = -1, err = -1;  // of the child; -1: as they are
  int terminal = -1;                // the slave that controls its session
};

[[noreturn]] void become(const std::vector<char*>& words, const Streams& s, const Descriptor& failed, pid_t keeper) {
  setsid();
  if (s.terminal >= 0) ioctl(s.terminal, TIOCSCTTY, 0);
  if (s.in >= 0) dup2(s.in, 0);
  if (s.out >= 0) dup2(s.out, 1);
  if (s.err >= 0) dup2(s.err, 2);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != keeper) _exit(127);
  execvp(words[0], words.data());
  const int error = errno;
  (void)!write(failed.get(), &error, sizeof error);
  _exit(127);
}

[[noreturn]] void keep(const ChildRequest& request, const std::vector<char*>& words, const Streams& streams, int lifeline, int report) {
  setpgid(0, 0);  // not in the way of a terminal's Ctrl-C
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, "plimsoll-keeper");
  signal(SIGPIPE, SIG_IGN);
  const auto say = [&](Report r) { (void)!write(report, &r, sizeof r); };
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child_ended, nullptr);
  const Descriptor children(signalfd(-1, &child_ended, SFD_CLOEXEC | SFD_NONBLOCK));

  Pipe failed;
  const pid_t me = getpid();
  const pid_t child = fork();
  if (child == 0) become(words, streams, failed.write, me);
  failed.write.close();
  int error = child < 0 ? errno : 0;
  if (child > 0 && read(failed.read.get(), &error, sizeof error) != sizeof error) error = 0;
  if (error) {
    say({Report::What::failed, error, 0});
    _exit(0);
  }
  // What the child writes to is its own alone.
  for (const int fd : {streams.in, streams.out, streams.err, streams.terminal})
    if (fd > 2) close(fd);
  say({Report::What::started, child, 0});
  for (;;) {
    pollfd waiting[] = {{lifeline, POLLIN, 0}, {children.get(), POLLIN, 0}};
    if (poll(waiting, 2, -1) < 0 && errno != EINTR) break;
    signalfd_siginfo info;
    while (read(children.get(), &info, sizeof info) > 0) {
    }
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
      if (pid == child) {
        const int left = end_descendants(request.grace);
        say({Report::What::ended, status, left});
        _exit(0);
      }
    if (waiting[0].revents) break;  // the other end is closed: whoever watched is gone
  }
  end_descendants(request.grace);
  _exit(0);
}

// ---- the terminal

// A terminal for the child where this process has one; both ends closed otherwise.
struct Terminal {
  Descriptor master, slave;

  void open() {
    master = Descriptor(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!master.open() || grantpt(master.get()) != 0 || unlockpt(master.get()) != 0) return master.close();
    slave = Descriptor(::open(ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!slave.open()) return master.close();
    termios as{};
    if (tcgetattr(slave.get(), &as) == 0) {
      as.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // the real one does that
      as.c_lflag &= ~static_cast<tcflag_t>(ECHO);
      tcsetattr(slave.get(), TCSANOW, &as);
    }
    copy_size();
  }
  void copy_size() const {
    winsize size{};
    for (const int fd : {0, 1, 2})
      if (isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0) {
        ioctl(master.get(), TIOCSWINSZ, &size);
        return;
      }
  }
};

// A stream of the child: what is read is written on, and its end is kept.
class ChildStream {
 public:
  ChildStream(int from, int to) : from_(from), to_(to) {}
  int from() const { return from_; }
  bool open() const { return from_ >= 0; }

  // Whether there was anything.
  bool pass(std::string& tail) {
    char chunk[65536];
    const ssize_t n = read(from_, chunk, sizeof chunk);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return false;
    if (n <= 0) {  // a terminal whose other end is closed gives an error
      from_ = -1;
      return false;
    }
    tail.append(chunk, static_cast<size_t>(n));
    if (tail.size() > 2 * kTail) tail.erase(0, tail.size() - kTail);
    for (ssize_t done = 0; done < n && !deaf_;) {
      const ssize_t written = write(to_, chunk + done, static_cast<size_t>(n - done));
      if (written >= 0) {
        done += written;
      } else if (errno == EAGAIN) {
        pollfd ready{to_, POLLOUT, 0};
        poll(&ready, 1, 1000);
      } else if (errno == EPIPE) {
        from_ = -1;  // nobody reads any more: the child will be told as it writes
        return true;
      } else if (errno != EINTR) {
        deaf_ = true;  // a full disk: training goes on without its log
      }
    }
    return true;
  }

 private:
  int from_, to_;
  bool deaf_ = false;
};

void pass_signal(int signal, pid_t child, const Terminal& terminal) {
  if (signal == SIGWINCH) {
    if (terminal.master.open()) terminal.copy_size();
  } else if (signal == SIGTSTP) {
    kill(-child, SIGSTOP);
    kill(getpid(), SIGSTOP);
    kill(-child, SIGCONT);
  } else if (asks_to_stop(signal) || signal == SIGCONT) {
    kill(-child, signal);
  } else {
    kill(child, signal);  // its workers would die of it
  }
}

// Lines of both streams in one file or pipe keep their order only when the child writes to one.
bool same_place(int a, int b) {
  struct stat x {
  }, y{};
  return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// One run of the command, from this process's side: output, signals and typing pass through until the keeper has ended.
class ChildRun {
 public:
  ChildRun(const ChildRequest& request, Signals& signals) : request_(request), signals_(signals) {
    if (isatty(0) || isatty(1) || isatty(2)) terminal_.open();
    pty_ = terminal_.master.open();
    start_keeper();
    from_ = {{out_.read.get(), 1}, {err_.read.get(), 2}};
    if (pty_) from_.emplace_back(terminal_.master.get(), through_terminal(1) ? 1 : 2);
    typed_ = through_terminal(0) && tcgetpgrp(0) == getpgrp();
  }

  ChildEnd run() {
    while (kept_ || std::any_of(from_.begin(), from_.end(), [](const ChildStream& s) { return s.open(); }))
      if (!pass_on()) break;
    waitpid(keeper_, nullptr, 0);
    reap();
    if (!reported_) {  // the keeper was killed, or ended everything because it was told to
      end_.left_behind = end_descendants(request_.grace);
      end_.status = SIGKILL;
    }
    end_.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    return std::move(end_);
  }

 private:
  bool through_terminal(int fd) const { return pty_ && isatty(fd); }

  void start_keeper() {
    std::vector<char*> words;
    for (const std::string& word : request_.command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    const int slave = terminal_.slave.get();
    const bool together = !isatty(1) && !isatty(2) && same_place(1, 2);
    const Streams streams{through_terminal(0) ? slave : -1, through_terminal(1) ? slave : out_.write.get(),
                          through_terminal(2) ? slave : (together ? out_ : err_).write.get(), slave};
    keeper_ = fork();
    if (keeper_ < 0)
      throw Error(std::string("[run] no process can be started: ") + std::strerror(errno), "too many processes, or no memory");
    if (keeper_ == 0) {
      lifeline_.write.close();
      report_.read.close();
      out_.read.close();
      err_.read.close();
      terminal_.master.close();
      keep(request_, words, streams, lifeline_.read.get(), report_.write.get());
    }
    lifeline_.read.close();
    report_.write.close();
    out_.write.close();
    err_.write.close();
    terminal_.slave.close();
  }

  // Waits for something to do and does it. False: all is drained.
  bool pass_on() {
    std::vector<pollfd> waiting{
        {signals_.descriptor(), POLLIN, 0}, {kept_ ? report_.read.get() : -1, POLLIN, 0}, {typed_ ? 0 : -1, POLLIN, 0}};
    for (const ChildStream& s : from_) waiting.push_back({s.from(), POLLIN, 0});
    const int ready = poll(waiting.data(), waiting.size(), kept_ ? patience() : 0);
    if ((ready < 0 && errno != EINTR) || (ready == 0 && !kept_)) return false;
    for (size_t i = 0; i < from_.size(); ++i)
      if (from_[i].open() && waiting[3 + i].revents && from_[i].pass(end_.output)) heard_ = Clock::now(), asked_ = false;
    if (!from_[0].open()) out_.read.close();
    if (!from_[1].open()) err_.read.close();
    pass_signals();
    if (typed_ && waiting[2].revents) pass_typing();
    if (kept_ && waiting[1].revents) hear_keeper();
    if (kept_ && child_ > 0) look_around();
    return true;
  }

  // Until the next look, or the end of a silence; -1: none.
  int patience() const {
    const auto until = [](Clock::time_point t) {
      return static_cast<int>(std::max<int64_t>(0, std::chrono::duration_cast<milliseconds>(t - Clock::now()).count() + 1));
    };
    int most = -1;
    if (child_ > 0 && request_.look) most = until(next_look_);
    if (child_ > 0 && request_.hangs && !asked_)
      most = most < 0 ? until(heard_ + request_.silence) : std::min(most, until(heard_ + request_.silence));
    return most;
  }

  void look_around() {
    const auto now = Clock::now();
    if (request_.look && now >= next_look_) {
      next_look_ = now + request_.between_looks;
      const std::vector<pid_t> pids = descendants(keeper_);
      request_.look({pids.begin(), pids.end()});
    }
    if (request_.hangs && !asked_ && now - heard_ >= request_.silence) {
      asked_ = true;
      if (request_.hangs(end_.output)) end_.hung = true, lifeline_.write.close();
    }
  }

  void pass_signals() {
    while (const std::optional<int> signal = signals_.take()) {
      if (asks_to_stop(*signal)) end_.forwarded = *signal;
      if (child_ > 0) pass_signal(*signal, child_, terminal_);
      if (child_ == 0 && asks_to_stop(*signal)) lifeline_.write.close();
    }
  }

  void pass_typing() {
    char line[4096];
    const ssize_t n = read(0, line, sizeof line);
    typed_ = n > 0;
    const char end_of_file = 4;
    (void)!write(terminal_.master.get(), n > 0 ? line : &end_of_file, n > 0 ? static_cast<size_t>(n) : 1);
  }

  void hear_keeper() {
    Report r;
    if (read(report_.read.get(), &r, sizeof r) != sizeof r) {
      kept_ = false;
    } else if (r.what == Report::What::started) {
      child_ = r.value;
    } else if (r.what == Report::What::failed) {
      end_.error = r.value;
      reported_ = true;
    } else {
      end_.status = r.value;
      end_.left_behind = r.left_behind;
      reported_ = true;
    }
  }

  const ChildRequest& request_;
  Signals& signals_;
  Terminal terminal_;
  Pipe lifeline_, report_, out_, err_;
  std::vector<ChildStream> from_;
  pid_t keeper_ = -1, child_ = 0;
  bool pty_ = false, typed_ = false, reported_ = false, kept_ = true, asked_ = false;
  Clock::time_point begin_ = Clock::now(), heard_ = begin_, next_look_ = begin_;
  ChildEnd end_;
};

}  // namespace

Signals::Signals() {
  const sigset_t set = passed_on();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  descriptor_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0) throw Error(std::string("[run] no descriptor for signals: ") + std::strerror(errno));
}

Signals::~Signals() {
  close(descriptor_);
  const sigset_t set = passed_on();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

std::optional<int> Signals::take() {
  signalfd_siginfo info;
  if (read(descriptor_, &info, sizeof info) != sizeof info) return {};
  return static_cast<int>(info.ssi_signo);
}

std::optional<int> Signals::wait(milliseconds most) {
  const auto end = Clock::now() + most;
  for (;;) {
    while (const std::optional<int> signal = take())
      if (asks_to_stop(*signal)) return signal;
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now()).count();
    if (left <= 0) return {};
    pollfd waiting{descriptor_, POLLIN, 0};
    poll(&waiting, 1, static_cast<int>(left) + 1);
  }
}

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

ChildEnd run_child(const ChildRequest& request, Signals& signals) {
  for (const auto& [name, value] : request.environment) setenv(name.c_str(), value.c_str(), 1);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // for when the keeper is killed
  return ChildRun(request, signals).run();
}

}  // namespace plimsoll
