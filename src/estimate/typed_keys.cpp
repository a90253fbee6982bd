#include "estimate/typed_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "job/config_log.h"
#include "job/near_key.h"
#include "program/run.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int64_t kFewTokens = 64;

// The keys that a run of the job asks for. Which these are does not depend on the batch or on a text's length, so that a small one will
// do. Empty: it cannot be executed, or its configuration is handed on as a copy.
std::vector<std::string> keys_asked_for(Job job) {
  const auto log = std::make_shared<ConfigLog>();
  job.config.watch(log);
  job.accumulation = 1;
  if (job.collation.lengths.empty()) job.batch = 1;
  if (job.inputs == InputKind::lm || job.inputs == InputKind::cls || job.inputs == InputKind::pair)
    if (job.collation.lengths.empty()) job.seq = std::min(job.seq, kFewTokens);
  job.eval_batch = std::min<int64_t>(job.eval_batch, 1);
  if (!attempt(job, {}, {.all_ranks = false})) return {};
  const std::set<std::string> asked = log->asked();
  std::vector<std::string> keys(asked.begin(), asked.end());
  if (!keys.empty())  // what the size of a sample is taken from
    for (const char* key : {"max_position_embeddings", "n_positions", "image_size", "input_size"}) keys.emplace_back(key);
  return keys;
}

// Sizes decide memory: one that has no effect is a mistake.
bool names_a_size(const std::string& key) {
  const std::vector<std::string> words = split_at(lower(key), '_');
  for (const char* word : {"layer", "layers", "head", "heads", "hidden", "size", "dim", "width", "height", "depth", "vocab", "experts",
                           "channels", "embd", "model", "positions", "ffn", "blocks"})
    if (std::find(words.begin(), words.end(), word) != words.end()) return true;
  return false;
}

}  // namespace

void check_typed_keys(Job& job, const std::vector<std::string>& typed, const std::string& given_by) {
  if (typed.empty()) return;
  const std::vector<std::string> asked = keys_asked_for(job);
  if (asked.empty()) return;
  for (const std::string& key : typed) {
    if (std::find(asked.begin(), asked.end(), key) != asked.end()) continue;
    const std::string meant = near_key(key, asked), value = dump(job.config.values().value(key, nlohmann::json()));
    if (!meant.empty() || names_a_size(key)) {
      const std::vector<std::string> near = nearest_first(key, asked);
      throw Error(
          fmt::format("[config] {} {}: nothing in {} reads a key of that name", given_by, printable(key + "=" + value, 80), job.family),
          meant.empty()
              ? fmt::format("its keys are, nearest first: {}; `plimsoll explain {}` lists them with their values",
                            join({near.begin(), near.begin() + static_cast<long>(std::min<size_t>(near.size(), 6))}, ", "), job.model)
              : fmt::format("did you mean {}?", meant));
    }
    job.findings.push_back({Effect::unknown, fmt::format("{} = {}", printable(key, 60), printable(value, 60)), given_by,
                            fmt::format("nothing in {} reads it: the answer is the same without", job.family), ""});
  }
}

}  // namespace plimsoll
