// The text encoders that models of images have beside them.
#pragma once

#include "nn/text_encoder.h"

namespace plimsoll {

std::unique_ptr<TextEncoder> make_clip_text_model(Module& parent, std::string_view name, const Config& config);
std::unique_ptr<TextEncoder> make_clip_text_model_with_projection(Module& parent, std::string_view name, const Config& config);
std::unique_ptr<TextEncoder> make_gemma2_text_model(Module& parent, std::string_view name, const Config& config);
std::unique_ptr<TextEncoder> make_llama_text_model(Module& parent, std::string_view name, const Config& config);
std::unique_ptr<TextEncoder> make_qwen2_text_model(Module& parent, std::string_view name, const Config& config);
std::unique_ptr<TextEncoder> make_qwen2_5_vl_text_model(Module& parent, std::string_view name, const Config& config);
std::unique_ptr<TextEncoder> make_t5_encoder_model(Module& parent, std::string_view name, const Config& config);

std::unique_ptr<Model> make_qwen2_5_vl_text(Build& build, const Config& config);

}  // namespace plimsoll
