#include "allocator/alloc_conf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr const char* kHint = "PyTorch refuses this setting too; the form is key:value,key:value with lists in [] (docs/replay.md)";

[[noreturn]] void refuse(const std::string& message, const std::string& hint = kHint) { throw Error("[alloc_conf] " + message, hint); }

// ConfigTokenizer: the separators , : [ ] are tokens of their own and spaces vanish. A wrong separator is not noticed there
// (its checkToken reports and nobody asks), so it is not here.
class Tokens {
 public:
  explicit Tokens(std::string_view text) {
    std::string word;
    for (const char c : text) {
      const bool separator = c == ',' || c == ':' || c == '[' || c == ']';
      if (!separator && !std::isspace(static_cast<unsigned char>(c))) word += c;
      if (!separator) continue;
      if (!word.empty()) tokens_.push_back(std::exchange(word, {}));
      tokens_.emplace_back(1, c);
    }
    if (!word.empty()) tokens_.push_back(word);
  }

  size_t size() const { return tokens_.size(); }

  const std::string& operator[](size_t i) const {
    if (i >= tokens_.size())
      refuse("Index out of bounds in ConfigTokenizer", tokens_.empty() ? kHint : "a value is missing after '" + tokens_.back() + "'");
    return tokens_[i];
  }

  // std::stoull: leading digits count, a sign wraps around, no digits at all is its exception.
  uint64_t number(size_t i) const {
    const std::string& token = (*this)[i];
    char* end = nullptr;
    errno = 0;
    const uint64_t value = std::strtoull(token.c_str(), &end, 10);
    if (end == token.c_str() || errno == ERANGE) refuse_number(i, "a whole number", "stoull");
    return value;
  }

  double real(size_t i) const {
    const std::string& token = (*this)[i];
    char* end = nullptr;
    errno = 0;
    const double value = std::strtod(token.c_str(), &end);
    if (end == token.c_str() || errno == ERANGE) refuse_number(i, "a number", "stod");
    return value;
  }

  bool boolean(size_t i) const {
    const std::string& token = (*this)[i];
    if (token != "True" && token != "False")
      refuse(fmt::format("Expected 'True' or 'False' at index {} in ConfigTokenizer but got '{}'", i, token),
             "capital first letter, as in Python");
    return token == "True";
  }

  // From a key to the last token of its value.
  size_t skip(size_t key) const {
    size_t i = key + 2;
    (*this)[key + 1];
    if ((*this)[i] != "[") return i;
    while (++i < size() && tokens_[i] != "]") {
    }
    if (i >= size()) refuse("Expected closing bracket ']' in ConfigTokenizer but reached end of config");
    return i;
  }

 private:
  // PyTorch's own message is no more than the name of the function that threw.
  [[noreturn]] void refuse_number(size_t i, const char* expected, const char* theirs) const {
    const std::string key = i >= 2 && tokens_[i - 1] == ":" ? tokens_[i - 2] + ": " : "";
    refuse(fmt::format("{}'{}' is not {}", key, printable(tokens_[i], 60), expected),
           fmt::format("PyTorch stops with the message '{}'; e.g. max_split_size_mb:512,garbage_collection_threshold:0.8", theirs));
  }

  std::vector<std::string> tokens_;
};

// PyTorch clamps to the largest size_t; ours is the largest int64_t, which no device reaches either.
int64_t mebibytes(uint64_t n) { return n > static_cast<uint64_t>(kUnlimited / kMiB) ? kUnlimited : static_cast<int64_t>(n) * kMiB; }

int64_t at_least_a_segment(const Tokens& t, size_t i, const char* key, const AllocConf& conf) {
  const uint64_t value = t.number(i), least = static_cast<uint64_t>(conf.large_segment_size / kMiB);
  if (value < least) refuse(fmt::format("CachingAllocator option {} too small, must be >= {}", key, least));
  return mebibytes(value);
}

