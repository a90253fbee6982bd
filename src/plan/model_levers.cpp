#include "plan/model_levers.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "model/registry.h"

namespace plimsoll {

namespace {

int64_t shrunk(Shrink change, int64_t n) {
  switch (change) {
    case Shrink::half: return n / 2;
    case Shrink::three_quarters: return n * 3 / 4;
    case Shrink::one_less: return n - 1;
    // Video autoencoders take one frame, and four for each latent more.
    case Shrink::half_the_frames: return n > 1 ? (n - 1) / 8 * 4 + 1 : n;
  }
  return n;
}

constexpr int64_t kSide = 32;  // what every autoencoder and patch size here divides

}  // namespace

bool has_own_sides(const Job& job) { return job.inputs == InputKind::own && job.config.find({"height"}) && job.config.find({"width"}); }

bool trained_from_scratch(const Job& job) {
  static const std::set<std::string> kOfOneSystem{"fsdm", "gsa", "mamba-trainer", "stdiff", "unet-segmentation"};
  return kOfOneSystem.contains(job.family);
}

std::vector<Lever> model_levers(const Job& job) {
  std::vector<Lever> out;
  const Family* family = find_family(job.family);
  for (const SizeLever& l : family ? family->levers : std::vector<SizeLever>{}) {
    const int64_t now = job.config.size({l.key}, l.usual), then = shrunk(l.change, now);
    if (then < 1 || then == now) continue;
    out.push_back(
        {"model", fmt::format(fmt::runtime(l.name), then, now), {{"config", {{l.key, then}}}}, LeverKind::different_training, l.cost});
  }
  if (has_own_sides(job)) {
    const int64_t height = job.config.size({"height"}, 0) * 3 / 4 / kSide * kSide,
                  width = job.config.size({"width"}, 0) * 3 / 4 / kSide * kSide;
    if (height > 0 && width > 0)
      out.push_back({"model",
                     fmt::format("{} x {} pixels", height, width),
                     {{"config", {{"height", height}, {"width", width}}}},
                     LeverKind::different_training,
                     "less time; less is seen"});
  }
  return out;
}

}  // namespace plimsoll
