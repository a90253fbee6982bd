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

}  // namespace plimsoll
