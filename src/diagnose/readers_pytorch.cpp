// PyTorch's allocators: CUDA, HIP and XPU of every generation, cudaMallocAsync, MPS, the CPU's.
#include <algorithm>
#include <tuple>

#include "diagnose/printed_size.h"
#include "diagnose/symptom.h"
#include "diagnose/words.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// Of a message that may be wrapped into lines: up to the next message, with single spaces.
std::string one_line(std::string_view text) {
  const size_t own = text.find("Tried to allocate");
  const size_t next = own == std::string_view::npos ? own : text.find("Tried to allocate", own + 1);
  text = text.substr(0, std::min(next, size_t{2000}));
  std::string out;
  for (const char c : text)
    if (!((c == ' ' || c == '\n' || c == '\t') && (out.empty() || out.back() == ' '))) out += c == '\n' || c == '\t' ? ' ' : c;
  return out;
}

std::optional<int> device_number(std::string_view text, std::string_view marker) {
  const auto n = number_after(text, marker);
  return n && *n < 10000 ? std::optional(static_cast<int>(*n)) : std::nullopt;
}

// "Process 1957120 has 7.10 GiB memory in use." and "this process has 8.58 GiB memory in use."
void read_processes(Symptom& s, std::string_view text) {
  constexpr std::string_view kIn = " memory in use";
  while (s.processes.size() < 256) {
    const size_t end = text.find(kIn);
    if (end == std::string_view::npos) return;
    const std::string_view sentence = text.substr(0, end);
    const size_t has = sentence.rfind(" has ");
    if (has != std::string_view::npos) {
      const auto size = printed_size(sentence.substr(has + 5));
      const std::string_view who = sentence.substr(0, has);
      if (size && who.ends_with("this process")) {
        if (size->bytes > 0) s.process = size->bytes;  // containers say 0
      } else if (size && who.rfind("Process ") != std::string_view::npos) {
        const auto pid = number_after(who.substr(who.rfind("Process ")), "Process ");
        s.processes.push_back({pid.value_or(0), size->bytes});
      }
    }
    text.remove_prefix(end + kIn.size());
  }
}

// Up to 2.0: "(GPU 0; 10.76 GiB total capacity; 643.57 MiB already allocated; 8.20 GiB free; 32.43 MiB cached)"; `cached` is beyond what is
// allocated, `reserved in total` (1.4) includes it.
void read_old(Symptom& s, std::string_view text) {
  const size_t capacity = text.find(" total capacity"), open = text.substr(0, capacity).rfind('(');  // "(GPU 0; ", "(NPU 2; "
  if (const size_t name = text.find(' ', open); open != std::string_view::npos && name < capacity)
    s.device = device_number(text.substr(name, 8), " ");
  s.total = size_before(text, " total capacity");
  s.allocated = size_before(text, " already allocated");
  s.free = size_before(text, " free;");
  s.allowed = size_before(text, " allowed;");
  s.reserved = size_before(text, " reserved in total");
  if (const auto cached = size_before(text, " cached)"); cached && s.allocated) s.reserved = *s.allocated + *cached;
}

// From 2.1, which misspells "capacty".
void read_new(Symptom& s, std::string_view text) {
  const size_t gpu = text.find(" GPU ");
  if (gpu != std::string_view::npos) s.device = device_number(text.substr(gpu, 20), " GPU ");
  s.total = size_after(text, " has a total capacity of ");
  if (!s.total) s.total = size_after(text, " has a total capacty of ");
  s.free = size_before(text, " is free");
  s.allowed = size_before(text, " allowed;");
  s.allocated = size_before(text, " is allocated by PyTorch");
  s.private_pools = size_before(text, " allocated in private pools");
  const auto unallocated = size_before(text, " is reserved by PyTorch but unallocated");
  if (s.allocated && unallocated) s.reserved = *s.allocated + *unallocated;
  read_processes(s, text);
}

