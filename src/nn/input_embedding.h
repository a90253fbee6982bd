// Which modules are what transformers' get_input_embeddings() returns.
#pragma once

#include <string_view>

namespace plimsoll {

class Module;

bool is_input_embedding(std::string_view name);  // as the models of the registry call it; positions and token types are others
bool is_input_embedding(const Module& module);   // one that exists

}  // namespace plimsoll
