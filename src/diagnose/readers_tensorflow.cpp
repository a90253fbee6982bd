// TensorFlow, and the best-fit allocator (BFC) that XLA shares with it.
#include <algorithm>
#include <array>

#include "diagnose/printed_size.h"
#include "diagnose/symptom.h"
#include "diagnose/words.h"
#include "util/text.h"

namespace plimsoll {

namespace {

int64_t bytes_of(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, int64_t>, 16> kTypes{{{"float", 4},
                                                                         {"half", 2},
                                                                         {"double", 8},
                                                                         {"bfloat16", 2},
                                                                         {"int32", 4},
                                                                         {"int64", 8},
                                                                         {"uint8", 1},
                                                                         {"int8", 1},
                                                                         {"bool", 1},
                                                                         {"float32", 4},
                                                                         {"float16", 2},
                                                                         {"float64", 8},
                                                                         {"int16", 2},
                                                                         {"uint16", 2},
                                                                         {"complex64", 8},
                                                                         {"complex128", 16}}};
  for (const auto& [name, bytes] : kTypes)
    if (name == type) return bytes;
  return 0;
}

std::optional<int64_t> bytes_of_shape(std::string_view shape, int64_t element) {
  __int128 bytes = element;
  for (const std::string& part : split_at(shape, ',')) {
    int64_t n = 0;
    if (part.empty() || part.size() > 15) return {};
    for (const char c : part) {
      if (c < '0' || c > '9') return {};
      n = n * 10 + (c - '0');
    }
    bytes *= n;
    if (bytes > (__int128{1} << 62)) return {};
  }
  return element > 0 ? std::optional(static_cast<int64_t>(bytes)) : std::nullopt;
}

// "Stats: \nLimit: 1073741824\nInUse: 1051624448", in lines with or without the logger's prefix.
void read_stats(Symptom& s, std::string_view text) {
  const size_t stats = text.find("Stats:");
  if (stats == std::string_view::npos) return;
  s.total = number_after(text.substr(stats), "Limit:");
  s.allocated = number_after(text.substr(stats), "InUse:");
}

// "OOM when allocating tensor with shape[64,2016,9,9] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator
// GPU_0_bfc"
std::optional<Symptom> tensor(const Place& place) {
  if (!is_complete_message(place)) return {};
  const std::string_view text = place.after().substr(0, 600);
  const size_t close = text.find(']');
  if (close == std::string_view::npos || close > 200) return {};
  Symptom s;
  s.kind = "tensorflow";
  s.framework = "tensorflow";
  s.shape = "[" + std::string(text.substr(0, close)) + "]";
  const size_t type = text.find(" and type ");
  if (type != std::string_view::npos && type < close + 4) {
    const std::string_view name = text.substr(type + 10, text.find_first_of(" \n", type + 10) - type - 10);
    s.tried = bytes_of_shape(text.substr(0, close), bytes_of(name));
    s.shape += " " + std::string(name);
  }
  if (has(text, "device:CPU:") || has(text, "by allocator cpu") || has(text, "by allocator mklcpu")) s.memory = Memory::host;
  if (const auto n = number_after(text, "device:GPU:"); n && *n < 10000) s.device = static_cast<int>(*n);
  return s;
}

// The same words are a warning when the caller has another way: "The caller indicates that this is not a failure".
std::optional<Symptom> bfc(const Place& place) {
  const std::string_view line = place.line();
  if (!is_complete_message(place) || has(line, "not a failure") || has(place.from().substr(0, 300), "not a failure")) return {};
  Symptom s;
  const bool xla = has(line, "external/xla") || has(line, "tsl/framework") || has(line, "xla/");
  s.kind = xla ? "xla_gpu" : "tensorflow";
  s.framework = xla ? "jax" : "tensorflow";
  if (has(place.before(), "cpu")) s.memory = Memory::host;
  if (has(place.before(), "HBM") || has(place.before(), "TPU")) s.memory = Memory::tpu;
  s.tried = number_after(line, "(rounded to ");
  if (!s.tried) s.tried = printed_size(place.after()) ? std::optional(printed_size(place.after())->bytes) : std::nullopt;
  if (const size_t op = line.find("requested by op "); op != std::string_view::npos)
    s.note = "by " + std::string(line.substr(op + 16, 100));
  read_stats(s, place.from());
  return s.tried ? std::optional(s) : std::nullopt;
}

std::optional<Symptom> eigen(const Place& place) {
  if (!is_complete_message(place)) return {};
  Symptom s;
  s.kind = s.framework = "tensorflow";
  if (const auto n = number_after(place.line(), "when allocating "); n && *n > 0) s.tried = n;
  return s;
}

// "Resource exhausted: failed to allocate memory", after the allocator's statistics.
std::optional<Symptom> exhausted(const Place& place) {
  if (!is_complete_message(place) || !ends_sentence(place.after())) return {};
  return symptom("tensorflow", "tensorflow", Memory::gpu);
}

// A copy to the device that had no room there; other causes are rare.
std::optional<Symptom> destination(const Place& place) {
  if (!is_message(place)) return {};
  Symptom s;
  s.kind = s.framework = "tensorflow";
  s.certainty = Certainty::likely;
  return s;
}

}  // namespace

std::vector<SymptomReader> tensorflow_readers() {
  return {
      {"OOM when allocating tensor with shape[", tensor},  {"oom when allocating tensor with shape[", tensor},
      {"ran out of memory trying to allocate ", bfc},      {"EigenAllocator for GPU ran out of memory", eigen},
      {"exhausted: failed to allocate memory", exhausted}, {"Dst tensor is not initialized", destination},
  };
}

}  // namespace plimsoll
