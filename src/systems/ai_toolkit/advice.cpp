// What the AI Toolkit's set-up says to its user, by the conditions of its code; the words are not its own.
#include <fmt/format.h>

#include "systems/ai_toolkit/rules.h"

namespace plimsoll::ai_toolkit {

std::vector<AdvisorMessage> handle_unified_memory(Version v, const SystemProfile& profile) {
  if (!profile.unified) return {};
  const double pool = profile.pool();
  std::vector<AdvisorMessage> out{
      {"info", "unified memory", fmt::format("one pool of {} GB for CPU and GPU: everything is counted against it", pool)}};
  if (v >= Version::v4) out.push_back({"tip", "no offloading", "low_vram stays off: there is no other memory to move tensors to"});
  if (v >= Version::v3) {
    const int64_t workers = calculate_workers(v, profile).num_workers;
    out.push_back({"tip", "workers", fmt::format("{} instead of 8, at 8 GB each: {} GB more for batches", workers, (8 - workers) * 8)});
    out.push_back({"info", "batch before workers", "larger batches steady the gradients, and workers idle once latents are cached"});
  }
  out.push_back({"tip", "prefetching", "little to gain without a transfer to a card; latents are best cached in memory"});
  if (v >= Version::v3 && pool < 64)
    out.push_back({"warning", "little memory",
                   fmt::format("{} GB may not be enough at high resolutions: 768 px or less, or gradient checkpointing", pool)});
  return out;
}

std::vector<AdvisorMessage> settings_warnings(const SystemProfile& profile, double images, double resolution, double batch_size,
                                              bool gradient_checkpointing) {
  std::vector<AdvisorMessage> out;
  if (batch_size > 1 && resolution >= 1024 && profile.vram_gb < 16)
    out.push_back({"warning", "batch size",
                   fmt::format("{} at {} px may not fit in {} GB; it proposes auto-scaling, which changes nothing (see the differences)",
                               batch_size, resolution, profile.vram_gb)});
  if (images < 20)
    out.push_back({"warning", "small dataset", fmt::format("{} images: more weight decay and EMA against overfitting", images)});
  if (!gradient_checkpointing && profile.vram_gb < 16)
    out.push_back({"warning", "gradient checkpointing", fmt::format("should be on with {} GB", profile.vram_gb)});
  return out;
}

}  // namespace plimsoll::ai_toolkit