int64_t large_segment(const Tokens& t, size_t i) {
  constexpr uint64_t kMinLargeAllocMiB = 10, kLargestMiB = uint64_t{1} << 30;
  const uint64_t value = t.number(i);
  if (value <= kMinLargeAllocMiB) refuse("CachingAllocator option large_segment_size_mb must be > 10 MB");
  if (value > kLargestMiB)
    refuse(fmt::format("large_segment_size_mb {} is larger than any device", value), "PyTorch takes it and then every allocation fails");
  return static_cast<int64_t>(value) * kMiB;
}

// More divisions than 2^40 do nothing for any request (it would have to exceed 512 bytes x divisions).
int64_t clamped(uint64_t divisions) { return static_cast<int64_t>(std::min(divisions, uint64_t{1} << 40)); }

// [64:8,256:4,>:1]: a key sets its own interval, the first key also all below it, '>' all above the last key.
size_t division_list(const Tokens& t, size_t i, AllocConf& conf) {
  bool first = true;
  size_t last = 0;
  while (++i < t.size() && t[i] != "]") {
    const std::string& boundary = t[i];
    const size_t boundary_at = i;
    const uint64_t value = t.number(i += 2);
    if (value != 0 && !std::has_single_bit(value)) refuse("For roundups, the divisions has to be power of 2 or 0 to disable roundup ");
    if (boundary == ">") {
      std::fill(conf.divisions.begin() + static_cast<int64_t>(last) + 1, conf.divisions.end(), clamped(value));
    } else {
      const uint64_t mib = t.number(boundary_at);
      if (!std::has_single_bit(mib)) refuse("For roundups, the intervals have to be power of 2 ");
      last = std::min<size_t>(static_cast<size_t>(std::countr_zero(mib)), kDivisionIntervals - 1);
      if (std::exchange(first, false))
        std::fill(conf.divisions.begin(), conf.divisions.begin() + static_cast<int64_t>(last), clamped(value));
      conf.divisions[last] = clamped(value);
    }
    if (t[i + 1] != "]") ++i;
  }
  if (i >= t.size()) refuse("Expected closing bracket ']' in ConfigTokenizer but reached end of config");
  return i;
}

size_t divisions(const Tokens& t, size_t i, AllocConf& conf) {
  if (t[i] == "[") return division_list(t, i, conf);
  const uint64_t value = t.number(i);
  if (!std::has_single_bit(value)) refuse("For roundups, the divisions has to be power of 2 ");
  conf.divisions.fill(clamped(value));
  return i;
}

double garbage_threshold(const Tokens& t, size_t i) {
  const double value = t.real(i);
  if (!(value > 0 && value < 1)) refuse("garbage_collect_threshold is invalid, set it in (0.0, 1.0)");
  return value;
}

