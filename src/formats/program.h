// What a training command runs: for the formats that are commands of a trainer's own script.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "formats/reader.h"

namespace plimsoll {

// The name of the program without folders: "train.py"; empty for what is no command.
std::string program_of(const Document& document);
// A command whose program has one of these file names.
bool runs(const Document& document, std::initializer_list<std::string_view> programs);
bool has_flag(const Document& document, std::string_view name);
std::string flag_text(const Document& document, std::string_view name);  // empty: not given
// Whether each flag of the command is one of these.
bool has_only_flags(const Document& document, std::initializer_list<std::string_view> names);

// What the launcher starts; where it counts the GPUs of the machine, those of CUDA_VISIBLE_DEVICES, or one with a finding.
int64_t processes_per_node(Reader& reader);

// PYTORCH_CUDA_ALLOC_CONF, or by its new name PYTORCH_ALLOC_CONF; a finding where two names say two things.
void read_allocator(Reader& reader);
// The same, and marks what is the launcher's own as read.
void read_surroundings(Reader& reader);

// Throws when one of these keys is there and is no mapping.
void require_mappings(const Document& document, std::initializer_list<const char*> keys);

// The value when something is said at `path`, else as the trainer's default.
void set_or_default(Reader& reader, const char* setting, const nlohmann::json& value, std::string_view path, const std::string& trainer);

// "a, b and c"
std::string listed(const std::vector<std::string>& names);

}  // namespace plimsoll
