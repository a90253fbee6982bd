// Any bytes that a reader is given: a value or an Error, nothing else, and soon. The sanitizer build of these tests finds memory errors.
//
// An ordinary run reads tests/data/corpus/TARGET first, which holds what once failed or what mutations seldom reach, then so many mutations
// of the seeds, the same in every run. To look for more:
//   PLIMSOLL_FUZZ_SECONDS=600 build/tests/plimsoll_guarded_tests --gtest_filter='*Fuzz.*'
// spends so long on every target, with other mutations each time (their seed is printed; PLIMSOLL_FUZZ_SEED=N repeats them). What crashes
// the process, throws anything else or takes over two seconds of the processor is kept in ./fuzz-found, or where PLIMSOLL_FUZZ_FOUND says:
// mend it, and put it, cut down to what matters, into the corpus.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

inline std::filesystem::path corpus_folder() { return std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/data/corpus"; }

// Every target, and so every folder that the corpus may have.
inline const std::vector<std::string>& fuzz_targets() {
  static const std::vector<std::string> kTargets{
      "alloc_conf",   "captured_trace", "command",  "formula",       "gguf",         "gzip",         "input",  "job",      "json",
      "memory_stats", "profile",        "protocol", "published_row", "recorded_row", "safetensors",  "script", "snapshot", "story",
      "timeline",     "toml",           "trace",    "trainer_json",  "trainer_toml", "trainer_yaml", "yaml"};
  return kTargets;
}

inline std::string mutate(std::string text, std::mt19937& random, const std::vector<std::string>& others = {}) {
  static const std::string kTokens[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ":",
                                        ",",
                                        "\"",
                                        "\n",
                                        " ",
                                        "-",
                                        "&a",
                                        "*a",
                                        "<<",
                                        "!",
                                        "%",
                                        "null",
                                        "1e999",
                                        "-1",
                                        "9223372036854775808",
                                        "\xff",
                                        "\0",
                                        "$",
                                        "#",
                                        "0",
                                        "True",
                                        "=",
                                        "'",
                                        "1048577"};
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  for (size_t i = 0, n = 1 + below(6); i < n; ++i) {
    const size_t at = below(text.size() + 1);
    switch (below(others.empty() ? 4 : 5)) {
      case 0: text.insert(at, kTokens[below(std::size(kTokens))]); break;
      case 1: text.erase(at, below(8)); break;
      case 2:
        if (!text.empty()) text[at % text.size()] = static_cast<char>(random());
        break;
      case 3: text.insert(at, text.substr(below(text.size() + 1), below(40))); break;
      default: {
        const std::string& other = others[below(others.size())];
        text = text.substr(0, at) + other.substr(below(other.size() + 1));
      }
    }
  }
  return text;
}

class Fuzzing {
 public:
  using Parse = std::function<void(const std::string&)>;
  enum class Outcome : uint8_t { value, error, other };

  Fuzzing(const std::string& target, Parse parse) : target_(target), parse_(std::move(parse)) {
    const auto& known = fuzz_targets();
    EXPECT_TRUE(std::find(known.begin(), known.end(), target) != known.end()) << target << " is not in fuzz_targets()";
    if (const char* seconds = std::getenv("PLIMSOLL_FUZZ_SECONDS")) seconds_ = std::strtod(seconds, nullptr);
    const char* found = std::getenv("PLIMSOLL_FUZZ_FOUND");
    found_ = found ? found : "fuzz-found";
  }

  void run(std::vector<std::string> seeds, int rounds) {
    for (const auto& [name, text] : corpus()) {
      EXPECT_NE(attempt(text), Outcome::other) << "tests/data/corpus/" << target_ << "/" << name;
      if (seconds_ > 0) seeds.push_back(text);
    }
    if (seconds_ > 0) return run_long(seeds);
    std::mt19937 random(20240607);
    int accepted = 0;
    for (int i = 0; i < rounds; ++i) accepted += attempt(mutate(seeds[static_cast<size_t>(i) % seeds.size()], random)) == Outcome::value;
    EXPECT_GT(accepted, 0);       // some mutations are harmless
    EXPECT_LT(accepted, rounds);  // and some are not
  }

 private:
  std::vector<std::pair<std::string, std::string>> corpus() const {
    std::vector<std::pair<std::string, std::string>> out;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(corpus_folder() / target_, none)) {
      std::ifstream in(entry.path(), std::ios::binary);
      out.emplace_back(entry.path().filename().string(), std::string(std::istreambuf_iterator<char>(in), {}));
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  void run_long(const std::vector<std::string>& seeds) {
    const char* given = std::getenv("PLIMSOLL_FUZZ_SEED");
    const auto seed = given ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10)) : std::random_device()();
    std::cout << target_ << ": PLIMSOLL_FUZZ_SEED=" << seed << std::endl;
    std::filesystem::create_directories(found_);
    std::mt19937 random(seed);
    std::vector<std::string> pool = seeds;  // grows by what is answered in a new way
    std::set<std::string> answers;
    int64_t rounds = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds_);
    for (; std::chrono::steady_clock::now() < end; ++rounds) {
      const std::string text = mutate(pool[random() % pool.size()], random, pool);
      if (text.size() > kLongest) continue;
      write("running", text);                   // stays where the process ends here
      const std::clock_t begin = std::clock();  // of this process: others may be busy
      if (attempt(text) == Outcome::other) write("threw-" + std::to_string(rounds), text);
      if (std::clock() - begin > 2 * CLOCKS_PER_SEC) {
        write("slow-" + std::to_string(rounds), text);
        ADD_FAILURE() << target_ << " took over 2 seconds of the processor: " << printable(text, 200);
      }
      if (answers.insert(answer_).second && pool.size() < 5000) pool.push_back(text);
    }
    std::filesystem::remove(path("running"));
    std::cout << target_ << ": " << rounds << " inputs, " << answers.size() << " different answers" << std::endl;
  }

  Outcome attempt(const std::string& text) {
    try {
      parse_(text);
      answer_ = "";
      return Outcome::value;
    } catch (const Error& e) {
      answer_ = without_values(e.what());
      return Outcome::error;
    } catch (const std::exception& e) {
      answer_ = e.what();
      ADD_FAILURE() << target_ << " threw '" << e.what() << "' for " << printable(text, 400);
      return Outcome::other;
    }
  }

  // An Error's message but for what it quotes and counts.
  static std::string without_values(const std::string& message) {
    std::string out;
    bool quoted = false;
    for (const char c : message) {
      if (c == '\'' || c == '"') quoted = !quoted;
      if (!quoted && !std::isdigit(static_cast<unsigned char>(c))) out += c;
    }
    return out.substr(0, 80);
  }

  std::filesystem::path path(const std::string& what) const { return found_ / (target_ + "-" + what); }
  void write(const std::string& what, const std::string& text) const {
    std::ofstream(path(what), std::ios::binary | std::ios::trunc) << text;
  }

  static constexpr size_t kLongest = 1 << 16;

  std::string target_;
  Parse parse_;
  double seconds_ = 0;
  std::filesystem::path found_;
  std::string answer_;  // of the last attempt
};

inline void fuzz(const std::string& target, const std::vector<std::string>& seeds, Fuzzing::Parse parse, int rounds) {
  Fuzzing(target, std::move(parse)).run(seeds, rounds);
}

}  // namespace plimsoll
