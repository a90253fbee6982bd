// Every format's two functions; formats.cpp lists them by name.
#pragma once

#include "job/model_description.h"
#include "job/reader.h"

namespace plimsoll {

// Models: read by name_model (job/model_description.h).
bool matches_hf_config(const Document& document);
ModelDescription model_of_hf_config(Reader& reader);

bool matches_diffusers_config(const Document& document);
ModelDescription model_of_diffusers_config(Reader& reader);

bool matches_model_index(const Document& document);
ModelDescription model_of_model_index(Reader& reader);

bool matches_gguf(const Document& document);
ModelDescription model_of_gguf(Reader& reader);

bool matches_safetensors(const Document& document);
void read_safetensors(Reader& reader);
ModelDescription model_of_safetensors(Reader& reader);

bool matches_safetensors_index(const Document& document);

bool matches_peft_adapter(const Document& document);
void read_peft_adapter(Reader& reader);

bool matches_peft_weights(const Document& document);
void read_peft_weights(Reader& reader);

bool matches_job(const Document& document);
void read_job(Reader& reader);

}  // namespace plimsoll
