// What this machine has: what `plimsoll doctor` does between the question and the answer.
#pragma once

#include <string>

#include "api/request_keys.h"
#include "api/show.h"

namespace plimsoll {

struct DoctorRequest {
  std::string root, nvml, rocm_smi;  // empty: the usual ones
};

const Keys<DoctorRequest>& doctor_keys();
std::vector<RequestKey> doctor_request_keys();
DoctorRequest doctor_request(const nlohmann::json& request);
// 6 when no device with a known size is visible.
ExitCode answer(const DoctorRequest& request, const Show& show);

}  // namespace plimsoll
