// The flags of `estimate` that say which machine: its RAM, its /dev/shm, or one pool for device and host.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "estimate/estimate.h"
#include "estimate/verdict.h"
#include "report/style.h"

namespace plimsoll {

struct HostFlags {
  bool host = false;
  bool rule = false;
  std::string memory, shm, system, unified;  // texts of --host-memory, --shm, --os-reserve, --unified
  double margin = 0.1;
  CLI::Option* margin_option = nullptr;

  void add_to(CLI::App& app);
  void check() const;  // flags that would have no effect are errors
  bool wants_host() const { return host || !memory.empty() || !shm.empty(); }
};

// Appends the sections that were asked for to `text` and to `json` (as `host`, `unified`, `rule_of_thumb`). The worst verdict among them;
// unknown when there is none.
Verdict add_host_sections(const HostFlags& flags, const Estimate& e, const Style& style, std::string& text, nlohmann::ordered_json& json);

}  // namespace plimsoll
