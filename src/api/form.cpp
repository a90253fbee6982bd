#include "api/form.h"

#include <nlohmann/json.hpp>

#include "job/config.h"
#include "report/renderers.h"
#include "util/text.h"

namespace plimsoll {

Form parse_form(const std::string& name) {
  if (name == "text") return Form::text;
  if (name == "markdown" || name == "md") return Form::markdown;
  if (name == "html") return Form::html;
  if (name == "json") return Form::json;
  throw Error("[format] no format is called '" + printable(name, 40) + "'", did_you_mean(name, {"text", "markdown", "html", "json"}),
              ExitCode::usage);
}

std::string rendered(Form form, const Show::MakeDocument& document, const Show::MakeJson& json, const Style& style) {
  switch (form) {
    case Form::text: return doc::to_text(document(), style);
    case Form::markdown: return doc::to_markdown(document());
    case Form::html: return doc::to_html(document());
    case Form::json: break;
  }
  return dump(json(), 2) + "\n";
}

}  // namespace plimsoll
