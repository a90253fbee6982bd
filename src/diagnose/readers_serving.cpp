// Programs with allocators of their own: vLLM's cache, Paddle, ggml, CuPy, MXNet.
#include <algorithm>

#include "diagnose/printed_size.h"
#include "diagnose/symptom.h"
#include "diagnose/words.h"

namespace plimsoll {

namespace {

Symptom on_gpu(const char* kind, const char* framework) {
  Symptom s;
  s.kind = kind;
  s.framework = framework;
  return s;
}

std::optional<Symptom> no_cache(const Place& place) {
  if (!is_complete_message(place) || has(place.before(), "raise ")) return {};
  return on_gpu("vllm", "vllm");
}

// "Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization (0.95, 45.01 GiB)"; newer "on device
// cuda:0 (".
std::optional<Symptom> less_than_desired(const Place& place) {
  const std::string_view text = place.from().substr(0, 300);
  const size_t desired = text.find("is less than desired GPU memory utilization"), open = text.find('(');
  if (!is_complete_message(place) || desired == std::string_view::npos || open > desired) return {};
  Symptom s = on_gpu("vllm", "vllm");
  const size_t slash = text.find('/', open), comma = text.find(", ", desired);
  if (slash != std::string_view::npos && slash < desired) {
    s.total = size_after(text.substr(slash), "/");
    s.free = size_after(std::string(text.substr(open + 1, slash - open - 1)) + " GiB", "");
  }
  if (comma != std::string_view::npos) s.tried = size_after(text.substr(comma), ", ");
  return s;
}

// "(16.00 GiB KV cache is needed, which is larger than the available KV cache memory (13.72 GiB)".
std::optional<Symptom> cache_needed(const Place& place) {
  if (!is_complete_message(place)) return {};
  Symptom s = on_gpu("vllm", "vllm");
  s.tried = size_before(place.text, " KV cache is needed");
  s.free = size_after(place.from(), "available KV cache memory (");
  return s;
}

// "Out of memory error on GPU 0. Cannot allocate 98.000244MB memory on GPU 0, 6.000000GB memory has been allocated and available memory is
// only 0.000000B."
std::optional<Symptom> paddle(const Place& place) {
  const std::string_view text = place.from().substr(0, 400);
  if (!is_complete_message(place) || !has(text, "Cannot allocate ")) return {};
  Symptom s = on_gpu("paddle", "paddle");
  s.tried = size_after(text, "Cannot allocate ");
  s.allocated = size_before(text, " memory has been allocated");
  s.free = size_after(text, "available memory is only ");
  if (const auto n = number_after(text, "on GPU "); n && *n < 10000) s.device = static_cast<int>(*n);
  return s;
}

// "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on device 1: cudaMalloc failed: out of memory"
std::optional<Symptom> cuda_malloc(const Place& place) {
  if (!is_complete_message(place) || !ends_sentence(place.after())) return {};
  const bool ggml = has(place.before(), "ggml");
  Symptom s = on_gpu(ggml ? "ggml" : "cuda_error", ggml                                                         ? "ggml"
                                                   : has(place.line(), "mxnet") || has(place.line(), "storage") ? "mxnet"
                                                                                                                : "");
  s.tried = size_after(place.before(), "allocating ");
  if (const auto n = number_after(place.before(), "on device "); n && *n < 10000) s.device = static_cast<int>(*n);
  return s;
}

// "OutOfMemoryError: out of memory to allocate 1200000000 bytes (total 7204800000 bytes)", CuPy up to 5.
std::optional<Symptom> old_cupy(const Place& place) {
  if (!is_complete_message(place) || !printed_size(place.after())) return {};
  Symptom s = on_gpu("cupy", "cupy");
  s.tried = printed_size(place.after())->bytes;
  s.allocated = size_after(place.after(), "(total ");
  return s;
}

}  // namespace

std::vector<SymptomReader> serving_readers() {
  return {
      {"No available memory for the cache blocks", no_cache},
      {"Free memory on device ", less_than_desired},
      {" KV cache is needed", cache_needed},
      {"Out of memory error on GPU", paddle},
      {"cudaMalloc failed: out of memory", cuda_malloc},
      {"cudaMalloc retry failed: out of memory", cuda_malloc},
      {"out of memory to allocate ", old_cupy},
  };
}

}  // namespace plimsoll
