// Plimsoll's own job file: a mapping whose keys are settings.
#include "job/formats/readers.h"
#include "job/settings.h"

namespace plimsoll {

bool matches_job(const Document& d) {
  if (!d.value.is_object() || !d.value.contains("model") || !d.value["model"].is_string()) return false;
  for (const auto& item : d.value.items()) {
    bool known = false;
    for (const Setting& s : job_settings()) known = known || item.key() == s.key;
    if (!known) return false;
  }
  return true;
}

void read_job(Reader& r) {
  for (const auto& item : r.document.value.items()) apply_setting(r.job, item.key(), item.value(), r.document.name);
}

}  // namespace plimsoll
