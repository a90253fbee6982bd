#include "api/form.h"

#include <nlohmann/json.hpp>

#include "job/config.h"
#include "report/renderers.h"
#include "util/text.h"

namespace plimsoll {

OutputForm parse_form(const std::string& name, bool or_csv) {
  std::vector<std::string> known;
  for (const OutputForm form : {OutputForm::text, OutputForm::markdown, OutputForm::html, OutputForm::json, OutputForm::csv}) {
    if (form == OutputForm::csv && !or_csv) continue;
    if (name == to_string(form)) return form;
    known.emplace_back(to_string(form));
  }
  if (name == "md") return OutputForm::markdown;
  throw Error("[format] no format is called '" + printable(name, 40) + "'", did_you_mean(name, known), ExitCode::usage);
}

const char* to_string(OutputForm form) {
  switch (form) {
    case OutputForm::text: return "text";
    case OutputForm::markdown: return "markdown";
    case OutputForm::html: return "html";
    case OutputForm::json: return "json";
    case OutputForm::csv: return "csv";
  }
  return "";
}

std::string rendered(OutputForm form, const Show::MakeDocument& document, const Show::MakeJson& json, const Style& style) {
  switch (form) {
    case OutputForm::text: return doc::to_text(document(), style);
    case OutputForm::markdown: return doc::to_markdown(document());
    case OutputForm::html: return doc::to_html(document());
    case OutputForm::json:
    case OutputForm::csv: break;  // a report's alone
  }
  return dump(json(), 2) + "\n";
}

}  // namespace plimsoll
