// The forms of a document (document.h), one file each. All three print the same cells; what came from outside is escaped.
#pragma once

#include <string>

#include "report/document.h"
#include "report/style.h"

namespace plimsoll::doc {

// For a terminal: aligned, wrapped at the style's width; control characters become '?'.
std::string to_text(const Document& document, const Style& style);
// GitHub's dialect.
std::string to_markdown(const Document& document);
// One page that needs nothing else, in the colours of web/report.css.
std::string to_html(const Document& document);

}  // namespace plimsoll::doc