void read_sizes(Symptom& s, std::string_view text) { text.find(" already allocated;") < 300 ? read_old(s, text) : read_new(s, text); }

std::optional<Symptom> allocator(const Place& place, const char* kind) {
  if (!is_complete_message(place)) return {};
  const std::string text = one_line(place.from());
  Symptom s;
  s.kind = kind;
  s.framework = "pytorch";
  const std::string_view after = std::string_view(text).substr(std::min(text.size(), place.length));
  if (after.find("Tried to allocate ") < 40) s.tried = size_after(after, "Tried to allocate ");
  if (text.find("more than 1EB memory") < 120) {
    s.impossible_size = true;
  } else if (s.tried) {
    read_sizes(s, text);
  } else if (!is_message(place) || !ends_sentence(place.after())) {
    return {};  // the words alone, inside a sentence
  }
  return s;
}

// Backends that others add say it with their own name: "MLU out of memory. Tried to allocate", "MUSA out of memory. ...".
std::optional<Symptom> other_backend(const Place& place) {
  size_t begin = place.at;
  while (begin > 0 && place.text[begin - 1] >= 'A' && place.text[begin - 1] <= 'Z') --begin;
  const std::string name(place.text.substr(begin, place.at - begin));
  if (name.size() < 2 || name == "CUDA" || name == "HIP" || name == "XPU" || name == "NPU") return {};  // have their own readers
  auto s = allocator({place.text, begin, name.size() + 14}, "pytorch_cuda");                            // " out of memory"
  if (s) s->kind = "pytorch_" + lower(name);
  return s;
}

// In the report of a failed allocation PyTorch asks NVML who else is on the device; where NVML does not answer (MIG, containers, Jetson)
// this is all that is left of it.
std::optional<Symptom> nvml(const Place& place) {
  if (!has(place.line(), "INTERNAL ASSERT FAILED") || !has(place.line(), "CUDACachingAllocator")) return {};
  if (!is_complete_message(place)) return {};
  return symptom("pytorch_cuda", "pytorch", Memory::gpu);
}

// "Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate 6.85 GiB (GPU  0; ...", of Intel's
// extension.
std::optional<Symptom> block_limit(const Place& place) { return allocator({place.text, place.at, place.length}, "pytorch_xpu"); }

// "RuntimeError: Invalid buffer size: 9.02 GB": one buffer larger than Metal makes.
std::optional<Symptom> mps_buffer(const Place& place) {
  const auto size = printed_size(place.after());
  if (!size || !is_complete_message(place)) return {};
  Symptom s = symptom("pytorch_mps", "pytorch", Memory::mps);
  s.tried = size->bytes;
  return s;
}

// The beginning was cut off: "Tried to allocate 20.00 MiB (GPU 0; 1.96 GiB total capacity; ...".
std::optional<Symptom> headless(const Place& place) {
  const std::string_view before = place.before();
  const bool other = before.find("out of memory") != std::string_view::npos || before.find("pool") != std::string_view::npos ||
                     before.find("can NOT allocate") != std::string_view::npos;
  if (other || !is_complete_message(place)) return {};
  const std::string text = one_line(place.from());
  const size_t gpu = text.find("GPU ");
  if (gpu > 60 || (text.find("total capac") > 160)) return {};
  Symptom s;
  s.kind = "pytorch_cuda";
  s.framework = "pytorch";
  s.tried = size_after(text, "Tried to allocate ");
  if (!s.tried) return {};
  read_sizes(s, text);
  return s.total ? std::optional(s) : std::nullopt;
}

std::optional<Symptom> async_allocator(const Place& place) {
  if (!is_complete_message(place)) return {};
  const std::string text = one_line(place.from());
  Symptom s;
  s.kind = "pytorch_cuda_async";
  s.framework = "pytorch";
  s.device = device_number(place.before(), "on device ");
  s.allocated = size_after(text, "Currently allocated");
  s.tried = size_after(text, "Requested");
  s.total = size_after(text, "Device limit");
  s.free = size_after(text, "Free (according to CUDA)");
  return s;
}

