#include "score/published_model.h"

#include <nlohmann/json.hpp>

#include "score/published_litgpt.h"
#include "score/published_vision.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

// Keys of the rows -> keys of a transformers configuration; absent and null ones are left to the class.
void copy_keys(const Json& sizes, Json& config, std::initializer_list<std::pair<const char*, const char*>> keys) {
  for (const auto& [from, to] : keys)
    if (sizes.contains(from) && !sizes[from].is_null()) config[to] = sizes[from];
}

void usual_keys(const Json& sizes, Json& config) {
  copy_keys(sizes, config,
            {{"num_layers", "num_hidden_layers"},
             {"hidden_size", "hidden_size"},
             {"num_heads", "num_attention_heads"},
             {"ffn_size", "intermediate_size"},
             {"vocab_size", "vocab_size"}});
}

void grouped_keys(const Json& sizes, Json& config) {
  usual_keys(sizes, config);
  copy_keys(sizes, config,
            {{"num_kv_heads", "num_key_value_heads"},
             {"head_dim", "head_dim"},
             {"max_position", "max_position_embeddings"},
             {"tie_embeddings", "tie_word_embeddings"}});
}

void mixtral(const Json& sizes, Json& config) {
  grouped_keys(sizes, config);
  if (!sizes.contains("moe")) return;
  copy_keys(sizes["moe"], config,
            {{"num_experts", "num_local_experts"}, {"topk", "num_experts_per_tok"}, {"expert_ffn", "intermediate_size"}});
}

// modeling_qwen.py halves intermediate_size.
void qwen(const Json& sizes, Json& config) {
  usual_keys(sizes, config);
  copy_keys(sizes, config,
            {{"head_dim", "kv_channels"}, {"max_position", "max_position_embeddings"}, {"tie_embeddings", "tie_word_embeddings"}});
  config["intermediate_size"] = 2 * sizes.at("ffn_size").get<int64_t>();
}

void gpt2(const Json& sizes, Json& config) {
  copy_keys(sizes, config,
            {{"num_layers", "n_layer"},
             {"hidden_size", "n_embd"},
             {"num_heads", "n_head"},
             {"ffn_size", "n_inner"},
             {"vocab_size", "vocab_size"},
             {"position_rows", "n_positions"},
             {"hidden_dropout", "resid_pdrop"},
             {"attention_dropout", "attn_pdrop"},
             {"embedding_dropout", "embd_pdrop"}});
  config["activation_function"] = sizes.value("ffn_kind", "") == "gelu" ? "gelu" : "gelu_new";
}

void gpt_neox(const Json& sizes, Json& config) {
  usual_keys(sizes, config);
  copy_keys(sizes, config, {{"rotary_pct", "rotary_pct"}, {"max_position", "max_position_embeddings"}});
}

void opt(const Json& sizes, Json& config) {
  copy_keys(sizes, config,
            {{"num_layers", "num_hidden_layers"},
             {"hidden_size", "hidden_size"},
             {"num_heads", "num_attention_heads"},
             {"ffn_size", "ffn_dim"},
             {"vocab_size", "vocab_size"},
             {"max_position", "max_position_embeddings"},
             {"word_embed_proj_dim", "word_embed_proj_dim"},
             {"do_layer_norm_before", "do_layer_norm_before"},
             {"hidden_dropout", "dropout"},
             {"attention_dropout", "attention_dropout"}});
}

void bert(const Json& sizes, Json& config) {
  usual_keys(sizes, config);
  copy_keys(sizes, config,
            {{"max_position", "max_position_embeddings"},
             {"type_vocab", "type_vocab_size"},
             {"hidden_dropout", "hidden_dropout_prob"},
             {"attention_dropout", "attention_probs_dropout_prob"},
             {"num_labels", "num_labels"}});
}

void albert(const Json& sizes, Json& config) {
  bert(sizes, config);
  copy_keys(sizes, config, {{"embedding_size", "embedding_size"}});
}

void distilbert(const Json& sizes, Json& config) {
  copy_keys(sizes, config,
            {{"num_layers", "n_layers"},
             {"hidden_size", "dim"},
             {"num_heads", "n_heads"},
             {"ffn_size", "hidden_dim"},
             {"vocab_size", "vocab_size"},
             {"max_position", "max_position_embeddings"},
             {"hidden_dropout", "dropout"},
             {"attention_dropout", "attention_dropout"}});
}

void biogpt(const Json& sizes, Json& config) {
  bert(sizes, config);
  config.erase("type_vocab_size");
}

void gpt_neo(const Json& sizes, Json& config) {
  copy_keys(sizes, config,
            {{"num_layers", "num_layers"},
             {"hidden_size", "hidden_size"},
             {"num_heads", "num_heads"},
             {"ffn_size", "intermediate_size"},
             {"vocab_size", "vocab_size"},
             {"max_position", "max_position_embeddings"}});
  config["attention_types"] = Json::array({Json::array({Json::array({"global", "local"}), sizes.value("num_layers", 12) / 2})});
}

