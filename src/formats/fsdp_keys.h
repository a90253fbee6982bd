// How accelerate's files, TrainingArguments and those who build on them (axolotl, LLaMA-Factory) say FSDP: accelerate's plugin has one set
// of keys, which may be written with "fsdp_" before them or not, and picks FullyShardedDataParallel (version 1) or fully_shard (version 2).
#pragma once

#include <string>

#include "formats/reader.h"

namespace plimsoll {

// Sets fsdp1 or fsdp from the mapping at `section`; `words` are those of TrainingArguments.fsdp ("full_shard auto_wrap offload"), which
// win. `path` is what switched it on. Without several processes, a finding.
void read_fsdp_keys(Reader& r, std::string_view path, const std::string& section, const std::string& words = "");

}  // namespace plimsoll
