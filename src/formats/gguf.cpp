// GGUF: the architecture and its sizes in llama.cpp's words, as transformers turns them into a configuration when it loads such a file.
#include <fmt/format.h>

#include <algorithm>

#include "formats/format.h"
#include "formats/readers.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

struct Key {
  const char* gguf;
  const char* config;
};
constexpr Key kKeys[] = {{"context_length", "max_position_embeddings"},
                         {"block_count", "num_hidden_layers"},
                         {"feed_forward_length", "intermediate_size"},
                         {"embedding_length", "hidden_size"},
                         {"attention.head_count", "num_attention_heads"},
                         {"attention.head_count_kv", "num_key_value_heads"},
                         {"attention.key_length", "head_dim"},
                         {"attention.sliding_window", "sliding_window"},
                         {"expert_count", "num_experts"},
                         {"expert_used_count", "num_experts_per_tok"}};

const WeightTensor* find_tensor(const Document& d, const char* name) {
  const auto it = std::find_if(d.tensors.begin(), d.tensors.end(), [&](const WeightTensor& t) { return t.name == name; });
  return it == d.tensors.end() ? nullptr : &*it;
}

// GGUF keeps what the file needs; the rest are the class's defaults. Without an output matrix the embeddings are used again.
Json config_of(Reader& r, const std::string& architecture) {
  Json config = Json::object();
  for (const Key& k : kKeys)
    if (const Json* value = r.find("/" + architecture + "." + k.gguf); value && value->is_number()) config[k.config] = *value;
  if (const WeightTensor* embeddings = find_tensor(r.document, "token_embd.weight"); embeddings && embeddings->shape.size() == 2)
    config["vocab_size"] = embeddings->shape[0];
  config["tie_word_embeddings"] = find_tensor(r.document, "output.weight") == nullptr;
  return config;
}

Evidence evidence_of_gguf(const Document& d) { return d.kind == Document::Kind::gguf ? Evidence{"the header of its tensors"} : Evidence{}; }

ModelDescription model_of_gguf(Reader& r) {
  const std::string architecture = r.text("/general.architecture");
  if (architecture.empty()) throw Error("[gguf] " + r.document.path + " has no general.architecture", "is it a model?");
  ModelDescription m;
  m.weights = r.document.path;
  m.llama_cpp = true;
  const Json config = config_of(r, architecture);
  const bool experts = config.value("num_experts", 0) > 0;  // llama.cpp calls Mixtral llama
  m.candidates.push_back({experts ? architecture + "_moe" : architecture, config, ""});
  r.note(Effect::note,
         fmt::format("GGUF weights ({}) are for inference: a training run loads them unpacked, in the type that precision says",
                     summary(r.document.tensors)));
  return m;
}

}  // namespace

const Format& gguf_format() {
  static const Format kFormat{"gguf", "GGUF, the header alone", Rank::weights, evidence_of_gguf, read_safetensors, model_of_gguf};
  return kFormat;
}

}  // namespace plimsoll
