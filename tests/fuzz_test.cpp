// Parsers of files from outside: any bytes give a value or an Error, nothing else. The mutations are the same in every run;
// the sanitizer build of this test is what finds memory errors.
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <random>

#include "job/job_file.h"
#include "job/recorded_row.h"
#include "job/settings.h"
#include "job/yaml_reader.h"
#include "model/resolve.h"

namespace plimsoll {
namespace {

constexpr int kRounds = 4000;

std::string mutate(std::string text, std::mt19937& random) {
  static const std::string kTokens[] = {
      "{",    "}", "[", "]", ":", ",", "\"", "\n", " ", "-", "&a", "*a", "<<", "!", "%", "null", "1e999", "-1", "9223372036854775808",
      "\xff", "\0"};
  auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  for (size_t i = 0, n = 1 + below(6); i < n; ++i) {
    const size_t at = below(text.size() + 1);
    switch (below(4)) {
      case 0: text.insert(at, kTokens[below(std::size(kTokens))]); break;
      case 1: text.erase(at, below(8)); break;
      case 2:
        if (!text.empty()) text[at % text.size()] = static_cast<char>(random());
        break;
      default: text.insert(at, text.substr(below(text.size() + 1), below(20))); break;
    }
  }
  return text;
}

template <class F>
void fuzz(const std::vector<std::string>& seeds, F parse) {
  std::mt19937 random(20240607);
  int accepted = 0;
  for (int i = 0; i < kRounds; ++i) {
    const std::string text = mutate(seeds[static_cast<size_t>(i) % seeds.size()], random);
    try {
      parse(text);
      ++accepted;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(accepted, 0);        // some mutations are harmless
  EXPECT_LT(accepted, kRounds);  // and some are not
}

TEST(Fuzz, JobFiles) {
  fuzz({"model: gpt2\nbatch: 4\nseq: 128\nprecision: bf16\noptimizer: {name: AdamW, args: {fused: true}}\ncheckpointing: yes\nclip: 1.0\n",
        R"({"model": "gpt2", "batch": 4, "config": {"n_layer": 2}, "ema": true})"},
       [](const std::string& text) {
         Job job;
         read_job_text(job, text, "fuzz");
       });
}

TEST(Fuzz, JsonText) {
  fuzz({R"({"model_type": "llama", "hidden_size": 64, "nested": [1, {"a": [true, null, 1.5e3]}]})"},
       [](const std::string& text) { parse_json_text(text, "fuzz"); });
}

TEST(Fuzz, DeepNestingIsAnError) {
  EXPECT_THROW(parse_json_text(std::string(1'000'000, '['), "deep"), Error);
  EXPECT_THROW(parse_yaml_text(std::string(200'000, '['), "deep"), Error);
  EXPECT_THROW(parse_yaml_text(std::string(200'000, '{'), "deep"), Error);
}

TEST(Fuzz, AnAliasInsideItselfIsAnError) {
  EXPECT_THROW(parse_yaml_text("a: &a [*a, *a, *a]\n", "cycle"), Error);
  EXPECT_THROW(
      parse_yaml_text("a: &a [1, 2, 3, 4, 5, 6, 7, 8]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b]\n"
                      "d: &d [*c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e, *e, *e]\n",
                      "bomb"),
      Error);
}

TEST(Fuzz, RecordedRows) {
  const std::string path = (std::filesystem::temp_directory_path() / ("plimsoll_fuzz_" + std::to_string(::getpid()) + ".jsonl")).string();
  fuzz(
      {R"({"id":"a","spec":{"model":{"class":"GPT2LMHeadModel","config":"GPT2Config","args":{"n_layer":2}},"batch":2,"seq":64,"precision":"amp","optimizer":{"name":"SGD","args":{"momentum":0.9}}},"peak":10,"params":5,"secs":1.5,"step_peaks":[1,2],"breakdown":{"param":4},"phase_peak":{"forward":3}})"},
      [&](const std::string& text) {
        std::ofstream(path, std::ios::trunc) << text;
        read_recorded_rows(path);
      });
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace plimsoll
