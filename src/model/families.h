// Every architecture's builder; registry.cpp lists them by name.
#pragma once

#include "job/config.h"
#include "nn/model.h"

namespace plimsoll {

std::unique_ptr<Model> make_gpt2(Build& build, const Config& config);
std::unique_ptr<Model> make_llama(Build& build, const Config& config);
std::unique_ptr<Model> make_bert(Build& build, const Config& config);
std::unique_ptr<Model> make_bert_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_roberta(Build& build, const Config& config);
std::unique_ptr<Model> make_roberta_classifier(Build& build, const Config& config);
std::unique_ptr<Model> make_t5(Build& build, const Config& config);
std::unique_ptr<Model> make_vit(Build& build, const Config& config);
std::unique_ptr<Model> make_dinov2(Build& build, const Config& config);

}  // namespace plimsoll
