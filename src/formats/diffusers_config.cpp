// config.json of one network of diffusers, which names its class.

#include "formats/format.h"
namespace plimsoll {

namespace {

Evidence evidence_of_diffusers_config(const Document& d) {
  if (d.kind != Document::Kind::json || !d.value.is_object() || !d.value.contains("_class_name") || !d.value["_class_name"].is_string())
    return {};
  const std::string name = d.value["_class_name"].get<std::string>();  // schedulers and image processors have no weights
  const bool network = name.find("Scheduler") == std::string::npos && name.find("Processor") == std::string::npos;
  return network ? Evidence{"_class_name"} : Evidence{};
}

ModelDescription model_of_diffusers_config(Reader& r) {
  return {{{r.text("_class_name"), r.document.value, ""}}, weights_beside(r.document.folder())};
}

}  // namespace

const Format& diffusers_config_format() {
  static const Format kFormat{"diffusers_config", "config.json of diffusers", Rank::model, evidence_of_diffusers_config,
                              name_model,         model_of_diffusers_config};
  return kFormat;
}

}  // namespace plimsoll
