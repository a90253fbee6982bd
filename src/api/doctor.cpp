#include "api/doctor.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "hardware/detect.h"
#include "report/hardware_report.h"

namespace plimsoll {

namespace {

Surroundings surroundings_of(const DoctorRequest& request) {
  Surroundings s = Surroundings::here();
  std::error_code error;
  if (!request.root.empty() && !std::filesystem::is_directory(request.root, error))
    throw Error("[doctor] --root '" + request.root + "' is not a folder", "give the folder that holds proc and sys, e.g. --root /host",
                ExitCode::usage);
  s.root = request.root;
  if (!request.nvml.empty()) s.nvml = {request.nvml};
  if (!request.rocm_smi.empty()) s.rocm_smi = {request.rocm_smi};
  return s;
}

bool usable(const DetectedDevice& d) { return d.usable && d.visible != Visible::no; }

}  // namespace

const Keys<DoctorRequest>& doctor_keys() {
  using R = DoctorRequest;
  static const Keys<R> kKeys{{"root", &R::root, "DIR", "read /proc, /sys and /dev below this folder"},
                             {"nvml", &R::nvml, "FILE", "NVIDIA's management library (default libnvidia-ml.so.1)"},
                             {"rocm_smi", &R::rocm_smi, "FILE", "AMD's management library (default librocm_smi64.so)"}};
  return kKeys;
}

std::vector<RequestKey> doctor_request_keys() { return described(doctor_keys()); }

DoctorRequest doctor_request(const nlohmann::json& request) {
  DoctorRequest out;
  read_keys(request_of(request, doctor_request_keys()), doctor_keys(), out);
  return out;
}

ExitCode answer(const DoctorRequest& request, const Show& show) {
  const Machine m = detect(surroundings_of(request));
  show([&] { return machine_document(m); }, [&] { return machine_json(m); });
  return std::any_of(m.devices.begin(), m.devices.end(), usable) ? ExitCode::ok : ExitCode::no_hardware;
}

}  // namespace plimsoll
