#include "job/near_key.h"

#include <algorithm>
#include <cctype>

#include "util/edit_distance.h"
#include "util/text.h"

namespace plimsoll {

namespace {

std::string plain(std::string_view key) {
  std::string out = lower(key);
  std::erase_if(out, [](char c) { return c == '_' || c == '-'; });
  return out;
}

std::vector<std::string> words_of(std::string_view key) {
  std::string text(key);
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = ' ';
  return split_at(lower(text), ' ');
}

}  // namespace

std::string near_key(std::string_view key, const std::vector<std::string>& known) {
  const std::string wanted = plain(key.substr(0, 64));
  if (wanted.size() < 3) return "";
  std::string best;
  size_t allowed = (wanted.size() < 6 ? 1 : 2) + 1;
  for (const std::string& name : known) {
    if (name == key) continue;
    const size_t d = edit_distance(wanted, plain(name));
    if (d >= allowed) continue;
    allowed = d;
    best = name;
    if (d == 0) break;
  }
  return best;
}

bool concerns_memory(std::string_view key) {
  static const std::vector<std::string> kWords{"lora", "peft",  "quant", "bit",      "bits", "offload", "checkpoint", "batch",    "len",
                                               "seq",  "shard", "zero",  "parallel", "vllm", "flash",   "dtype",      "precision"};
  static const std::vector<std::string> kElsewhere{"save", "saved",   "saving", "resume", "dir", "path",
                                                   "log",  "logging", "hub",    "wandb",  "push"};
  const std::vector<std::string> words = words_of(key);
  const auto is_elsewhere = [&](const std::string& word) {
    return std::find(kElsewhere.begin(), kElsewhere.end(), word) != kElsewhere.end();
  };
  if (std::any_of(words.begin(), words.end(), is_elsewhere)) return false;
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::any_of(kWords.begin(), kWords.end(), [&](const std::string& w) { return word.starts_with(w) || word.ends_with(w); });
  });
}

}  // namespace plimsoll
