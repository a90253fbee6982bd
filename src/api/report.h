// The memory of a run as a document: what `plimsoll report` does between the question and the answer. The run is a job that is
// simulated, a trace file, or a recorded memory snapshot; the content of a file decides.
#pragma once

#include <string>

#include "api/form.h"
#include "api/request.h"
#include "api/show.h"
#include "systems/phrases.h"

namespace plimsoll {

// By the ending of a file's name; Markdown for any other.
OutputForm document_format_of(const std::string& path);

struct ReportRequest {
  JobRequest job;
  DeviceRequest devices;                  // the first is what the page is about; all are in its table
  std::vector<JobRequest> against;        // other configurations, for Markdown
  std::vector<std::string> against_name;  // as the user wrote them
  Language language = Language::english;  // of Markdown and text
  bool brief = false;                     // without levers, plan and the table of devices
  OutputForm format = OutputForm::markdown;
  std::string measured;  // a recorded snapshot of the same run, or what its device memory was ("35 GB"); empty: nothing is known
  OnProgress progress;   // of bytes read of a snapshot, of changes and candidates executed
};

std::string document(const ReportRequest& request);

// The answer on one picture: a file in the format that the ending of its name says, .svg or .png.
std::string card(const ReportRequest& request, const std::string& path);

// The library's form: the page itself for format json, else {"format", "text"}.
std::vector<RequestKey> report_request_keys();
ReportRequest report_request(const nlohmann::json& request);
ExitCode answer(const ReportRequest& request, const Show& show);

}  // namespace plimsoll
