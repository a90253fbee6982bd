#include "nn/adapter.h"

#include "nn/ai_toolkit_lora.h"
#include "nn/ia3.h"
#include "nn/lokr.h"
#include "nn/lora.h"

namespace plimsoll {

namespace {
[[noreturn]] void unsupported(const AdapterSettings& s, const Module& layer, const char* what) {
  throw Error(std::string("[") + to_string(s.kind) + "] " + layer.path() + " is " + what, "take it out of target_modules, or use LoRA");
}
}  // namespace

std::unique_ptr<Adapter> make_adapter(DenseLayer& layer, const AdapterSettings& s) {
  if (s.kind != AdapterKind::lora && layer.quantized) unsupported(s, layer, "quantised, which only LoRA supports here");
  if (s.kind == AdapterKind::lokr && layer.fan_in_fan_out) unsupported(s, layer, "a Conv1D, which PEFT's LoKr does not support");
  if (s.kind == AdapterKind::lokr) return std::make_unique<Lokr>(layer, s);
  if (s.kind == AdapterKind::ia3) return std::make_unique<Ia3>(layer, s);
  if (s.ai_toolkit) return std::make_unique<AiToolkitLora>(layer, s);
  if (s.use_dora) return std::make_unique<Dora>(layer, s);
  return std::make_unique<Lora>(layer, s);
}

std::unique_ptr<LoraEmbedding> make_lora_embedding(Embedding& layer, const AdapterSettings& s) {
  if (s.kind != AdapterKind::lora || s.use_dora || s.ai_toolkit) unsupported(s, layer, "an embedding, which only plain LoRA supports here");
  return std::make_unique<LoraEmbedding>(layer, s);
}

}  // namespace plimsoll
