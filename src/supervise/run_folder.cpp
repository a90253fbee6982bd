#include "supervise/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "job/config.h"
#include "util/error.h"

namespace plimsoll {

namespace fs = std::filesystem;

namespace {

// False, with errno, when not all of it could be written.
bool write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

std::string write_whole(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const auto failed = [&](int error) {
    unlink(part.c_str());
    return fmt::format("{} cannot be written: {}", path, std::strerror(error));
  };
  if (fd < 0) return failed(errno);
  const bool written = write_all(fd, text) && fsync(fd) == 0;
  const int error = errno;
  close(fd);
  if (!written) return failed(error);
  if (rename(part.c_str(), path.c_str()) != 0) return failed(errno);
  if (const int folder = open(fs::path(path).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); folder >= 0) {
    fsync(folder);
    close(folder);
  }
  return "";
}

RunFolder::RunFolder(std::string path, std::string events) : path_(std::move(path)), events_(std::move(events)) {
  std::error_code error;
  fs::create_directories(path_, error);
  const std::string hint = "choose another folder: --state DIR";
  if (!fs::is_directory(path_, error)) throw Error("[run] " + path_ + " is no folder, nor can one be made there", hint);
  const std::string probe = file(fmt::format("writable.{}", getpid()));
  if (const std::string problem = write_whole(probe, ""); !problem.empty()) throw Error("[run] " + problem, hint);
  fs::remove(probe, error);
  if (events_.empty()) events_ = file("events.jsonl");
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) close(lock_);
}

void RunFolder::lock(double seconds, const std::function<void()>& waits) {
  lock_ = open(file("lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0)
    throw Error(fmt::format("[run] {} cannot be opened: {}", file("lock"), std::strerror(errno)), "choose another folder: --state DIR");
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now(), end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  bool said = !waits;
  while (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;  // a file system without locks
    if (!said && Clock::now() - begin > std::chrono::seconds(1)) said = true, waits();
    if (Clock::now() > end)
      throw Error("[run] another `plimsoll run` works in " + path_, "wait for it, or give this run a folder of its own: --state DIR");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

std::optional<nlohmann::json> RunFolder::load(std::string* broken) const {
  std::ifstream in(file("state.json"));
  if (!in) return {};
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  nlohmann::json state = nlohmann::json::parse(text, nullptr, false);
  if (state.is_object()) return state;
  *broken = file("state.json") + " was no JSON object; it is now " + set_aside() + ", and the run begins with its own settings";
  return {};
}

std::string RunFolder::set_aside() const {
  std::error_code error;
  fs::rename(file("state.json"), file("state.broken"), error);
  return file("state.broken");
}

bool RunFolder::save(const nlohmann::ordered_json& state, std::string* problem) const {
  *problem = write_whole(file("state.json"), dump(state, 1) + "\n");
  return problem->empty();
}

void RunFolder::forget() const {
  std::error_code error;
  fs::remove(file("state.json"), error);
}

bool RunFolder::write_event(const nlohmann::ordered_json& event) const {
  const int fd = open(events_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  const bool written = write_all(fd, dump(event) + "\n");
  close(fd);
  return written;
}

std::string usual_folder(const std::vector<std::string>& command) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  std::string name = "run";
  for (const std::string& word : command) {
    for (const char c : word + '\0') hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    const std::string stem = fs::path(word).stem().string();
    if (fs::path(word).extension() == ".py" && name == "run") name = stem;
  }
  const char* task = std::getenv("SLURM_ARRAY_TASK_ID");
  const std::string number = task && *task && std::all_of(task, task + std::strlen(task), [](char c) { return c >= '0' && c <= '9'; })
                                 ? std::string("-") + task
                                 : "";
  return fmt::format(".plimsoll/{}-{:08x}{}", name, hash >> 32, number);
}

}  // namespace plimsoll
