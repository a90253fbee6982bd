// A command that is run so that nothing of it is left: its output passes through unchanged and its end is kept for reading, signals reach
// it, and whatever it started ends with it, even when this process is killed. A keeper stands between the two: a process that adopts what
// the command leaves behind and ends it all when the command or this process ends.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll {

// Takes the signals that are to be passed on away from this process for as long as it lives.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return descriptor_; }
  std::optional<int> take();                                // one that came
  std::optional<int> wait(std::chrono::milliseconds most);  // the first that comes and asks to stop

 private:
  int descriptor_ = -1;
};

struct ChildRequest {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  // on top of this process's own
  int lock = -1;                                   // a descriptor that stays open until all of it has ended
  std::chrono::milliseconds grace{10000};          // between SIGTERM and SIGKILL for what is left behind

  // Called every so often with the processes of the command while it runs; may be empty.
  std::function<void(const std::vector<int64_t>& pids)> look;
  std::chrono::milliseconds between_looks{5000};
  // Asked once whenever it has written nothing for so long, with the end of its output: whether it waits for something that has failed
  // and is to be ended. May be empty.
  std::function<bool(const std::string& output)> hangs;
  std::chrono::milliseconds silence{0};
};

struct ChildEnd {
  int error = 0;        // of exec: the command was not started
  int status = 0;       // as waitpid() has it
  int forwarded = 0;    // the last signal passed on that asks to stop; 0: none
  int left_behind = 0;  // processes that outlived the command, and were ended
  bool hung = false;    // it was ended because `hangs` said so
  std::string output;   // the end of what it wrote, both streams as they came
  double seconds = 0;
};

ChildEnd run_child(const ChildRequest& request, Signals& signals);

// What a shell would call its end: the exit code, or 128 + the signal.
int exit_code_of(int status);

}  // namespace plimsoll
