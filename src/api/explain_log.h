// After a failure: a log or an error text in the place of a run, and the archive to ask for help with.
#pragma once

#include "api/explain.h"
#include "diagnose/diagnosis.h"
#include "report/help_bundle.h"

namespace plimsoll {

struct ReadLog {
  Diagnosis diagnosis;
  size_t words = 1;  // of the request that are the log; what follows is the run
};

// What a file, a pipe or the words themselves say, when they are a log by their content; none: they describe a run. Throws an Error for
// what is certainly neither: a script, a notebook, a list of packages, a text in which nothing is of a log.
std::optional<ReadLog> read_log(const std::vector<std::string>& words, const Show& show);
ExitCode answer_log(const ExplainRequest& request, ReadLog log, const Show& show);
// Before the answer: whether the archive can be written under that name.
void check_bundle(const ExplainRequest& request);
// The archive, written; none when it is not asked for. `words`: the run.
std::optional<WrittenBundle> save_bundle(const ExplainRequest& request, HelpBundle bundle, const std::vector<std::string>& words);
// Beside the answer: what is in it, as `bundle` of the document and as a note.
void add_bundle(nlohmann::ordered_json& json, const ExplainRequest& request, const std::optional<WrittenBundle>& written);
std::string bundle_note(const ExplainRequest& request, const WrittenBundle& written);

}  // namespace plimsoll
