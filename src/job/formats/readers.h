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

// The seed systems' own.
bool matches_ai_toolkit(const Document& document);
void read_ai_toolkit(Reader& reader);

bool matches_fsdm(const Document& document);
void read_fsdm(Reader& reader);

bool matches_gsa(const Document& document);
void read_gsa(Reader& reader);

bool matches_mamba_trainer(const Document& document);
void read_mamba_trainer(Reader& reader);

bool matches_stdiff(const Document& document);
void read_stdiff(Reader& reader);

// Launchers and trainers.
bool matches_accelerate(const Document& document);
void read_accelerate(Reader& reader);

bool matches_deepspeed(const Document& document);
void read_deepspeed(Reader& reader);

bool matches_axolotl(const Document& document);
void read_axolotl(Reader& reader);

bool matches_llama_factory(const Document& document);
void read_llama_factory(Reader& reader);

bool matches_torchtune(const Document& document);
void read_torchtune(Reader& reader);

bool matches_torchtitan(const Document& document);
void read_torchtitan(Reader& reader);

bool matches_kohya(const Document& document);
void read_kohya(Reader& reader);

bool matches_hf_training_arguments(const Document& document);
void read_hf_training_arguments(Reader& reader);

bool matches_job(const Document& document);
void read_job(Reader& reader);

}  // namespace plimsoll
