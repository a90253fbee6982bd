#include "supervise/run_state.h"

#include <fmt/format.h>

#include "job/config.h"
#include "util/error.h"

namespace plimsoll {

namespace {

constexpr int64_t kStateSchema = 1;

}  // namespace

nlohmann::ordered_json RunState::json(const std::vector<std::string>& command) const {
  nlohmann::ordered_json out = {{"schema", kStateSchema}, {"command", command},     {"attempt", attempt},
                                {"workers", workers},     {"allocator", allocator}, {"failures", failures},
                                {"best_step", best_step}, {"well_seconds", well},   {"scaler", scaler}};
  if (!before.empty()) out["before"] = before;
  return out;
}

RunState RunState::of(const nlohmann::json& saved) {
  const Config c("state.json", saved);
  RunState s;
  s.attempt = c.integer({"attempt"}, 0);
  s.workers = c.integer({"workers"}, -1);
  s.allocator = c.flag({"allocator"}, false);
  s.failures = c.integer({"failures"}, 0);
  s.best_step = c.integer({"best_step"}, 0);
  s.well = c.number({"well_seconds"}, 0);
  if (const nlohmann::json* scaler = c.find({"scaler"})) s.scaler = *scaler;
  if (const nlohmann::json* before = c.find({"before"}); before && before->is_object())
    for (const auto& [path, time] : before->items())
      if (time.is_number_integer()) s.before[path] = time.get<int64_t>();
  return s;
}

void check_version(const nlohmann::json& saved, const std::string& file) {
  const nlohmann::json schema = saved.value("schema", nlohmann::json());
  if (schema.is_number_integer() && schema.get<int64_t>() > kStateSchema)
    throw Error(
        fmt::format("[run] {} is of a newer version of plimsoll (schema {}, known here: {})", file, schema.get<int64_t>(), kStateSchema),
        "use that version, or give this run a folder of its own: --state DIR");
}

}  // namespace plimsoll
