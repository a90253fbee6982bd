// Every format's functions; formats.cpp lists them by name.
#pragma once

#include "formats/model_description.h"
#include "formats/reader.h"
#include "formats/settings_encoder.h"

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
const SettingsEncoder& writes_peft_adapter();

bool matches_peft_weights(const Document& document);
void read_peft_weights(Reader& reader);

// The seed systems' own.
bool matches_ai_toolkit(const Document& document);
void read_ai_toolkit(Reader& reader);
const SettingsEncoder& writes_ai_toolkit();

bool matches_fsdm(const Document& document);
void read_fsdm(Reader& reader);
const SettingsEncoder& writes_fsdm();

bool matches_gsa(const Document& document);
void read_gsa(Reader& reader);
const SettingsEncoder& writes_gsa();

bool matches_mamba_trainer(const Document& document);
void read_mamba_trainer(Reader& reader);
const SettingsEncoder& writes_mamba_trainer();

bool matches_stdiff(const Document& document);
void read_stdiff(Reader& reader);
const SettingsEncoder& writes_stdiff();

// Launchers and trainers.
bool matches_accelerate(const Document& document);
void read_accelerate(Reader& reader);
const SettingsEncoder& writes_accelerate();

bool matches_deepspeed(const Document& document);
void read_deepspeed(Reader& reader);
const SettingsEncoder& writes_deepspeed();

bool matches_axolotl(const Document& document);
void read_axolotl(Reader& reader);
const SettingsEncoder& writes_axolotl();

bool matches_llama_factory(const Document& document);
void read_llama_factory(Reader& reader);
const SettingsEncoder& writes_llama_factory();

bool matches_torchtune(const Document& document);
void read_torchtune(Reader& reader);
const SettingsEncoder& writes_torchtune();

bool matches_torchtitan(const Document& document);
void read_torchtitan(Reader& reader);
const SettingsEncoder& writes_torchtitan();

bool matches_kohya(const Document& document);
void read_kohya(Reader& reader);
const SettingsEncoder& writes_kohya();

bool matches_hf_training_arguments(const Document& document);
void read_hf_training_arguments(Reader& reader);
const SettingsEncoder& writes_hf_training_arguments();

bool matches_job(const Document& document);
void read_job(Reader& reader);
const SettingsEncoder& writes_job();

}  // namespace plimsoll
