// LoRA as litgpt's modules compute it: in the type of the base, and on queries, keys and values through one fused layer whose
// update is padded with zeros where a part has none. litgpt/lora.py; nn/tuning.h says which parts get one, by litgpt's names.
#pragma once

#include "nn/adapter.h"

namespace plimsoll {

// "0.5.13" -> 513: major, minor and patch in two digits each. An Error names the text otherwise.
int litgpt_release(const std::string& text);

// LoRALinear: a layer and perhaps an update, pretrained + (dropout(x) @ A.T @ B.T) * scaling
struct LitgptLinear : Module {
  LitgptLinear(Module& parent, std::string_view name, int64_t in, int64_t out, bool bias);
  Tensor operator()(const Tensor& x) const;

 private:
  Linear linear_;
  double dropout_ = 0;
  std::unique_ptr<AdapterParameter> lora_A_, lora_B_;
};

struct QkvSettings {
  int64_t in = 0, head_size = 0, heads = 0, groups = 0;
  bool bias = false;
  int release = 0;  // of litgpt, as litgpt_release() gives it
};

// LoRAQKVLinear. Its parts are targets by the names `query`, `key` and `value` of the attention it is in.
struct LitgptQkv : Module {
  LitgptQkv(Module& parent, std::string_view name, const QkvSettings& settings);
  Tensor operator()(const Tensor& x) const;  // (B, T, in) -> (B, T, (heads + 2 groups) head_size)

 private:
  void add_lora(Module& attention);
  Tensor conv1d_of_parts(const Tensor& x) const;
  Tensor zero_pad(const Tensor& update) const;
  Tensor padded_first_release(const Tensor& update) const;

  QkvSettings settings_;
  Linear linear_;
  std::vector<int64_t> widths_;  // of the parts that have an update
  double dropout_ = 0;
  std::unique_ptr<AdapterParameter> lora_A_, lora_B_;
  Tensor lora_ind_;
};

}  // namespace plimsoll
