// Forms in which a log reaches people: as a comment or a quotation, in the body of a JSON answer, broken by a terminal's width. Each gives
// the text as the program wrote it; whether that says more than the text as it is, the reader decides.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct OtherForm {
  std::string text;
  bool mends = false;  // lines that were torn, and numbers in them: where the two differ, this one is right
};

// Of a text that is whole. Empty: it has none of these forms.
std::vector<OtherForm> other_forms(std::string_view text);

}  // namespace plimsoll
