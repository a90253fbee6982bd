// Names of models on the Hub, as people have them in their scripts: "meta-llama/Llama-3.1-8B-Instruct", "unsloth/gemma-2-9b-it-bnb-4bit".
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace plimsoll {

struct HubName {
  std::string preset;           // what it is of ours
  nlohmann::json quantization;  // the setting that its suffix stands for; null: none
  std::string method;           // "gptq": weights in a type that is not simulated; empty: none
};

// Only an exact name, once organisation, kind of tuning and quantisation are taken off; nothing is guessed.
std::optional<HubName> find_hub_name(const std::string& text);

// "org/name", as models are called on the Hub; not a path.
bool is_hub_id(const std::string& text);

// The preset of the same family and size that the name holds, whatever else it says ("someone/My-Qwen2.5-7B-SFT-v3": qwen2.5-7b). A guess:
// none for names of models with other parts (vision, speech), or of weights in a type that is not simulated.
std::optional<std::string> preset_in_name(const std::string& text);

}  // namespace plimsoll
