#include <algorithm>

#include "diagnose/symptom.h"

namespace plimsoll {

const char* to_string(Memory memory) {
  switch (memory) {
    case Memory::gpu: return "gpu";
    case Memory::host: return "host";
    case Memory::tpu: return "tpu";
    case Memory::mps: return "mps";
    case Memory::shm: return "shm";
    case Memory::none: return "none";
  }
  return "";
}

const char* to_string(Certainty certainty) {
  switch (certainty) {
    case Certainty::certain: return "certain";
    case Certainty::likely: return "likely";
    case Certainty::possible: return "possible";
  }
  return "";
}

const std::vector<SymptomReader>& symptom_readers() {
  static const std::vector<SymptomReader> kReaders = [] {
    std::vector<SymptomReader> all;
    for (const auto& list : {pytorch_readers(), cuda_readers(), xla_readers(), tensorflow_readers(), host_readers(), python_readers(),
                             serving_readers(), runtime_readers(), framework_readers(), job_readers()})
      all.insert(all.end(), list.begin(), list.end());
    return all;
  }();
  return kReaders;
}

}  // namespace plimsoll
