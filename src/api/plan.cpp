#include "api/plan.h"

#include "util/text.h"

namespace plimsoll {

void check_rules(const std::string& rules) {
  if (rules.empty())
    throw Error("[plan] whose rules are asked for is not said",
                "--rules ai-toolkit; for a plan of your own run: plimsoll estimate RUN --what-if", ExitCode::usage);
  if (rules != "ai-toolkit")
    throw Error("[plan] rules '" + rules + "' are not known", did_you_mean(rules, {"ai-toolkit"}), ExitCode::usage);
}

ExitCode answer_plan(const nlohmann::json& request, const Show& show) {
  // A request without rules is answered by the search, once there is one.
  check_rules(request.is_object() ? Config("request", request).text({"rules"}, "") : "");
  return answer(ai_toolkit_request(request), show);
}

}  // namespace plimsoll
