#include "job/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

Config fields_of(const nlohmann::json& value, const std::string& source, const std::vector<std::string>& known,
                 const std::string& example) {
  nlohmann::json fields = value;
  if (value.is_string()) {
    fields = nlohmann::json::object();
    std::istringstream pairs(value.get<std::string>());
    for (std::string pair; std::getline(pairs, pair, ',');) {
      const size_t equals = pair.find('=');
      if (equals == std::string::npos || equals == 0) throw Error(fmt::format("[{}] '{}' is not KEY=VALUE", source, pair), example);
      fields[pair.substr(0, equals)] = parse_scalar(pair.substr(equals + 1));
    }
  }
  if (!fields.is_object()) throw Error(fmt::format("[{}] {} is not a mapping", source, dump(fields).substr(0, 80)), example);
  for (const auto& item : fields.items())
    if (std::find(known.begin(), known.end(), item.key()) == known.end())
      throw Error(fmt::format("[{}] '{}' is not known", source, item.key()), did_you_mean(item.key(), known));
  return Config(source, fields);
}

}  // namespace plimsoll
