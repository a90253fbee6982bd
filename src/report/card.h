// The answer on one picture, to be shared: what is run, whether it fits, and what fills the memory. 1200 x 630 points, the size that
// previews of links have.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace plimsoll {

// `page`: the data of a page (page.h), with or without its details.
std::string card_svg(const nlohmann::ordered_json& page);
std::string card_png(const nlohmann::ordered_json& page);

}  // namespace plimsoll
