// The rule of thumb that AI Toolkit's docs/memory-estimation.md (ostris/ai-toolkit, pull request 511) gives for unified memory, as it is
// written there: to set beside a simulation, not to rely on. Its own two worked examples are tests.
#pragma once

#include <cstdint>
#include <optional>

#include "estimate/host_memory.h"

namespace plimsoll {

// Sizes in its GB, which are 2^30 here.
struct RuleOfThumb {
  double total = 0;
  double weights = 0;
  double optimizer = 0;  // "AdamW: 2x model weights"
  double ema = 0;
  int64_t workers = 0;
  int64_t resolution = 0;  // side of an image; 0: it has no rule for tokens

  double per_worker = 8, system = 8, safety = 0.9, per_megapixel = 4;
};

struct RuleAnswer {
  double workers = 0, reserved = 0, available = 0;
  std::optional<double> per_sample;
  std::optional<int64_t> divided;  // floor(available / per sample)
  std::optional<int64_t> batch;    // at least 1, at most its cap for the resolution
  std::optional<int64_t> cap, largest;
};

RuleAnswer rule_of_thumb(const RuleOfThumb& rule);

// The rule's inputs for a job: weights as simulated, the optimizer at twice that.
RuleOfThumb rule_for(const Job& job, const HostFacts& facts, Bytes total);

}  // namespace plimsoll
