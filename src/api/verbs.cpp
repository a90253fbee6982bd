#include "api/verbs.h"

#include <nlohmann/json.hpp>

#include "api/ai_toolkit.h"
#include "api/compare.h"
#include "api/doctor.h"
#include "api/estimate.h"
#include "api/explain.h"
#include "api/fix.h"
#include "api/list.h"
#include "api/plan.h"
#include "api/replay.h"
#include "api/report.h"
#include "api/schema.h"
#include "api/schemas/schemas.h"
#include "api/score.h"
#include "job/job_file.h"
#include "util/text.h"

namespace plimsoll {

namespace {

template <auto read>
ExitCode answer_to(const nlohmann::json& request, const Show& show) {
  return answer(read(request), show);
}

std::vector<RequestKey> no_keys() { return {}; }

ExitCode answer_version(const nlohmann::json& request, const Show& show) {
  request_of(request, no_keys());
  show([] { return doc::preformatted(std::string("plimsoll ") + version()); },
       [] {
         return nlohmann::ordered_json{{"schema", 1}, {"command", "version"}, {"version", version()}};
       });
  return ExitCode::ok;
}

}  // namespace

const char* version() { return PLIMSOLL_VERSION; }

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> kVerbs{
      {"estimate", "how much memory a training run needs, what takes it, and when", estimate_request_keys, answer_to<estimate_request>,
       estimate_shape},
      {"compare", "jobs side by side: peaks, what they are made of, verdicts", compare_request_keys, answer_to<compare_request>,
       compare_shape},
      {"explain", "what a configuration will really do; what a log, a memory snapshot or a profile says", explain_request_keys,
       answer_to<explain_request>, explain_shape},
      {"report", "the memory of a run as a document: breakdown, bottlenecks, recommendations, comparison", report_request_keys,
       answer_to<report_request>, report_shape},
      {"plan", "what to change so that a run fits and is fast: found by executing, with what each change saves and costs",
       plan_request_keys, answer_to<search_request>, plan_shape},
      {"fix", "the smallest change with which a run fits, as a difference of your file, read and executed again", fix_request_keys,
       answer_to<fix_request>, fix_shape, kFixExamples},
      {"ai-toolkit", "what the AI Toolkit's set-up proposes for a run, what its document says, and what the run needs when executed",
       ai_toolkit_request_keys, answer_to<ai_toolkit_request>, ai_toolkit_shape},
      {"watch", "a run while it trains: memory, workers, leaks, what was predicted beside what is measured", no_keys, nullptr, watch_shape},
      {"measure", "real training of published systems under a byte budget, beside its simulation", no_keys, nullptr, measure_shape},
      {"score", "predictions beside recorded PyTorch runs, to the byte", score_request_keys, answer_to<score_request>, score_shape},
      {"replay", "a trace under PyTorch's allocator with any settings: reserved, fragmentation, retries", replay_request_keys,
       answer_to<replay_request>, replay_shape},
      {"capture", "what any training script allocates, recorded without a GPU: a trace to ask about at other sizes", no_keys, nullptr,
       nullptr},
      {"run", "run a training command, restarting with smaller micro-batches after an OOM", no_keys, nullptr, run_shape},
      {"list", "what is known: models, presets, optimizers, settings, gpus", list_request_keys, answer_to<list_request>, list_shape},
      {"doctor", "what this machine has, what its drivers say, and what blocks an answer", doctor_request_keys, answer_to<doctor_request>,
       doctor_shape},
      {"schema", "the JSON Schema of a verb's answer, or of its request", schema_request_keys, answer_to<schema_request>, schema_shape},
      {"version", "which version this is", no_keys, answer_version, version_shape},
      {"man", "the manual page of a command", no_keys, nullptr, nullptr},
      {"completion", "what a shell needs to complete commands, options and their values", no_keys, nullptr, nullptr},
  };
  return kVerbs;
}

const Verb& find_verb(const std::string& name) {
  std::vector<std::string> names;
  for (const Verb& v : verbs()) {
    if (name == v.name && !v.answer)
      throw Error("[ask] " + name + " is a program of the command line and answers no question", "plimsoll " + name + " --help",
                  ExitCode::usage);
    if (name == v.name) return v;
    if (v.answer) names.emplace_back(v.name);
  }
  throw Error("[ask] verb '" + printable(name, 60) + "' is not known", did_you_mean(name, names), ExitCode::usage);
}

ExitCode ask(const std::string& verb, const std::string& request, nlohmann::ordered_json& out, const OnProgress& progress) {
  const Verb& v = find_verb(verb);
  Show show = [&](const auto&, const auto& json) { out = json(); };
  show.progress = progress;
  return v.answer(parse_json_text(request, "request"), show);
}

}  // namespace plimsoll
