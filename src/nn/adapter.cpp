#include "nn/adapter.h"

#include "nn/lora.h"

namespace plimsoll {

std::unique_ptr<Adapter> make_adapter(DenseLayer& layer, const AdapterSettings& s) {
  switch (s.kind) {
    case AdapterKind::lora: break;
    case AdapterKind::lokr: break;
    case AdapterKind::ia3: break;
    case AdapterKind::ln_tuning: break;  // copies norms instead (nn/module.cpp)
  }
  if (s.use_dora) return std::make_unique<Dora>(layer, s);
  return std::make_unique<Lora>(layer, s);
}

std::unique_ptr<LoraEmbedding> make_lora_embedding(Embedding& layer, const AdapterSettings& s) {
  if (s.kind != AdapterKind::lora || s.use_dora)
    throw Error(std::string("[") + to_string(s.kind) + "] " + layer.path() + " is an embedding, which only plain LoRA supports",
                "take it out of target_modules");
  return std::make_unique<LoraEmbedding>(layer, s);
}

}  // namespace plimsoll
