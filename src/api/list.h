// What is known, row by row: what `plimsoll list` and plimsoll_list() do between the question and the answer.
#pragma once

#include "api/request.h"
#include "api/show.h"

namespace plimsoll {

struct ListRequest {
  std::string what;  // models, presets, ...
};

// The first column of a listing: names of presets, ids of devices.
std::vector<std::string> listed_names(const std::string& what);
std::vector<RequestKey> list_request_keys();
ListRequest list_request(const nlohmann::json& request);
ExitCode answer(const ListRequest& request, const Show& show);

}  // namespace plimsoll
