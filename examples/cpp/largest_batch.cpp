// The largest batch of a run that fits on a GPU, with and without gradient checkpointing.
//
//   largest_batch RUN GPU [SETTING=VALUE...]        e.g. largest_batch gpt2-xl rtx-4090 seq=1024 precision=bf16
//
// Each question is a simulation of the whole step, so a dozen of them is a search that needs no GPU.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <plimsoll.hpp>

namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 16;

plimsoll::Value value_of(const std::string& text) {
  char* end = nullptr;
  const long long whole = std::strtoll(text.c_str(), &end, 10);
  if (!text.empty() && *end == '\0') return whole;
  if (text == "true" || text == "false") return text == "true";
  return text;
}

bool fits(plimsoll::Request run, std::int64_t batch) { return plimsoll::estimate(run.set("batch", batch)).fits(); }

// Doubles until it does not fit, then halves the interval.
std::int64_t largest_batch(const plimsoll::Request& run) {
  std::int64_t good = 0, bad = 1;
  while (bad <= kMost && fits(run, bad)) {
    good = bad;
    bad *= 2;
  }
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(run, middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: largest_batch RUN GPU [SETTING=VALUE...]\n";
    return PLIMSOLL_USAGE;
  }
  plimsoll::Request run(argv[1]);
  run.with("gpu", argv[2]).with("top", 0);
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    run.set(word.substr(0, equals), equals == std::string::npos ? plimsoll::Value(true) : value_of(word.substr(equals + 1)));
  }
  std::cout << "without checkpointing: " << largest_batch(run) << "\n";
  run.set("checkpointing", true);
  std::cout << "with checkpointing:    " << largest_batch(run) << "\n";
  return PLIMSOLL_OK;
} catch (const plimsoll::Error& e) {
  std::cerr << "largest_batch: " << e.what() << "\n  hint: " << e.hint() << "\n";
  return e.code();
}
