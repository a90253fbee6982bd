// Which machine an estimate is for beside its devices: its RAM, its /dev/shm, or one pool for device and host; and what follows for it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "api/request_keys.h"
#include "estimate/estimate.h"
#include "estimate/host_fit.h"
#include "estimate/rule_of_thumb.h"
#include "estimate/unified_memory.h"
#include "report/document.h"

namespace plimsoll {

struct HostRequest {
  bool host = false;
  bool rule = false;
  std::string memory, shm, system, unified;  // texts of --host-memory, --shm, --os-reserve, --unified
  std::optional<double> margin;              // part of the pool that stays free

  bool wants_host() const { return host || !memory.empty() || !shm.empty(); }
  bool any() const { return wants_host() || rule || !unified.empty(); }
  void check() const;  // what would have no effect is an error
};

// Their keys in a request of the library, and their flags.
const Keys<HostRequest>& host_keys();

// What was asked for of it.
struct HostSections {
  std::optional<HostFit> host;
  std::optional<UnifiedEstimate> unified;
  std::optional<RuleOfThumb> rule;

  Verdict verdict() const;  // the worst; unknown when there is none
};

HostSections host_sections(const HostRequest& request, const Estimate& e);
doc::Blocks host_blocks(const HostSections& s, const Estimate& e);
void add_host_sections(nlohmann::ordered_json& json, const HostSections& s);  // as `host`, `unified`, `rule_of_thumb`

}  // namespace plimsoll
