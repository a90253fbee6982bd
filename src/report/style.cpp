#include "report/style.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "util/terminal.h"

namespace plimsoll {

namespace {
bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value && *value;
}

bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
  }
  return false;
}
}  // namespace

Style Style::detect(const std::string& when, bool ascii) {
  Style s;
  const char* term = std::getenv("TERM");
  const bool dumb = term && std::strcmp(term, "dumb") == 0;
  s.colour = when == "always" || (when == "auto" && (is_set("CLICOLOR_FORCE") || (isatty(STDOUT_FILENO) && !is_set("NO_COLOR") && !dumb)));
  s.unicode = !ascii && utf8_locale();
  s.width = std::clamp<size_t>(terminal_columns(s.width), 80, s.width);
  return s;
}

std::string Style::paint(const char* code, const std::string& text) const {
  return colour ? std::string("\033[") + code + "m" + text + "\033[0m" : text;
}

std::string Style::ink(int code, const std::string& text) const { return paint(("38;5;" + std::to_string(code)).c_str(), text); }

std::string Style::bar(double share, int width) const {
  const int eighths = std::clamp(static_cast<int>(share * width * 8 + 0.5), 0, width * 8);
  std::string out;
  if (!unicode) return std::string(static_cast<size_t>((eighths + 4) / 8), '#');
  for (int i = 0; i < eighths / 8; ++i) out += "█";
  static const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  return out + kParts[eighths % 8];
}

std::string Style::level(double share) const {
  static const char* kUnicode[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const char* kAscii[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  const int i = std::clamp(static_cast<int>(share * 8), 0, 7);
  return unicode ? kUnicode[i] : kAscii[i];
}

}  // namespace plimsoll