std::optional<Symptom> mps(const Place& place) {
  if (!is_complete_message(place)) return {};
  const std::string text = one_line(place.from());
  Symptom s;
  s.kind = "pytorch_mps";
  s.framework = "pytorch";
  s.memory = Memory::mps;
  s.allocated = size_after(text, "MPS allocated: ");
  s.tried = size_after(text, "Tried to allocate ");
  s.total = size_after(text, "max allowed: ");
  if (const auto others = size_after(text, "other allocations: ")) s.processes.push_back({0, *others});
  if (!s.allocated && (!is_message(place) || !ends_sentence(place.after()))) return {};
  return s;
}

// "DefaultCPUAllocator: can't allocate memory: you tried to allocate 116813856768 bytes."; before 1.2 "... 6GB. Buy new RAM!"
std::optional<Symptom> cpu(const Place& place) {
  if (!is_complete_message(place)) return {};
  const std::string text = one_line(place.from());
  const size_t tried = text.find("you tried to allocate ");
  if (tried > 100) return {};
  Symptom s;
  s.kind = "pytorch_cpu";
  s.framework = "pytorch";
  s.memory = Memory::host;
  s.tried = size_after(text, "you tried to allocate ");
  return s.tried ? std::optional(s) : std::nullopt;
}

std::optional<Symptom> old_cpu(const Place& place) {
  if (!is_complete_message(place) || !has(place.after().substr(0, 60), "== 0. 12 vs 0")) return {};  // 12: ENOMEM
  Symptom s;
  s.kind = "pytorch_cpu";
  s.framework = "pytorch";
  s.memory = Memory::host;
  return s;
}

// The exception with a message that no other reader knows ("Allocation on device"), at the beginning of its line.
std::optional<Symptom> exception(const Place& place) {
  const std::string_view before = place.before(), after = place.after();
  const bool name = before.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_. ") == std::string_view::npos &&
                    before.find(' ', before.find_first_not_of(' ')) == std::string_view::npos;
  if (after.starts_with(": Container killed")) return {};  // of the host
  if (!name || !(after.empty() || after[0] == '\n' || after.starts_with(": "))) return {};
  Symptom s;
  s.kind = "pytorch_cuda";
  s.framework = before.find("torch") != std::string_view::npos ? "pytorch" : "";
  // A heap of its own; a node whose memory is watched.
  for (const auto& [word, kind, framework] :
       {std::tuple("java", "java_heap", "java"), std::tuple("ray", "ray", "ray"), std::tuple("Ray", "ray", "ray")})
    if (has(before, word)) s = symptom(kind, framework, Memory::host);
  return s;
}

}  // namespace

std::vector<SymptomReader> pytorch_readers() {
  return {
      {"CUDA out of memory", [](const Place& p) { return allocator(p, "pytorch_cuda"); }},
      {"HIP out of memory", [](const Place& p) { return allocator(p, "pytorch_hip"); }},
      {"XPU out of memory", [](const Place& p) { return allocator(p, "pytorch_xpu"); }},
      {"NPU out of memory", [](const Place& p) { return allocator(p, "pytorch_npu"); }},
      {"Tried to allocate ", headless},
      {"OutOfMemoryError", exception},
      {"would exceed allowed memory. (out of memory)", async_allocator},
      {"MPS backend out of memory", mps},
      {"DefaultCPUAllocator: ", cpu},
      {"not enough memory: you tried to allocate ", cpu},
      {"posix_memalign(&data, gAlignment,", old_cpu},
      {" out of memory. Tried to allocate ", other_backend},
      {"NVML_SUCCESS == ", nvml},
      {"can NOT allocate memory block with size larger than ", block_limit},
      {"Invalid buffer size: ", mps_buffer},
  };
}

}  // namespace plimsoll
