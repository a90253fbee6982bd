// After a failure: a log or an error text in the place of a run, and the archive to ask for help with.
#pragma once

#include "api/explain.h"
#include "diagnose/diagnosis.h"
#include "report/help_bundle.h"

namespace plimsoll {

// What a file or standard input says, when it is a log by its content; none: it describes a run.
std::optional<Diagnosis> read_log(const std::vector<std::string>& words);
ExitCode answer_log(const ExplainRequest& request, Diagnosis diagnosis, const Show& show);
// Before the answer: whether the archive can be written under that name.
void check_bundle(const ExplainRequest& request);
// The archive, written; none when it is not asked for. `words`: the run.
std::optional<WrittenBundle> save_bundle(const ExplainRequest& request, HelpBundle bundle, const std::vector<std::string>& words);
// Beside the answer: what is in it, as `bundle` of the document and as a note.
void add_bundle(nlohmann::ordered_json& json, const ExplainRequest& request, const std::optional<WrittenBundle>& written);
std::string bundle_note(const ExplainRequest& request, const WrittenBundle& written);

}  // namespace plimsoll
