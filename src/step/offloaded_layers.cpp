#include "step/offloaded_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "nn/layers.h"
#include "nn/quantized_linear.h"
#include "step/swapped_blocks.h"

namespace plimsoll {

namespace {

constexpr size_t kDepth = 4;  // manager_modules.py, PIPELINE_DEPTH
constexpr size_t kRings = 2;  // one for forward, one for backward

struct Shares {
  double denoiser = 0, text_encoders = 0;
};

double share(const Config& c, const char* key) {
  const double value = c.number({key}, 1.0);
  if (!(value >= 0 && value <= 1))
    throw Error(fmt::format("[layer_offloading] {} is {}, expected a share from 0 to 1", key, value), "1 is all of the linear layers");
  return value;
}

Shares shares_of(const Config& config) {
  const nlohmann::json* value = config.find({"layer_offloading"});
  if (!value || value->is_null() || *value == false) return {};
  if (*value == true) return {1, 1};
  if (!value->is_object())
    throw Error("[layer_offloading] is " + value->dump().substr(0, 80) + ", expected true or shares",
                R"(e.g. {"transformer": 1.0, "text_encoder": 0.5})");
  for (const auto& item : value->items())
    if (item.key() != "transformer" && item.key() != "text_encoder")
      throw Error("[layer_offloading] has no '" + item.key() + "'", "transformer and text_encoder");
  const Config c("layer_offloading", *value);
  return {share(c, "transformer"), share(c, "text_encoder")};
}

void add_layers(const Module& m, std::vector<const DenseLayer*>& out) {
  if (const auto* layer = dynamic_cast<const DenseLayer*>(&m)) out.push_back(layer);
  for (const Module* child : m.children()) add_layers(*child, out);
}

bool is_frozen(const DenseLayer& layer) { return !layer.weight.requires_grad() && layer.weight.storage().bytes > 0; }

// The toolkit draws lots; here they are spread evenly.
std::vector<const DenseLayer*> chosen(const std::vector<const DenseLayer*>& layers, double share) {
  std::vector<const DenseLayer*> out;
  double due = 0;
  for (const DenseLayer* layer : layers) {
    due += share;
    if (due < 1 - 1e-9) continue;
    due -= 1;
    out.push_back(layer);
  }
  return out;
}

// What passes through: the unpacked weight, but the toolkit's own codes as they are.
int64_t ring_bytes(const DenseLayer& layer, DType dtype) {
  const bool codes = layer.quantized && !layer.quantized->has_own_adapter() && layer.quantized->bits() < 8;
  return codes ? layer.weight.storage().bytes : checked_mul(checked_mul(layer.in, layer.out), size_of(dtype));
}

// The most that as many neighbours as a ring has places take.
int64_t fullest_ring(const std::vector<const DenseLayer*>& layers, DType dtype) {
  int64_t most = 0, now = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto bytes = [&](const DenseLayer& l) { return ring_bytes(l, dtype); };
    now += bytes(*layers[i]);
    if (i >= kDepth) now -= bytes(*layers[i - kDepth]);
    most = std::max(most, now);
  }
  return most;
}

}  // namespace

OffloadedLayers offload_layers(const Job& job, const Module& model, Tape& tape) {
  const Shares shares = shares_of(job.config);
  if (shares.denoiser == 0 && shares.text_encoders == 0) return {};
  std::vector<const DenseLayer*> all, denoiser, texts;
  add_layers(model, all);
  for (const DenseLayer* layer : all)
    if (is_frozen(*layer)) (layer->path().starts_with("text_encoder") ? texts : denoiser).push_back(layer);
  if (denoiser.empty() && shares.denoiser > 0)
    throw Error("[layer_offloading] no linear layer of the denoiser is frozen, and only those are simulated",
                "train an adapter (lora: {r: 16}), or leave layer_offloading out");
  std::vector<const DenseLayer*> moved = chosen(denoiser, shares.denoiser);
  for (const DenseLayer* layer : chosen(texts, shares.text_encoders)) moved.push_back(layer);
  if (moved.empty()) return {};
  std::vector<Parameter*> weights;
  for (const DenseLayer* layer : moved) weights.push_back(layer->weight.parameter());
  OffloadedLayers result;
  const ScopeGuard here(tape, moved.front()->scope());
  for (size_t i = 0; i < kRings; ++i) {
    tape.op = "w_buffers";
    result.rings.push_back(empty(tape, {fullest_ring(moved, model.build().load_dtype)}, DType::uint8));
  }
  result.on_host = take_off_device(tape, weights);
  return result;
}

}  // namespace plimsoll
