// Whether a wording is an error's message or a mention of one.
#include <algorithm>
#include <array>
#include <cctype>

#include "diagnose/symptom.h"
#include "diagnose/words.h"
#include "util/text.h"

namespace plimsoll {

namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }
bool is_quote(char c) { return c == '"' || c == '\'' || c == '`'; }

// Lines of a program, of its traceback's source, or of a comment.
bool is_code(std::string_view line) {
  line = trimmed(line);
  for (const std::string_view start :
       {"#",     "//",     "/*",      "raise ",   "except ",     "if ",        "elif ",     "assert ",  "print(",   "return ",
        "def ",  "class ", "import ", "from ",    "logger.",     "logging.",   "log.error", "log.info", "log.warn", "warnings.warn",
        "echo ", "throw ", "catch ",  "AT_ERROR", "TORCH_CHECK", "self.assert"})
    if (line.starts_with(start)) return true;
  return line.find("in str(") != std::string_view::npos || line.find("assertRaises") != std::string_view::npos ||
         line.find("pytest.raises") != std::string_view::npos;
}

// The message is a string in quotes inside a sentence: no value of a key, no repr of an exception, no line that is quoted as a whole.
bool is_quotation(std::string_view before) {
  if (before.empty() || !is_quote(before.back())) return false;
  const std::string_view outside = trimmed(before.substr(0, before.size() - 1));
  if (outside.find("raise ") != std::string_view::npos) return true;
  const bool value = outside.empty() || outside.ends_with(':') || outside.ends_with('=');
  return !value && !outside.ends_with("Error(") && !outside.ends_with("Exception(");
}

// Drops the names of exceptions and of C++'s what() at the end: "torch.OutOfMemoryError: ", "what():  ".
std::string_view without_class(std::string_view before, bool& dropped) {
  for (;;) {
    const std::string_view t = trimmed(before);
    if (t.ends_with("what():")) {
      before = t.substr(0, t.size() - 7);
      dropped = true;
      continue;
    }
    if (!t.ends_with(':')) return before;
    size_t begin = t.size() - 1;
    while (begin > 0 && is_name(t[begin - 1])) --begin;
    const std::string_view name = t.substr(begin, t.size() - 1 - begin);
    if (!name.ends_with("Error") && !name.ends_with("Exception") && !name.ends_with("error")) return before;
    dropped = true;
    before = before.substr(0, static_cast<size_t>(t.data() - before.data()) + begin);
  }
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> words) {
  const std::string padded = " " + lower(text) + " ";
  return std::any_of(words.begin(), words.end(), [&](std::string_view w) { return padded.find(w) != std::string::npos; });
}

// The sentence is advice, or an example.
bool is_advice(std::string_view before) {
  return has_any(before, {" if you ", " when you ", " whenever you ", " if it says ", " in case of ", " to avoid ", " e.g", " such as ",
                          " for example", " instead of ", " error like ", " errors like ", " message like ", " looks like "});
}

// A condition or a negation: the sentence is about such errors.
bool is_prose(std::string_view before) {
  return has_any(before, {" if ",      " when ",   " whenever ",   " avoid",    " may ",      " might ",   " can ",    " e.g",
                          " such as ", " example", " no ",         " without ", " not ",      " never ",   " how to ", " fix",
                          " tip",      " hint",    " handle ",     " handles ", " handling ", " catch",    " prevent", " would ",
                          " should ",  " like ",   " instead of ", " simulat",  " unless ",   " in case ", " see "});
}

}  // namespace

bool ends_sentence(std::string_view after) {
  if (after.empty()) return true;
  const char c = after[0];
  if (std::string_view(".,;:()[]{}'\"`!\n\r|\\").find(c) != std::string_view::npos) return true;
  after = trimmed(after.substr(0, after.find('\n')));
  if (after.empty()) return true;
  for (const std::string_view word :
       {"at ", "in /", "in function", "CUDA kernel", "Search for",       "Compile with", "For debug", "while ", "on ",       "(", "[",
        "-",   "|",    ";",           "/",           "Exception raised", "to allocate",  "Aborted",   "when ",  "terminate", "*"})
    if (after.starts_with(word)) return true;
  return c == 'S' && after.starts_with("Search");
}

bool is_complete_message(const Place& place) {
  if (is_code(place.line())) return false;
  bool named = false;
  const std::string_view before = without_class(place.before(), named);
  if (is_quotation(before)) return false;
  if (before.find("RESOURCE_EXHAUSTED") != std::string_view::npos) return true;
  // With an exception's name only what announces an example is one: "if you see RuntimeError: ...".
  return named ? !has_any(before, {" if you see ", " if you get ", " in case of ", " error like ", " errors like "}) : !is_advice(before);
}

bool is_message(const Place& place) {
  if (!is_complete_message(place)) return false;
  bool named = false;
  const std::string_view before = trimmed(without_class(place.before(), named));
  if (before.empty()) return true;
  if (!named && (is_prose(before) || is_quote(before.back()))) return false;
  const auto last = static_cast<unsigned char>(before.back());
  const bool decoration = std::string_view(":]|>-)*('\"").find(static_cast<char>(last)) != std::string_view::npos || last >= 0x80;
  return named || decoration || before == "E" || before == "F";
}

}  // namespace plimsoll
