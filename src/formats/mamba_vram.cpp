#include "formats/mamba_vram.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "job/settings.h"

namespace plimsoll {

namespace {

constexpr double kMiB = 1024.0 * 1024.0;

constexpr MambaPreset kPresets[]{{"small", {512, 8}, 1024, 0, true},
                                 {"medium-lite", {640, 10}, 1024, 0, true},
                                 {"medium-plus", {704, 11}, 1536, 0, true},
                                 {"medium-x", {736, 12}, 1792, 0, true},
                                 {"medium", {768, 12}, 2048, 0, true},
                                 {"medium-extra", {832, 14}, 2048, 0, true},
                                 {"large-lite", {896, 18}, 2048, 0, true},
                                 {"large-plus", {960, 21}, 2048, 0, true},
                                 {"large", {1024, 24}, 2048, 0, true},
                                 {"xlarge", {1280, 32}, 2048, 0, true},
                                 {"xxlarge", {1536, 40}, 2048, 0, true},
                                 {"hybrid-small", {512, 8}, 1024, 3, true},
                                 {"hybrid-small-mini", {576, 9}, 1280, 3, false},
                                 {"hybrid-small-standard", {608, 10}, 1408, 3, false},
                                 {"hybrid-small-plus", {640, 10}, 1536, 3, true},
                                 {"hybrid-small-pro", {704, 11}, 1792, 3, true},
                                 {"hybrid-medium", {768, 12}, 2048, 3, true},
                                 {"hybrid-large", {1024, 16}, 2048, 4, true}};

struct Step {
  double up_to_gb;
  int64_t batch, seq, accumulation;
};
constexpr Step kSteps[]{{8, 1, 256, 16}, {12, 2, 512, 8}, {16, 2, 512, 8}, {24, 4, 1024, 4}, {32, 8, 1024, 2}};
constexpr Step kLargest{0, 12, 2048, 2};

std::string without(std::string text, const std::string& part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part)) text.erase(at, part.size());
  return text;
}

}  // namespace

const MambaPreset* mamba_preset(const std::string& name) {
  const auto it = std::find_if(std::begin(kPresets), std::end(kPresets), [&](const MambaPreset& p) { return name == p.name; });
  return it == std::end(kPresets) ? nullptr : it;
}

std::optional<double> mamba_vram_number(const std::string& vram) {
  const std::string digits = without(without(vram, "."), "gb");
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c); })) return std::nullopt;
  const nlohmann::json value = parse_scalar(without(vram, "gb"));  // "1.2.3" passes the test, and float() stops
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

double mamba_model_mb(const MambaShape& s) {
  const double d = static_cast<double>(s.d_model);
  const double layer = d * d * 4 + d * static_cast<double>(s.d_state) * 2 + d * static_cast<double>(s.expand_factor) * d * 2;
  const double parameters = static_cast<double>(s.vocab_size) * d + layer * static_cast<double>(s.n_layers);
  const double model = parameters * 2 / kMiB;
  return model + model * 2;
}

double mamba_batch_mb(const MambaShape& s, int64_t batch, int64_t seq) {
  const double d = static_cast<double>(s.d_model), b = static_cast<double>(batch), t = static_cast<double>(seq);
  const double activations = (b * t * d * 4 + b * d * static_cast<double>(s.d_state) * 2) * static_cast<double>(s.n_layers);
  return (b * t * d * 2 + activations + activations) / kMiB;
}

MambaVram mamba_optimize(const MambaShape& shape, double vram_gb, double margin_mb) {
  const double usable_mb = vram_gb * 1024 - margin_mb;
  MambaVram v;
  v.usable_gb = usable_mb / 1024;
  const auto it = std::find_if(std::begin(kSteps), std::end(kSteps), [&](const Step& s) { return v.usable_gb <= s.up_to_gb; });
  const Step& start = it == std::end(kSteps) ? kLargest : *it;
  v.batch = start.batch;
  v.seq = start.seq;
  v.accumulation = start.accumulation;
  const double limit = (usable_mb - mamba_model_mb(shape)) * 0.8;
  while (mamba_batch_mb(shape, v.batch, v.seq) > limit && v.batch > 1) {
    v.batch = std::max<int64_t>(1, v.batch / 2);
    v.accumulation *= 2;
  }
  while (mamba_batch_mb(shape, v.batch, v.seq) > limit && v.seq > 128) v.seq = std::max<int64_t>(128, v.seq / 2);
  v.checkpointing = v.usable_gb < 24;
  return v;
}

}  // namespace plimsoll
