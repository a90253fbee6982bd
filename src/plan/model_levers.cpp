#include "plan/model_levers.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

int64_t half(int64_t n) { return n / 2; }
int64_t one_less(int64_t n) { return n - 1; }
// Video autoencoders take one frame, and four for each latent more.
int64_t half_the_frames(int64_t n) { return n > 1 ? (n - 1) / 8 * 4 + 1 : n; }
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
    {"wan", "frames", 1, half_the_frames, "{} frames instead of {}", "less time; shorter videos"},
    {"hunyuan_video", "frames", 1, half_the_frames, "{} frames instead of {}", "less time; shorter videos"},
    {"fsdm", "sample_size", 6, one_less, "{} images in a set instead of {}", "less time; smaller sets"},
    {"fsdm", "depth", 6, one_less, "{} layers instead of {}", "less time; a smaller model"},
};

constexpr int64_t kSide = 32;  // what every autoencoder and patch size here divides

}  // namespace

bool has_own_sides(const Job& job) { return job.inputs == InputKind::own && job.config.find({"height"}) && job.config.find({"width"}); }

std::vector<Lever> model_levers(const Job& job) {
  std::vector<Lever> out;
  for (const ConfigLever& l : kLevers) {
    if (job.family != l.family) continue;
    const int64_t now = job.config.size({l.key}, l.usual), then = l.change(now);
    if (then < 1 || then == now) continue;
    out.push_back(
        {"model", fmt::format(fmt::runtime(l.name), then, now), {{"config", {{l.key, then}}}}, LeverKind::other_training, l.cost});
  }
  if (has_own_sides(job)) {
    const int64_t height = job.config.size({"height"}, 0) * 3 / 4 / kSide * kSide,
                  width = job.config.size({"width"}, 0) * 3 / 4 / kSide * kSide;
    if (height > 0 && width > 0)
      out.push_back({"model",
                     fmt::format("{} x {} pixels", height, width),
                     {{"config", {{"height", height}, {"width", width}}}},
                     LeverKind::other_training,
                     "less time; less is seen"});
  }
  return out;
}

}  // namespace plimsoll
