// Every format's two functions; formats.cpp lists them by name.
#pragma once

#include "job/reader.h"

namespace plimsoll {

bool matches_hf_config(const Document& document);
void read_hf_config(Reader& reader);

bool matches_job(const Document& document);
void read_job(Reader& reader);

}  // namespace plimsoll