void gpt_bigcode(const Json& sizes, Json& config) {
  gpt2(sizes, config);
  const bool fast = sizes.value("gelu_impl", "").find("gelu_fast") != std::string::npos;
  config["activation_function"] = fast ? "gelu_fast" : "gelu_pytorch_tanh";
  config["multi_query"] = sizes.value("num_kv_heads", 1) == 1;
}

void t5(const Json& sizes, Json& config) {
  copy_keys(sizes, config,
            {{"encoder_layers", "num_layers"},
             {"decoder_layers", "num_decoder_layers"},
             {"hidden_size", "d_model"},
             {"num_heads", "num_heads"},
             {"head_dim", "d_kv"},
             {"ffn_size", "d_ff"},
             {"vocab_size", "vocab_size"},
             {"hidden_dropout", "dropout_rate"}});
}

// linear_sizes of the rows ends with the size of the output; swish is torch.nn.SiLU.
void mlp(const Json& sizes, Json& config) {
  copy_keys(sizes, config,
            {{"input_size", "input_size"},
             {"linear_sizes", "linear_sizes"},
             {"activation", "activation"},
             {"batch_norm", "batch_norm"},
             {"dropout", "dropout"},
             {"final_softmax", "final_softmax"}});
  if (config.value("activation", "") == "swish") config["activation"] = "silu";
  if (Json& layers = config["linear_sizes"]; layers.is_array() && !layers.empty()) {
    config["output_size"] = layers.back();
    layers.erase(layers.size() - 1);
  } else {
    config.erase("linear_sizes");
  }
}

struct NamedFamily {
  const char* word;  // of the public name, lower case
  const char* family;
  void (*fill)(const Json& sizes, Json& config);
};

// The first whose word stands in the name: "albert" before "bert".
constexpr NamedFamily kFamilies[]{
    {"santacoder", "gpt_bigcode", gpt_bigcode},
    {"starcoder", "gpt_bigcode", gpt_bigcode},
    {"distilgpt2", "gpt2", gpt2},
    {"cerebras-gpt", "gpt2", gpt2},
    {"gpt2", "gpt2", gpt2},
    {"gpt-neo-", "gpt_neo", gpt_neo},
    {"biogpt", "biogpt", biogpt},
    {"pythia", "gpt_neox", gpt_neox},
    {"opt-", "opt", opt},
    {"distilbert", "distilbert", distilbert},
    {"albert", "albert", albert},
    {"roberta", "roberta", bert},
    {"bert", "bert", bert},
    {"mixtral", "mixtral", mixtral},
    {"mistral-", "mistral", grouped_keys},
    {"powerlm", "granite", grouped_keys},
    {"granite", "granite", grouped_keys},
    {"yi-", "llama", grouped_keys},
    {"llama", "llama", grouped_keys},
    {"qwen/qwen-", "qwen", qwen},
    {"t5", "t5", t5},
    {"gpumemnet mlp", "mlp", mlp},
};

// torchvision's own names: "torchvision resnet101", "torchvision MobileNetV3 large (10 classes)".
PublishedModel torchvision(const std::string& name, const Json& sizes, Json& config) {
  std::string family = lower(name.substr(std::string("torchvision ").size()));
  family = family.substr(0, family.find('('));
  while (!family.empty() && family.back() == ' ') family.pop_back();
  for (char& c : family)
    if (c == ' ') c = '_';
  if (family == "mobilenetv2") family = "mobilenet_v2";
  if (family.rfind("mobilenetv3", 0) == 0) family = "mobilenet_v3" + family.substr(11);
  if (family == "mnasnet") family = "mnasnet1_0";
  copy_keys(sizes, config, {{"num_classes", "num_classes"}});
  return {family, ""};
}

}  // namespace

PublishedModel published_model(const Json& row, Json& config) {
  const Json &model = row.at("model"), &sizes = model.at("config");
  const std::string name = lower(model.at("name").get<std::string>()), arch = model.at("arch").get<std::string>();
  if (name.rfind("torchvision ", 0) == 0) return torchvision(model["name"], sizes, config);
  if (is_litgpt_row(row)) return {"litgpt", litgpt_config(row, config)};
  if (const PublishedModel found = published_vision_model(row, config); !found.family.empty()) return found;
  for (const NamedFamily& f : kFamilies) {
    if (name.find(f.word) == std::string::npos) continue;
    f.fill(sizes, config);
    std::string family = f.family;
    if (sizes.value("head", "") == "sequence_classification") family += "-classifier";
    return {family, ""};
  }
  return {"", "model: " + arch};
}

}  // namespace plimsoll