double fraction(const Tokens& t, size_t i) {
  const double value = t.real(i);
  if (!(value >= 0 && value <= 1)) refuse("per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
  return value;
}

int64_t register_threads(const Tokens& t, size_t i) {
  constexpr uint64_t kMost = 128;  // CUDAAllocatorConfig::pinned_max_register_threads
  const uint64_t value = t.number(i);
  if (!std::has_single_bit(value)) refuse(fmt::format("Number of register threads has to be power of 2, got {}", value));
  if (value > kMost) refuse(fmt::format("Number of register threads should be less than or equal to {}, got {}", kMost, value));
  return static_cast<int64_t>(value);
}

int64_t reserve_segment(const Tokens& t, size_t i) {
  const uint64_t value = t.number(i);
  if (value == 0) refuse("Pinned reserve segment size has to be greater than 0");
  return mebibytes(value);
}

bool async_backend(const Tokens& t, size_t i) {
  if (t[i] != "native" && t[i] != "cudaMallocAsync")
    refuse("Unknown allocator backend, options are native and cudaMallocAsync", fmt::format("got '{}'", t[i]));
  return t[i] == "cudaMallocAsync";
}

// A reader takes the index of the value's first token and returns that of its last.
struct Key {
  const char* name;
  int pass;  // PyTorch reads the text three times: the segment size, the common keys, the CUDA keys
  size_t (*read)(const Tokens& t, size_t i, AllocConf& c);
};

template <auto Member, auto Read>
size_t store(const Tokens& t, size_t i, AllocConf& c) {
  c.*Member = Read(t, i);
  return i;
}

bool flag(const Tokens& t, size_t i) { return t.boolean(i); }
int64_t size_mb(const Tokens& t, size_t i) { return mebibytes(t.number(i)); }

size_t max_split(const Tokens& t, size_t i, AllocConf& c) {
  c.max_split_size = at_least_a_segment(t, i, "max_split_size_mb", c);
  return i;
}

size_t max_non_split(const Tokens& t, size_t i, AllocConf& c) {
  c.max_non_split_rounding = at_least_a_segment(t, i, "max_non_split_rounding_mb", c);
  return i;
}

constexpr Key kKeys[] = {
    {"backend", 2, store<&AllocConf::async_backend, async_backend>},
    {"expandable_segments", 1, store<&AllocConf::expandable_segments, flag>},
    {"garbage_collection_threshold", 1, store<&AllocConf::garbage_collection_threshold, garbage_threshold>},
    {"graph_capture_record_stream_reuse", 2, store<&AllocConf::graph_capture_record_stream_reuse, flag>},
    {"large_segment_size_mb", 0, store<&AllocConf::large_segment_size, large_segment>},
    {"max_non_split_rounding_mb", 1, max_non_split},
    {"max_split_size_mb", 1, max_split},
    {"per_process_memory_fraction", 2, store<&AllocConf::memory_fraction, fraction>},
    {"pinned_free_catch_all", 2, store<&AllocConf::pinned_free_catch_all, flag>},
    {"pinned_max_cached_size_mb", 1, store<&AllocConf::pinned_max_cached_size, size_mb>},
    {"pinned_max_round_threshold_mb", 1, store<&AllocConf::pinned_max_round_threshold, size_mb>},
    {"pinned_num_register_threads", 2, store<&AllocConf::pinned_num_register_threads, register_threads>},
    {"pinned_reserve_segment_size_mb", 2, store<&AllocConf::pinned_reserve_segment, reserve_segment>},
    {"pinned_use_background_threads", 1, store<&AllocConf::pinned_use_background_threads, flag>},
    {"pinned_use_cuda_host_register", 2, store<&AllocConf::pinned_use_cuda_host_register, flag>},
    {"pinned_use_hip_host_register", 2, store<&AllocConf::pinned_use_cuda_host_register, flag>},
    {"release_lock_on_cudamalloc", 2, store<&AllocConf::release_lock_on_cudamalloc, flag>},
    {"release_lock_on_hipmalloc", 2, store<&AllocConf::release_lock_on_cudamalloc, flag>},
    {"roundup_power2_divisions", 1, divisions},
    {"throw_on_cudamalloc_oom", 2, store<&AllocConf::throw_on_cudamalloc_oom, flag>},
};

void read_segment_size(const Tokens& t, AllocConf& conf) {
  for (size_t i = 0; i < t.size(); ++i)
    if (t[i] == "large_segment_size_mb") conf.large_segment_size = large_segment(t, i += 2);
  conf.max_non_split_rounding = conf.large_segment_size;
}

void read_pass(const Tokens& t, int pass, AllocConf& conf) {
  for (size_t i = 0; i < t.size(); ++i) {
    const std::string& name = t[i];
    const auto key = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& k) { return name == k.name; });
    if (key == std::end(kKeys) && pass == 2)
      refuse(fmt::format("Unrecognized key '{}' in CUDA allocator config.", name), did_you_mean(name, alloc_conf_keys()));
    i = key != std::end(kKeys) && key->pass == pass ? key->read(t, i + 2, conf) : t.skip(i);
    if (i + 1 < t.size()) ++i;
  }
}

}  // namespace

