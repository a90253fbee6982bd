#include "model/family.h"

#include <nlohmann/json.hpp>

namespace plimsoll {

std::vector<ModelEntry> torchvision_models(TorchvisionBuilder make, const std::vector<TorchvisionVariant>& variants) {
  std::vector<ModelEntry> models;
  for (const TorchvisionVariant& v : variants)
    models.push_back({v.name, {}, InputKind::image, v.side, [make, name = std::string(v.name)](Build& build, const Config& config) {
                        return make(build, config, name);
                      }});
  return models;
}

ModelEntry copy_of(ModelEntry entry, const char* defaults, const char* forced) {
  entry.make = [make = entry.make, defaults, forced](Build& build, const Config& config) {
    nlohmann::json values = nlohmann::json::parse(defaults);
    values.update(config.values());
    values.update(nlohmann::json::parse(forced));
    return make(build, Config(config.source(), values));
  };
  return entry;
}

}  // namespace plimsoll
