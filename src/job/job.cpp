#include "job/job.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "job/named_value.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr std::array kPrecisions{"fp32", "amp", "amp-fp16", "bf16", "fp16"};
constexpr std::array kAttentions{"auto", "flash", "efficient", "math", "eager", "flash-attention-2"};
constexpr std::array kInputs{"lm", "cls", "image", "pair", "vector", "own"};
constexpr std::array kLosses{"model", "logits-sum"};
constexpr std::array kZeroGrads{"after-step", "before-forward", "before-backward"};

constexpr std::array kGradientTypes{"weights", "fp32", "bf16", "fp16"};

}  // namespace

std::string missing_parts(const Job& job) {
  std::vector<std::string> parts;
  for (const Finding& f : job.findings)
    if (f.effect == Effect::missing) parts.push_back(f.setting);
  if (parts.size() < 2) return join(parts, "");
  const std::string last = parts.back();
  parts.pop_back();
  return join(parts, ", ") + " and " + last;
}

const char* to_string(Precision p) { return kPrecisions[static_cast<size_t>(p)]; }
const char* to_string(AttentionKernel a) { return kAttentions[static_cast<size_t>(a)]; }
const char* to_string(InputKind k) { return kInputs[static_cast<size_t>(k)]; }
const char* to_string(Loss l) { return kLosses[static_cast<size_t>(l)]; }
const char* to_string(GradientType g) { return kGradientTypes[static_cast<size_t>(g)]; }
const char* to_string(ZeroGrad z) { return kZeroGrads[static_cast<size_t>(z)]; }

Precision parse_precision(const std::string& text) {
  // Words of PyTorch, transformers and Lightning for the same.
  static constexpr std::pair<const char*, Precision> kSynonyms[] = {
      {"fp16amp", Precision::amp_fp16}, {"fp16-amp", Precision::amp_fp16}, {"16-mixed", Precision::amp_fp16},
      {"bf16-amp", Precision::amp},     {"bf16-mixed", Precision::amp},    {"mixed", Precision::amp},
      {"bfloat16", Precision::bf16},    {"bf16-true", Precision::bf16},    {"float16", Precision::fp16},
      {"half", Precision::fp16},        {"16-true", Precision::fp16},      {"float32", Precision::fp32},
      {"float", Precision::fp32},       {"32-true", Precision::fp32}};
  for (const auto& [word, precision] : kSynonyms)
    if (text == word) return precision;
  if (text.starts_with("fp8") || text.starts_with("float8"))
    throw Error(
        "[job] precision " + printable(text, 40) + " is not supported",
        "known: fp32, amp, amp-fp16, bf16, fp16; fp8 trainers keep weights in bf16 or fp32 and cast copies for matrix products: bf16 or "
        "amp is the nearest");
  for (const char* word : {"nf4", "fp4", "int4", "4bit", "int8", "8bit"})
    if (text == word)
      throw Error(fmt::format("[job] precision '{}' is the type of a quantised base", text),
                  fmt::format("--quantization {}, with --lora r=16; precision is the type of what is not quantised", text));
  return one_of<Precision>(kPrecisions, text, "precision");
}

AttentionKernel parse_attention(const std::string& text) { return one_of<AttentionKernel>(kAttentions, text, "attention"); }

ZeroGrad parse_zero_grad(const std::string& text) { return one_of<ZeroGrad>(kZeroGrads, text, "zero_grad"); }

GradientType parse_gradient_type(const std::string& text) { return one_of<GradientType>(kGradientTypes, text, "gradient_dtype"); }

Loss parse_loss(const std::string& text) { return one_of<Loss>(kLosses, text, "loss"); }

InputKind parse_inputs(const std::string& text) {
  if (text == "seq2seq") return InputKind::lm;
  return one_of<InputKind>(kInputs, text, "inputs");
}

}  // namespace plimsoll
