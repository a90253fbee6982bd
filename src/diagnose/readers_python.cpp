// Python, NumPy, C++'s new, and the workers of PyTorch's DataLoader with their shared memory.
#include <algorithm>

#include "diagnose/printed_size.h"
#include "diagnose/symptom.h"
#include "diagnose/words.h"

namespace plimsoll {

namespace {

Symptom in_python(const char* kind, Memory memory = Memory::host) {
  Symptom s;
  s.kind = kind;
  s.memory = memory;
  return s;
}

// "Unable to allocate 7.91 GiB for an array with shape (1396913, 190, 4) and data type float64"; 1.17: "Unable to allocate array with
// shape".
std::optional<Symptom> numpy(const Place& place) {
  if (!is_complete_message(place)) return {};
  const std::string_view text = place.from().substr(0, 400);
  const size_t shape = text.find("with shape (");
  if (shape == std::string_view::npos || shape > 80) return {};
  Symptom s = in_python("numpy");
  s.framework = "numpy";
  s.tried = printed_size(place.after()) ? std::optional(printed_size(place.after())->bytes) : std::nullopt;
  const size_t close = text.find(')', shape), type = text.find("data type ", shape);
  if (close != std::string_view::npos) s.shape = std::string(text.substr(shape + 11, close - shape - 10)).substr(0, 80);
  if (type != std::string_view::npos && type < close + 12)
    s.shape += " " + std::string(text.substr(type + 10, std::min<size_t>(12, text.find_first_of(" \n`'\"", type + 10) - type - 10)));
  return s;
}

// The exception without a message, as its traceback ends: "MemoryError" alone, or "MemoryError: ..." that no other reader knows.
std::optional<Symptom> memory_error(const Place& place) {
  std::string_view before = place.before();
  while (!before.empty() && (before.back() == '.' || before.back() == '_' || std::isalnum(static_cast<unsigned char>(before.back()))))
    before.remove_suffix(1);
  const bool first = before.find_first_not_of(" \tE") == std::string_view::npos;
  const std::string_view after = place.after();
  if (!first || !(after.empty() || after[0] == '\n' || after[0] == ':') || place.before().ends_with("OutOf")) return {};
  if (after.starts_with(": std::bad_alloc: out_of_memory") || has(place.before(), "opencl")) return {};  // of a device
  Symptom s = in_python("python_memory");
  s.framework = "python";
  s.tried = number_after(after.substr(0, 60), "alloc of size ");                // Arrow: "realloc of size 2172846080 failed"
  if (!s.tried) s.tried = size_after(after.substr(0, 60), "Cannot allocate ");  // tinygrad
  return s;
}

std::optional<Symptom> bad_alloc(const Place& place) {
  if (has(place.line(), "catch") || place.after().starts_with(": out_of_memory") || place.after().starts_with(": out of memory") ||
      place.after().starts_with(": cudaError") || !is_complete_message(place))
    return {};
  if (!has(place.before(), "what():") && !has(place.before(), "terminate called") && !is_message(place)) return {};
  return in_python("bad_alloc");
}

// "DataLoader worker (pid 19597) is killed by signal: Killed." and the other signals.
std::optional<Symptom> worker(const Place& place) {
  if (!is_complete_message(place)) return {};
  const std::string_view line = place.from().substr(0, 200);
  if (!number_after(line, "(pid ") && !number_after(line, "(pid(s) ")) return {};
  const bool bus = has(line, "killed by signal: Bus error"), killed = has(line, "killed by signal: Killed"),
             exited = has(line, "exited unexpectedly");
  if (!bus && !killed && !exited) return {};
  Symptom s = in_python(bus ? "dataloader_shm" : killed ? "dataloader_killed" : "dataloader_exited", bus ? Memory::shm : Memory::host);
  s.framework = "pytorch";
  if (!bus) s.certainty = Certainty::likely;
  return s;
}

std::optional<Symptom> bus_error(const Place& place) {
  if (!is_complete_message(place)) return {};
  Symptom s = in_python("dataloader_shm", Memory::shm);
  s.framework = "pytorch";
  return s;
}

// "unable to write to file </torch_739_144252761_4>: No space left on device (28)", "unable to allocate shared memory(shm) for file
// </torch_...>".
std::optional<Symptom> shared_memory(const Place& place) {
  const std::string_view line = place.line();
  const bool maps = has(line, "unable to mmap ");
  if (!is_complete_message(place) || !(maps || has(line, "torch_"))) return {};
  Symptom s = in_python("shm", Memory::shm);
  s.framework = "pytorch";
  if (maps) {  // the address space or the host's memory, not the size of /dev/shm
    if (!has(line, "Cannot allocate memory")) return {};
    s.kind = "mmap";
    s.memory = Memory::host;
    s.tried = size_after(line, "unable to mmap ");
  }
  return s;
}

std::optional<Symptom> no_space(const Place& place) {
  const std::string_view line = place.line();
  if (!has(line, "/dev/shm") && !has(line, "shared memory")) return {};
  if (has(line, "unable to write to file") || !is_complete_message(place)) return {};
  return in_python("shm", Memory::shm);
}

// fork() or malloc() that the kernel refused.
std::optional<Symptom> cannot_allocate(const Place& place) {
  const bool after_colon = trimmed(place.before()).ends_with(':');  // "fork: Cannot allocate memory"
  if (!after_colon && !has(place.before(), "Errno 12")) return {};
  if (!is_complete_message(place) || has(place.line(), "unable to mmap ")) return {};
  return in_python("python_memory");
}

// "memory allocation of 123920 bytes failed", as every program in Rust says it.
std::optional<Symptom> rust(const Place& place) {
  const auto size = printed_size(place.after());
  if (!size || !size->rest.starts_with(" failed") || !is_complete_message(place)) return {};
  Symptom s = in_python("bad_alloc");
  s.tried = size->bytes;
  return s;
}

std::optional<Symptom> llvm(const Place&) { return in_python("bad_alloc"); }

}  // namespace

std::vector<SymptomReader> python_readers() {
  return {
      {"Unable to allocate ", numpy},
      {"MemoryError", memory_error},
      {"std::bad_alloc", bad_alloc},
      {"DataLoader worker (pid", worker},
      {"Unexpected bus error encountered in worker", bus_error},
      {"unable to allocate shared memory(shm) for file", shared_memory},
      {"unable to write to file <", shared_memory},
      {"unable to mmap ", shared_memory},
      {"No space left on device", no_space},
      {"Cannot allocate memory", cannot_allocate},
      {"memory allocation of ", rust},
      {"LLVM ERROR: out of memory", llvm},
  };
}

}  // namespace plimsoll
