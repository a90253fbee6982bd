// What a training command runs: for the formats that are commands of a trainer's own script.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "job/reader.h"

namespace plimsoll {

// A command whose program has one of these file names.
bool runs(const Document& document, std::initializer_list<std::string_view> programs);
bool has_flag(const Document& document, std::string_view name);
std::string flag_text(const Document& document, std::string_view name);  // empty: not given
// Whether each flag of the command is one of these.
bool has_only_flags(const Document& document, std::initializer_list<std::string_view> names);
int64_t world_of(const Document& document);  // processes on all nodes

// PYTORCH_ALLOC_CONF, or by its old name PYTORCH_CUDA_ALLOC_CONF; and marks what is the launcher's own as read.
void read_surroundings(Reader& reader);

// Throws when one of these keys is there and is no mapping.
void require_mappings(const Document& document, std::initializer_list<const char*> keys);

// The value when something is said at `path`, else as the trainer's default.
void set_or_default(Reader& reader, const char* setting, const nlohmann::json& value, std::string_view path, const std::string& trainer);

// "a, b and c"
std::string listed(const std::vector<std::string>& names);

}  // namespace plimsoll
