// The line protocol of `plimsoll replay` without a file: allocator operations in, one answer line per operation out
// (docs/replay.md). A header of `# key: value` lines names the device and the settings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace plimsoll {

class ProtocolSession {
 public:
  ProtocolSession();
  ~ProtocolSession();

  // Feeds one line (without its newline) and appends what it answers to `out`. Throws Error naming the line for one that is
  // not understood; nothing is answered then.
  void feed(std::string_view line, std::string& out);
  int64_t operations() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A whole script at once.
std::string replay_protocol(std::string_view script);

}  // namespace plimsoll
