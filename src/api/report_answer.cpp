// `report` as a verb of the library: its request in JSON, and the document inside an answer.
#include <nlohmann/json.hpp>

#include "api/report.h"
#include "report/schema_versions.h"

namespace plimsoll {

namespace {

// The keys that are not those of the run and its devices.
struct DocumentKeys {
  std::vector<std::string> against;
  std::string language = "en", format = "json", measured;
  bool brief = false;
};

const Keys<DocumentKeys>& document_keys() {
  using R = DocumentKeys;
  static const Keys<R> kKeys{
      {"format", &R::format, "FORMAT", "json (default), html, markdown, text or csv"},
      {"language", &R::language, "LANGUAGE", "en (default) or vi, of Markdown"},
      {"against", &R::against, "JOB", "other configurations for the comparison, of Markdown"},
      {"measured", &R::measured, "FILE|SIZE", "what the run was measured to need: a recorded snapshot, or device memory like 35GiB"},
      {"brief", &R::brief, "", "a page without levers, plan and the table of devices: quicker"}};
  return kKeys;
}

}  // namespace

std::vector<RequestKey> report_request_keys() { return job_keys() + device_keys() + described(document_keys()); }

ReportRequest report_request(const nlohmann::json& request) {
  const Config fields = request_of(request, report_request_keys());
  DocumentKeys keys;
  read_keys(fields, document_keys(), keys);
  ReportRequest out;
  out.job = job_request(fields);
  out.devices = device_request(fields);
  for (const std::string& other : keys.against) {
    out.against.push_back(out.job);
    out.against.back().run = {other};
    out.against_name.push_back(other);
  }
  out.language = parse_language(keys.language);
  out.brief = keys.brief;
  out.measured = keys.measured;
  out.format = parse_form(keys.format, true);
  return out;
}

ExitCode answer(const ReportRequest& request, const Show& show) {
  ReportRequest asked = request;
  asked.progress = show.progress;
  const std::string text = document(asked);
  show([&] { return doc::preformatted(text); },
       [&] {
         if (request.format == OutputForm::json) return nlohmann::ordered_json::parse(text);
         return nlohmann::ordered_json{
             {"schema", kReportSchema}, {"command", "report"}, {"kind", "document"}, {"format", to_string(request.format)}, {"text", text}};
       });
  return ExitCode::ok;
}

}  // namespace plimsoll
