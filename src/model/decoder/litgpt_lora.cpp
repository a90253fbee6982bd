#include "model/decoder/litgpt_lora.h"

#include <numeric>

#include "ops/conv.h"
#include "ops/index_copy.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int kFirstPadding = 200;   // until litgpt 0.2 the update was padded in a copy of its transposed rows
constexpr int kClonedIndices = 513;  // lora_ind returns a clone

std::vector<int64_t> all_widths(const QkvSettings& s) { return {s.heads * s.head_size, s.groups * s.head_size, s.groups * s.head_size}; }
int64_t sum(const std::vector<int64_t>& n) { return std::accumulate(n.begin(), n.end(), int64_t{0}); }

void require_no_adapter(const Linear& linear) {
  if (linear.is_adapted())
    throw Error("[target_modules] " + linear.path() + " takes no adapter of its own in litgpt",
                "name litgpt's parts: query, key, value, attn.proj, mlp.proj, mlp.fc_1, mlp.fc_2 (or mlp.fc), lm_head");
}

// Null: none.
const AdapterSettings* lora_of(const Module& module, const std::string& target) {
  Tuning& tuning = module.build().tuning;
  const AdapterSettings* a = tuning.changes_anything() ? tuning.adapter_of(target, true) : nullptr;
  if (a && (a->kind != AdapterKind::lora || a->use_dora))
    throw Error(std::string("[") + to_string(a->kind) + "] " + target + ": litgpt has plain LoRA alone", "use LoRA, without DoRA");
  return a;
}

}  // namespace

int litgpt_release(const std::string& text) {
  int major = 0, minor = 0, patch = 0;
  if (std::sscanf(text.c_str(), "%2d.%2d.%2d", &major, &minor, &patch) < 2 || major < 0 || minor < 0 || patch < 0)
    throw Error("[config] litgpt_version '" + text + "' is not a version", "write it as litgpt.__version__ does: 0.5.13");
  return major * 10000 + minor * 100 + patch;
}

LitgptLinear::LitgptLinear(Module& parent, std::string_view name, int64_t in, int64_t out, bool bias)
    : Module(parent, name), linear_(*this, "linear", in, out, bias) {
  require_no_adapter(linear_);
  const AdapterSettings* adapter = lora_of(*this, path());
  if (!adapter) return;
  dropout_ = adapter->dropout;
  lora_A_ = std::make_unique<AdapterParameter>(*this, "lora_A", Dims{adapter->r, in}, build().dtype);
  lora_B_ = std::make_unique<AdapterParameter>(*this, "lora_B", Dims{out, adapter->r}, build().dtype);
}

Tensor LitgptLinear::operator()(const Tensor& x) const {
  Forward here(*this);
  const Tensor pretrained = linear_(x);  // (..., out)
  if (!lora_A_) return pretrained;
  Tensor lora = dropout(x, dropout_);
  lora = matmul(lora, t(lora_A_->weight));  // (..., r)
  lora = matmul(lora, t(lora_B_->weight));  // (..., out)
  lora = mul_scalar(lora);
  return add(pretrained, lora);
}

LitgptQkv::LitgptQkv(Module& parent, std::string_view name, const QkvSettings& s)
    : Module(parent, name), settings_(s), linear_(*this, "linear", s.in, sum(all_widths(s)), s.bias) {
  require_no_adapter(linear_);
  add_lora(parent);
}

void LitgptQkv::add_lora(Module& attention) {
  const char* parts[]{"query", "key", "value"};
  const AdapterSettings* adapter = nullptr;
  for (size_t i = 0; i < 3; ++i) {
    const AdapterSettings* a = lora_of(*this, attention.path() + "." + parts[i]);
    if (!a) continue;
    adapter = a;
    widths_.push_back(all_widths(settings_)[i]);
  }
  if (!adapter) return;
  dropout_ = adapter->dropout;
  lora_A_ = std::make_unique<AdapterParameter>(*this, "lora_A", Dims{adapter->r * static_cast<int64_t>(widths_.size()), settings_.in},
                                               build().dtype);
  lora_B_ = std::make_unique<AdapterParameter>(*this, "lora_B", Dims{sum(widths_), adapter->r}, build().dtype);
  if (settings_.release >= kFirstPadding && widths_.size() < 3) lora_ind_ = buffer("_lora_ind", {sum(widths_)}, DType::int64);
}

// conv1d: groups where all parts are alike, else each by itself, joined. x: (B, r parts, T)
Tensor LitgptQkv::conv1d_of_parts(const Tensor& x) const {
  const auto parts = static_cast<int64_t>(widths_.size());
  const Tensor weight = unsqueeze(lora_B_->weight, -1);  // (widths, r, 1)
  if (settings_.heads == settings_.groups) return conv1d(x, weight, {}, {.groups = parts});
  const Tensors inputs = chunk(x, parts, 1), weights = split(weight, widths_, 0);
  Tensors results;
  for (size_t i = 0; i < inputs.size(); ++i) results.push_back(conv1d(inputs[i], weights[i], {}, {}));
  return cat(results, 1);  // (B, widths, T)
}

// lit-gpt before 2024: rows of transposed tokens, copied where there is more than one sample.
Tensor LitgptQkv::padded_first_release(const Tensor& update) const {
  const Tensor x = transpose(update, 0, 1);  // (T, B, widths)
  Tensor result = filled(tape(), "new_zeros", {x.size(0), x.size(1), linear_.out}, x.dtype());
  result = view(result, {-1, linear_.out});
  {
    const Tensor indices = filled(tape(), "tensor", {sum(widths_)}, DType::int64);
    const Tensor rows = reshape(x, {-1, sum(widths_)});
    const Tensor copy = filled(tape(), "index_copy", result.sizes(), result.dtype());
    result = index_copy_(copy, indices, rows);
  }
  return transpose(view(result, {x.size(0), x.size(1), linear_.out}), 0, 1);
}

Tensor LitgptQkv::zero_pad(const Tensor& update) const {
  if (widths_.size() == 3) return update;
  if (settings_.release < kFirstPadding) return padded_first_release(update);
  const Tensor result = filled(tape(), "new_zeros", {update.size(0), update.size(1), linear_.out}, update.dtype());
  return index_copy_(result, settings_.release < kClonedIndices ? lora_ind_ : clone(lora_ind_), update);
}

Tensor LitgptQkv::operator()(const Tensor& x) const {
  Forward here(*this);
  const Tensor pretrained = linear_(x);
  if (!lora_A_) return pretrained;
  Tensor update = dropout(x, dropout_);
  update = linear(update, lora_A_->weight);           // (B, T, r parts)
  update = conv1d_of_parts(transpose(update, 1, 2));  // (B, widths, T)
  update = transpose(update, 1, 2);                   // (B, T, widths)
  update = zero_pad(update);
  update = mul_scalar(update);  // (B, T, out)
  return add(pretrained, update);
}

}  // namespace plimsoll
