// What one error text says: which memory ran out, who says so, and the numbers it prints. One reader for each wording; readers.cpp lists
// them. A reader that is not sure what a line is says nothing: tips, tests, comments and source lines that mention memory are no symptoms.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

enum class Memory : uint8_t { gpu, host, tpu, mps, shm, none };
const char* to_string(Memory memory);

// `certain`: it says that memory ran out. `likely`: a signal or status that hardly has another reason (SIGKILL). `possible`: a status that
// has other reasons too, and on-chip limits: not called an out-of-memory.
enum class Certainty : uint8_t { certain, likely, possible };
const char* to_string(Certainty certainty);

struct ProcessOnDevice {
  int64_t pid = 0, bytes = 0;
};

struct Symptom {
  std::string kind;       // "pytorch_cuda", "kernel_oom"
  std::string framework;  // "pytorch"; empty: not known
  Memory memory = Memory::gpu;
  Certainty certainty = Certainty::certain;
  bool harmless_alone = false;  // programs go on after it: counts only if the run did not

  std::optional<int64_t> tried, total, free, allocated, reserved;
  std::optional<int64_t> allowed;        // a limit below the device's size
  std::optional<int64_t> process;        // all that this process has on the device, with what the framework does not know of
  std::optional<int64_t> private_pools;  // of CUDA graphs, inside `allocated`
  std::vector<ProcessOnDevice> processes;
  std::optional<int> device;  // its number
  std::optional<int> rank;    // when the text itself says it
  std::string shape;          // of the tensor that was asked for
  std::string note;           // what else it says: a process name, an operation
  bool impossible_size = false;
};

inline Symptom symptom(const char* kind, const char* framework, Memory memory) {
  Symptom s;
  s.kind = kind;
  s.framework = framework;
  s.memory = memory;
  return s;
}

// Where a wording was found. `text` is its line (without prefixes) and those that follow, newlines kept; `at` its offset in it.
struct Place {
  std::string_view text;
  size_t at = 0, length = 0;

  std::string_view line() const { return text.substr(0, std::min(text.size(), text.find('\n'))); }
  std::string_view before() const { return text.substr(0, at); }
  std::string_view from() const { return text.substr(at); }
  std::string_view after() const { return text.substr(at + length); }
};

struct SymptomReader {
  const char* needle;
  std::function<std::optional<Symptom>(const Place&)> read;
};

const std::vector<SymptomReader>& symptom_readers();

// One list for each file of readers.
std::vector<SymptomReader> pytorch_readers();
std::vector<SymptomReader> cuda_readers();
std::vector<SymptomReader> xla_readers();
std::vector<SymptomReader> tensorflow_readers();
std::vector<SymptomReader> host_readers();
std::vector<SymptomReader> python_readers();
std::vector<SymptomReader> serving_readers();
std::vector<SymptomReader> runtime_readers();
std::vector<SymptomReader> framework_readers();
std::vector<SymptomReader> job_readers();

// Judgements that readers share.
// The wording is the message of an error: after an exception's name, a log's decoration or nothing, not in prose, quotes, code or a
// comment.
bool is_message(const Place& place);
// The same for a complete message with its numbers: only quotes, code, comments and "if you see ..." are refused.
bool is_complete_message(const Place& place);
// What follows is the end of a sentence, not more of it ("out of memory errors").
bool ends_sentence(std::string_view after);

}  // namespace plimsoll
