// Every model that can be simulated: by family, by the class and model_type names of its Python reference, and by preset.
#pragma once

#include "model/family.h"

namespace plimsoll {

const std::vector<const Family*>& model_families();
const Family* find_family(const std::string& name);  // null when unknown
// Names of the families of which that is true, for errors.
std::vector<std::string> families_where(const std::function<bool(const Family&)>& holds);
const std::vector<ModelEntry>& model_registry();                 // the models of all families
const ModelEntry* find_model(const std::string& name_or_class);  // null when unknown

}  // namespace plimsoll
