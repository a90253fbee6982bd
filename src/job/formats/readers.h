// Every format's two functions; formats.cpp lists them by name.
#pragma once

#include "job/reader.h"

namespace plimsoll {

bool matches_hf_config(const Document& document);
void read_hf_config(Reader& reader);

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
