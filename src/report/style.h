// How text output looks: colour, Unicode and width, decided once from the terminal, the environment and the flags.
#pragma once

#include <cstddef>
#include <string>

namespace plimsoll {

struct Style {
  bool colour = false;
  bool unicode = true;
  size_t width = 120;  // columns of a line, where the data allows it

  // when: "auto", "always" or "never". Auto: a terminal, NO_COLOR unset, TERM not dumb (CLICOLOR_FORCE overrides).
  // A terminal narrower than 120 columns sets the width, but not below 80.
  static Style detect(const std::string& when, bool ascii);

  std::string bold(const std::string& text) const { return paint("1", text); }
  std::string dim(const std::string& text) const { return paint("2", text); }
  std::string red(const std::string& text) const { return paint("31", text); }
  std::string green(const std::string& text) const { return paint("32", text); }
  std::string yellow(const std::string& text) const { return paint("33", text); }
  std::string ink(int code, const std::string& text) const;  // one of a terminal's 256 colours
  std::string bar(double share, int width) const;            // share 0..1
  std::string level(double share) const;                     // one character of a curve

 private:
  std::string paint(const char* code, const std::string& text) const;
};

}  // namespace plimsoll
