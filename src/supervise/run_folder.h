// Where a supervised run keeps what it needs to go on after anything: its state (written whole or not at all), its events (one JSON line
// each), the lock that keeps a second supervisor out, and the settings that were rewritten.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll {

class RunFolder {
 public:
  // Makes the folder. Throws an Error when it cannot be written to.
  explicit RunFolder(std::string path, std::string events = "");
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Waits for a supervisor that was here, or for what it left, to end; `waits` is called once when that takes a while. Throws an Error
  // when it takes longer than so many seconds.
  void lock(double seconds, const std::function<void()>& waits = {});
  int lock_descriptor() const { return lock_; }

  // What was saved, or nothing. A file that is none is set aside and said in `broken`.
  std::optional<nlohmann::json> load(std::string* broken) const;
  // False: it could not be written, and `problem` says why. What was saved before is then still there.
  bool save(const nlohmann::ordered_json& state, std::string* problem) const;
  void forget() const;
  // Gives the saved state another name, and returns it.
  std::string set_aside() const;
  bool write_event(const nlohmann::ordered_json& event) const;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_, events_;
  int lock_ = -1;
};

// Whole or not at all, also after a power failure. Returns why not; empty: it is written.
std::string write_whole(const std::string& path, const std::string& text);

// The usual place for a command in a folder: .plimsoll/NAME-1a2b3c4d, and with the task's number in an array of Slurm jobs, whose tasks are
// the same command.
std::string usual_folder(const std::vector<std::string>& command);

}  // namespace plimsoll
