#include "api/verbs.h"

#include "api/compare.h"
#include "api/estimate.h"
#include "api/explain.h"
#include "api/list.h"
#include "api/plan.h"
#include "api/replay.h"
#include "job/job_file.h"
#include "util/text.h"

namespace plimsoll {

namespace {

template <auto read>
ExitCode answer_to(const nlohmann::json& request, const Show& show) {
  return answer(read(request), show);
}

ExitCode answer_version(const nlohmann::json& request, const Show& show) {
  request_of(request, {});
  show([](const Style&) { return std::string("plimsoll ") + version() + "\n"; },
       [] {
         return nlohmann::ordered_json{{"schema", 1}, {"command", "version"}, {"version", version()}};
       });
  return ExitCode::ok;
}

}  // namespace

const char* version() { return PLIMSOLL_VERSION; }

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> kVerbs{
      {"estimate", answer_to<estimate_request>},
      {"plan", answer_plan},
      {"compare", answer_to<compare_request>},
      {"explain", answer_to<explain_request>},
      {"replay", answer_to<replay_request>},
      {"list", answer_to<list_request>},
      {"version", answer_version},
  };
  return kVerbs;
}

ExitCode ask(const std::string& verb, const std::string& request, nlohmann::ordered_json& out) {
  std::vector<std::string> names;
  for (const Verb& v : verbs()) {
    names.emplace_back(v.name);
    if (verb != v.name) continue;
    return v.answer(parse_json_text(request, "request"), [&](const auto&, const auto& json) { out = json(); });
  }
  throw Error("[ask] verb '" + verb + "' is not known", did_you_mean(verb, names), ExitCode::usage);
}

}  // namespace plimsoll
