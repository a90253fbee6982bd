// The forms of an answer: one document for people in three renderings, and JSON for programs. Every verb has all of them.
#pragma once

#include "api/show.h"
#include "report/style.h"

namespace plimsoll {

enum class OutputForm : uint8_t { text, markdown, html, json };
constexpr const char* kForms = "text, markdown, html or json";
OutputForm parse_form(const std::string& name);  // also "md"

// Only what the form needs is made. `style` is of text.
std::string rendered(OutputForm form, const Show::MakeDocument& document, const Show::MakeJson& json, const Style& style);

}  // namespace plimsoll
