// Every format's two functions; formats.cpp lists them by name.
#pragma once

#include "job/reader.h"

namespace plimsoll {

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

bool matches_hf_config(const Document& document);
void read_hf_config(Reader& reader);

bool matches_job(const Document& document);
void read_job(Reader& reader);

}  // namespace plimsoll
