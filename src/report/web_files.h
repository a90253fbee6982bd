// The files of web/, part of the binary.
#pragma once

#include <string_view>

namespace plimsoll {

std::string_view web_report_html();
std::string_view web_report_css();
std::string_view web_report_js();
std::string_view web_document_css();

}  // namespace plimsoll
