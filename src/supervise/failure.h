// Why a command ended: which memory ran out, or that it was something else. One judgement from everything that can be known: the exit
// status, what it wrote, torchelastic's error files, the control group's counter, Slurm's state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/diagnosis.h"

namespace plimsoll {

enum class FailureKind : uint8_t {
  none,           // it ended well
  device_memory,  // of a GPU or TPU
  host_memory,    // of the machine, a control group, a limit
  worker,         // a process of the data loader died: memory of the host or /dev/shm
  stopped,        // by a signal that was passed on
  other,
};
const char* to_string(FailureKind kind);

struct FailureEvidence {
  int status = 0;                        // as waitpid() has it
  int forwarded = 0;                     // a signal that was passed on
  std::string output;                    // the end of what it wrote
  std::vector<std::string> error_files;  // texts of torchelastic's
  int64_t oom_kills = 0;                 // of the control group while it ran
  std::string slurm_state;               // "OUT_OF_MEMORY"; empty: not known
};

struct Failure {
  FailureKind kind = FailureKind::none;
  std::string reason;                // a sentence
  std::vector<std::string> sources;  // what said so: "output", "exit status", "control group", "error file", "slurm"
  std::string text;                  // the message that was read; empty: none
  std::vector<int> ranks;            // that had it
  std::optional<int64_t> limit;      // of the device, as the message has it, less what others use
  bool fragmented = false;           // the memory would have been there in another layout
  std::optional<int64_t> step;       // how far it was

  bool is_memory() const { return kind == FailureKind::device_memory || kind == FailureKind::host_memory || kind == FailureKind::worker; }
};

Failure judge(const FailureEvidence& evidence);

// Whether a command that still runs has, by the end of its output, lost a part of itself to memory: an exception that nobody caught, after
// which training did not go on. The other ranks then wait for it, often until a time-out of theirs.
bool waits_for_the_dead(const std::string& output);

// How often the kernel ended a process of this process's control group for its memory; 0 where that is not counted.
int64_t oom_kills(const std::string& root = "");
// The message of an error file (TORCHELASTIC_ERROR_FILE); empty when there is none.
std::string read_error_file(const std::string& path);

}  // namespace plimsoll
