// After a failure: a log or an error text in the place of a run, and the archive to ask for help with.
#pragma once

#include "api/explain.h"
#include "diagnose/diagnosis.h"
#include "report/help_bundle.h"

namespace plimsoll {

// What a file or standard input says, when it is a log by its content; none: it describes a run.
std::optional<Diagnosis> read_log(const std::vector<std::string>& words);
ExitCode answer_log(const ExplainRequest& request, Diagnosis diagnosis, const Show& show);
// Nothing when no bundle is asked for. `words`: the run.
// Before the answer: whether the archive can be written under that name.
void check_bundle(const ExplainRequest& request);
void save_bundle(const ExplainRequest& request, HelpBundle bundle, const std::vector<std::string>& words);

}  // namespace plimsoll
