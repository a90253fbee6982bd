// The models of published measurements: from a public name and a list of sizes to a family of the registry and the configuration
// its own library would write.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace plimsoll {

struct PublishedModel {
  std::string family;       // empty: not known
  std::string unsupported;  // why not
};

// Fills `config`. `row` has the model's name, arch and config, and the software it ran on.
PublishedModel published_model(const nlohmann::json& row, nlohmann::json& config);

}  // namespace plimsoll
