// What to send when asking for help: the machine, the configuration, the error, the estimate, and a list of what was left out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnose/diagnosis.h"
#include "diagnose/redact.h"
#include "hardware/machine.h"

namespace plimsoll {

struct HelpBundle {
  std::optional<Diagnosis> diagnosis;
  std::optional<Estimate> estimate;
  std::vector<std::pair<std::string, std::string>> configuration;  // files as the user has them: name and text
  std::string command;                                             // as it was typed, if one was
  Machine machine;
};

struct WrittenBundle {
  std::string archive;                // tar
  std::vector<std::string> files;     // in it
  std::vector<std::string> left_out;  // "2 tokens of Hugging Face"
};

WrittenBundle write_bundle(const HelpBundle& bundle, const PrivateNames& names);

}  // namespace plimsoll