int64_t AllocConf::divisions_for(int64_t bytes) const {
  const int log2 = std::bit_width(static_cast<uint64_t>(bytes)) - 1;
  return divisions[static_cast<size_t>(std::clamp(log2 - 20, 0, static_cast<int>(kDivisionIntervals) - 1))];
}

AllocConf parse_alloc_conf(std::string_view text) {
  const Tokens tokens(text);
  AllocConf conf;
  read_segment_size(tokens, conf);
  read_pass(tokens, 1, conf);
  read_pass(tokens, 2, conf);
  return conf;
}

namespace {

// "4" when all intervals agree, else the shortest list that gives them back.
std::string division_text(const AllocConf& conf) {
  const auto& d = conf.divisions;
  if (d[0] > 0 && std::count(d.begin(), d.end(), d[0]) == static_cast<int64_t>(d.size())) return std::to_string(d[0]);
  std::vector<std::string> parts;
  for (size_t i = 0; i < d.size(); ++i)
    if (i + 1 == d.size() || d[i] != d[i + 1] || !parts.empty()) parts.push_back(fmt::format("{}:{}", int64_t{1} << i, d[i]));
  return "[" + join(parts, ",") + "]";
}

}  // namespace

std::string alloc_conf_text(const AllocConf& conf) {
  const AllocConf usual;
  std::vector<std::string> parts;
  const auto add = [&](bool differs, const char* key, const std::string& value) {
    if (differs) parts.push_back(fmt::format("{}:{}", key, value));
  };
  const auto flag = [&](bool AllocConf::*member, const char* key) { add(conf.*member, key, "True"); };
  const auto mib = [&](int64_t AllocConf::*member, const char* key, int64_t otherwise) {
    add(conf.*member != otherwise, key, std::to_string(conf.*member / kMiB));
  };
  add(conf.async_backend, "backend", "cudaMallocAsync");
  flag(&AllocConf::expandable_segments, "expandable_segments");
  add(conf.garbage_collection_threshold != 0, "garbage_collection_threshold", fmt::format("{}", conf.garbage_collection_threshold));
  flag(&AllocConf::graph_capture_record_stream_reuse, "graph_capture_record_stream_reuse");
  mib(&AllocConf::large_segment_size, "large_segment_size_mb", usual.large_segment_size);
  mib(&AllocConf::max_non_split_rounding, "max_non_split_rounding_mb", conf.large_segment_size);
  mib(&AllocConf::max_split_size, "max_split_size_mb", kUnlimited);
  add(conf.memory_fraction != 1, "per_process_memory_fraction", fmt::format("{}", conf.memory_fraction));
  flag(&AllocConf::pinned_free_catch_all, "pinned_free_catch_all");
  mib(&AllocConf::pinned_max_cached_size, "pinned_max_cached_size_mb", kUnlimited);
  mib(&AllocConf::pinned_max_round_threshold, "pinned_max_round_threshold_mb", kUnlimited);
  add(conf.pinned_num_register_threads != 1, "pinned_num_register_threads", std::to_string(conf.pinned_num_register_threads));
  mib(&AllocConf::pinned_reserve_segment, "pinned_reserve_segment_size_mb", 0);
  flag(&AllocConf::pinned_use_background_threads, "pinned_use_background_threads");
  flag(&AllocConf::pinned_use_cuda_host_register, "pinned_use_cuda_host_register");
  flag(&AllocConf::release_lock_on_cudamalloc, "release_lock_on_cudamalloc");
  add(conf.divisions != usual.divisions, "roundup_power2_divisions", division_text(conf));
  flag(&AllocConf::throw_on_cudamalloc_oom, "throw_on_cudamalloc_oom");
  return join(parts, ",");
}

const std::vector<std::string>& alloc_conf_keys() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Key& k : kKeys) names.emplace_back(k.name);
    return names;
  }();
  return kNames;
}

}  // namespace plimsoll
