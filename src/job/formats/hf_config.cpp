// config.json of a transformers model: model_type and architectures name the class; the model layer reads the rest.
#include "job/formats/readers.h"
#include "job/settings.h"

namespace plimsoll {

bool matches_hf_config(const Document& d) {
  return d.kind == Document::Kind::json && d.value.is_object() && (d.value.contains("model_type") || d.value.contains("architectures"));
}

void read_hf_config(Reader& r) { apply_setting(r.job, "model", r.document.path, r.document.name); }

}  // namespace plimsoll
