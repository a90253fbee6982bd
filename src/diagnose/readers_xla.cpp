// XLA: JAX on GPUs and TPUs, PyTorch/XLA. "G" and "M" of the TPU's compiler are powers of two.
#include <algorithm>

#include "diagnose/printed_size.h"
#include "diagnose/symptom.h"
#include "diagnose/words.h"

namespace plimsoll {

namespace {

std::string xla_framework(std::string_view text) {
  if (has(text, "Bad StatusOr access") || has(text, "torch_xla") || has(text, "pytorch/xla") || has(text, "xla_client"))
    return "pytorch_xla";
  if (has(text, "tensorflow") && !has(text, "org_tensorflow") && !has(text, "jax") && !has(text, "tsl/")) return "tensorflow";
  return "jax";
}

Symptom xla(const char* kind, Memory memory, const Place& place) {
  Symptom s;
  s.kind = kind;
  s.framework = xla_framework(place.line());
  s.memory = memory;
  return s;
}

// The compiler's plan of the program that did not fit.
void read_plan(Symptom& s, std::string_view text) {
  const size_t stats = text.find("BufferAssignment stats");
  if (stats == std::string_view::npos || stats > 1000) return;
  const std::string_view plan = text.substr(stats);
  if (const auto total = size_after(plan, "total allocation:")) s.note = "the compiled program needs " + std::to_string(*total) + " bytes";
  const size_t peak = plan.find("Shape: ");
  if (peak != std::string_view::npos) s.shape = std::string(plan.substr(peak + 7, plan.find('\n', peak) - peak - 7)).substr(0, 80);
}

// "Out of memory while trying to allocate 6291456 bytes.", newer "... 4.00GiB.", "Out of memory allocating 20029400304 bytes."
std::optional<Symptom> out_of_memory(const Place& place) {
  if (!is_complete_message(place)) return {};
  const auto size = printed_size(place.after());
  if (!size) return {};
  Symptom s = xla("xla_gpu", Memory::gpu, place);
  s.tried = size->bytes;
  read_plan(s, place.from());
  return s;
}

// CuPy says "Out of memory allocating 1,200,000,000 bytes (allocated so far: 7,204,800,000 bytes)."
std::optional<Symptom> allocating(const Place& place) {
  auto s = out_of_memory(place);
  if (const auto so_far = size_after(place.line(), "allocated so far: "); s && so_far) {
    s->kind = s->framework = "cupy";
    s->allocated = so_far;
    s->total = size_after(place.line(), "limit set to: ");
  }
  return s;
}

// "INTERNAL: Failed to allocate 37748736 bytes for new constant".
std::optional<Symptom> constant(const Place& place) {
  const size_t number = place.before().rfind("Failed to allocate ");
  if (number == std::string_view::npos || !is_complete_message(place)) return {};
  Symptom s = xla("xla_gpu", Memory::gpu, place);
  s.tried = number_after(place.before().substr(number), "Failed to allocate ");
  return s.tried ? std::optional(s) : std::nullopt;
}

// "Failed to allocate request for 32.00MiB (33554432B) on device ordinal 0".
std::optional<Symptom> request(const Place& place) {
  if (!is_complete_message(place)) return {};
  Symptom s = xla("xla_gpu", Memory::gpu, place);
  s.tried = size_after(place.line().substr(place.at), " (");
  if (!s.tried) s.tried = size_after(place.from(), "request for ");
  if (const auto n = number_after(place.line(), "device ordinal "); n && *n < 10000) s.device = static_cast<int>(*n);
  return s.tried ? std::optional(s) : std::nullopt;
}

// "Ran out of memory in memory space hbm. Used 21.95G of 15.48G hbm. Exceeded hbm capacity by 6.47G." Vector memory is on the chip.
std::optional<Symptom> memory_space(const Place& place) {
  if (!is_complete_message(place)) return {};
  const bool hbm = place.after().starts_with("hbm");
  Symptom s = xla(hbm ? "xla_tpu" : "xla_tpu_on_chip", hbm ? Memory::tpu : Memory::none, place);
  const std::string_view text = place.from().substr(0, 400);
  if (!hbm) {
    s.certainty = Certainty::possible;
    s.note = "memory space " + std::string(place.after().substr(0, std::min<size_t>(10, place.after().find_first_of(". \n")))) +
             " is on the chip";
    return s;
  }
  s.tried = size_after(text, "Used ");
  if (const size_t used = text.find("Used "); used != std::string_view::npos) s.total = size_after(text.substr(used), " of ");
  return s;
}

// "Error allocating device buffer: Attempting to allocate 4.39G. That was not possible. There are 2.30G free."
std::optional<Symptom> attempt(const Place& place) {
  const std::string_view text = place.from().substr(0, 800);
  if (!is_complete_message(place) || !has(text.substr(0, 300), "That was not possible")) return {};
  Symptom s = xla("xla_tpu", Memory::tpu, place);
  s.tried = printed_size(place.after()) ? std::optional(printed_size(place.after())->bytes) : std::nullopt;
  s.free = size_after(text, "There are ");
  s.total = size_after(text, "HBM capacity ");
  s.allocated = size_after(text, "Currently allocated:");
  return s.tried ? std::optional(s) : std::nullopt;
}

// "TPU out of memory" of PJRT: "Compiler allocation exceeded HBM"; "Allocation (size=...) would exceed memory (size=...)".
std::optional<Symptom> would_exceed(const Place& place) {
  if (!is_complete_message(place)) return {};
  const auto size = number_after(place.line(), "Allocation (size="), limit = number_after(place.line(), "would exceed memory (size=");
  if (!size || !limit) return {};
  const bool chip = !has(place.line(), "hbm") && !has(place.line(), "HBM");
  Symptom s = xla(chip ? "xla_tpu_on_chip" : "xla_tpu", chip ? Memory::none : Memory::tpu, place);
  if (chip) {
    s.certainty = Certainty::possible;
  } else {
    s.tried = size;
    s.total = limit;
  }
  return s;
}

}  // namespace

std::vector<SymptomReader> xla_readers() {
  return {
      {"Out of memory while trying to allocate ", out_of_memory},
      {"Out of memory allocating ", allocating},
      {"Failed to allocate request for ", request},
      {" bytes for new constant", constant},
      {"Ran out of memory in memory space ", memory_space},
      {"Attempting to allocate ", attempt},
      {"Attempting to reserve ", attempt},
      {"would exceed memory (size=", would_exceed},
  };
}

}  // namespace plimsoll
