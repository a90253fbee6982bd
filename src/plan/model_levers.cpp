#include "plan/model_levers.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

int64_t half(int64_t n) { return n / 2; }
int64_t one_less(int64_t n) { return n - 1; }
int64_t three_quarters(int64_t n) { return n * 3 / 4; }

struct ConfigLever {
  const char* family;
  const char* key;
  int64_t usual;  // what the family takes when the key is absent
  int64_t (*change)(int64_t);
  const char* name;  // with the new value and the old one
  const char* cost;
};

constexpr ConfigLever kLevers[]{
    {"gsa", "k_max", 1024, half, "{} keys a query instead of {}", "less time; attention sees fewer keys"},
    {"gsa", "n_layers", 8, three_quarters, "{} layers instead of {}", "less time; a smaller model"},
    {"gsa", "d_ffn", 1536, three_quarters, "a feed-forward of {} instead of {}", "less time; a smaller model"},
    {"mamba-trainer", "n_layers", 12, three_quarters, "{} layers instead of {}", "less time; a smaller model"},
    {"stdiff", "predicted", 5, one_less, "{} predicted frames instead of {}", "less time; shorter futures"},
    {"fsdm", "sample_size", 6, one_less, "{} images in a set instead of {}", "less time; smaller sets"},
    {"fsdm", "depth", 6, one_less, "{} layers instead of {}", "less time; a smaller model"},
};

}  // namespace

std::vector<Lever> model_levers(const Job& job) {
  std::vector<Lever> out;
  for (const ConfigLever& l : kLevers) {
    if (job.family != l.family) continue;
    const int64_t now = job.config.size({l.key}, l.usual), then = l.change(now);
    if (then < 1 || then == now) continue;
    out.push_back(
        {"model", fmt::format(fmt::runtime(l.name), then, now), {{"config", {{l.key, then}}}}, LeverKind::other_training, l.cost});
  }
  return out;
}

}  // namespace plimsoll
