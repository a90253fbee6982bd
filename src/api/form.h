// The forms of an answer: one document for people in three renderings, and JSON for programs. Every verb has these; `report` has its
// table as CSV as well.
#pragma once

#include "api/show.h"
#include "report/style.h"

namespace plimsoll {

enum class OutputForm : uint8_t { text, markdown, html, json, csv };
constexpr const char* kForms = "text, markdown, html or json";
OutputForm parse_form(const std::string& name, bool or_csv = false);  // also "md"
const char* to_string(OutputForm form);

// Only what the form needs is made. `style` is of text.
std::string rendered(OutputForm form, const Show::MakeDocument& document, const Show::MakeJson& json, const Style& style);

}  // namespace plimsoll
