#include "api/form.h"

#include <nlohmann/json.hpp>

#include "job/config.h"
#include "report/renderers.h"
#include "util/text.h"

namespace plimsoll {

OutputForm parse_form(const std::string& name) {
  if (name == "text") return OutputForm::text;
  if (name == "markdown" || name == "md") return OutputForm::markdown;
  if (name == "html") return OutputForm::html;
  if (name == "json") return OutputForm::json;
  throw Error("[format] no format is called '" + printable(name, 40) + "'", did_you_mean(name, {"text", "markdown", "html", "json"}),
              ExitCode::usage);
}

std::string rendered(OutputForm form, const Show::MakeDocument& document, const Show::MakeJson& json, const Style& style) {
  switch (form) {
    case OutputForm::text: return doc::to_text(document(), style);
    case OutputForm::markdown: return doc::to_markdown(document());
    case OutputForm::html: return doc::to_html(document());
    case OutputForm::json: break;
  }
  return dump(json(), 2) + "\n";
}

}  // namespace plimsoll
