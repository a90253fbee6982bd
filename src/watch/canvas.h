// A screen made of cells, without a terminal: what the view draws on, and tests read. One glyph a cell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

enum class Tone : uint8_t { plain, dim, bold, title, heading, good, warning, bad, other, predicted, selected };

class Canvas {
 public:
  struct Cell {
    std::string glyph = " ";
    Tone tone = Tone::plain;
  };

  Canvas(int width, int height) : width_(width), height_(height), cells_(static_cast<size_t>(width) * static_cast<size_t>(height)) {}
  int width() const { return width_; }
  int height() const { return height_; }

  // UTF-8, one cell a code point; what lies outside is cut off. Returns the column after it.
  int put(int x, int y, std::string_view text, Tone tone = Tone::plain);
  const Cell& at(int x, int y) const { return cells_[static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)]; }
  std::string row(int y) const;  // without blanks at its end
  std::string text() const;      // all rows

 private:
  int width_, height_;
  std::vector<Cell> cells_;
};

}  // namespace plimsoll
