#include "diagnose/progress.h"

#include <algorithm>
#include <array>

#include "diagnose/printed_size.h"
#include "diagnose/words.h"
#include "util/text.h"

namespace plimsoll {

namespace {

std::optional<int64_t> number(std::string_view text) {
  if (text.empty() || text.size() > 15) return {};
  int64_t n = 0;
  for (const char c : text) n = n * 10 + (c - '0');
  return n;
}

// "3237/16700" with something else around: the last such pair, as bars are drawn one after the other.
struct Pair {
  int64_t done = 0, total = 0;
  size_t at = 0, end = 0;
};
std::optional<Pair> last_pair(std::string_view line) {
  for (size_t slash = line.rfind('/'); slash != std::string_view::npos && slash > 0; slash = line.rfind('/', slash - 1)) {
    size_t begin = slash, end = slash + 1;
    while (begin > 0 && is_digit(line[begin - 1])) --begin;
    while (end < line.size() && is_digit(line[end])) ++end;
    const auto done = number(line.substr(begin, slash - begin)), total = number(line.substr(slash + 1, end - slash - 1));
    const bool apart = (begin == 0 || std::string_view(" [|(").find(line[begin - 1]) != std::string_view::npos) &&
                       (end == line.size() || std::string_view(" ]):,").find(line[end]) != std::string_view::npos);
    if (done && total && *total > 0 && *done <= *total && apart) return Pair{*done, *total, begin, end};
  }
  return {};
}

bool is_preparation(std::string_view title) {
  const std::string t = lower(title);
  for (const std::string_view word : {"loading", "download", "map", "token", "filter", "fetching", "generating", "cach", "shard", "split",
                                      "saving", "resolving", "writing", "flatten", "pack", "encod", "preprocess", "extract", "captur"})
    if (t.find(word) != std::string::npos) return true;
  return false;
}

// "step 95", "Step: 12", "global_step=7", "iter 40".
std::optional<int64_t> number_of_word(std::string_view line) {
  const std::string text = lower(line);
  for (const std::string_view word : {"global_step", "step", "iteration", "iter"}) {
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      size_t i = at + word.size();
      if (i < text.size() && text[i] == 's') ++i;
      while (i < text.size() && std::string_view(" :=[#\"'").find(text[i]) != std::string_view::npos) ++i;
      size_t end = i;
      while (end < text.size() && is_digit(text[end])) ++end;
      const bool whole = end == text.size() || std::string_view(" ,;:/]|)}\t%").find(text[end]) != std::string_view::npos;
      if (end > i && i > at + word.size() && whole) return number(text.substr(i, end - i));
    }
  }
  return {};
}

}  // namespace

const std::vector<std::string_view>& progress_words() {
  static const std::vector<std::string_view> kWords{"it/s", "s/it", "'loss':", "\"loss\":", "step",
                                                    "Step", "iter", "Iter",    "Epoch",     "epoch"};
  return kWords;
}

std::optional<Progress> read_progress(std::string_view line) {
  line = line.substr(0, 2000);
  const bool bar = line.find("it/s") != std::string_view::npos || line.find("s/it") != std::string_view::npos;
  Progress p;
  const auto pair = last_pair(line);
  if (pair && (bar || line.find("poch") != std::string_view::npos || lower(line).find("step") != std::string::npos ||
               lower(line).find("iter") != std::string::npos)) {
    p.done = pair->done;
    p.total = pair->total;
    const std::string_view before = line.substr(0, pair->at);
    const size_t percent = before.rfind('%');
    const size_t colon = before.substr(0, percent).rfind(':');
    if (bar && colon != std::string_view::npos) {
      const size_t start = before.substr(0, colon).find_last_of("]|\t") + 1;
      p.text = std::string(before.substr(start, colon - start)).substr(0, 60);
      p.training = !is_preparation(p.text);
    }
    return p;
  }
  if (const auto n = number_of_word(line)) {
    p.done = n;
    return p;
  }
  if (line.find("'loss':") != std::string_view::npos || line.find("\"loss\":") != std::string_view::npos) return p;
  return {};
}

}  // namespace plimsoll
