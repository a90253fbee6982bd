// Every architecture's builder; registry.cpp lists them by name.
#pragma once

#include "job/config.h"
#include "nn/model.h"

namespace plimsoll {

std::unique_ptr<Model> make_gemma2(Build& build, const Config& config);
std::unique_ptr<Model> make_gemma2_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt2(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt2_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt_neox(Build& build, const Config& config);
std::unique_ptr<Model> make_gpt_neox_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_llama(Build& build, const Config& config);
std::unique_ptr<Model> make_llama_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_mistral(Build& build, const Config& config);
std::unique_ptr<Model> make_mistral_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_opt(Build& build, const Config& config);
std::unique_ptr<Model> make_opt_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_phi3(Build& build, const Config& config);
std::unique_ptr<Model> make_phi3_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen2(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen2_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen3(Build& build, const Config& config);
std::unique_ptr<Model> make_qwen3_classifier(Build& build, const Config& config);

}  // namespace plimsoll
