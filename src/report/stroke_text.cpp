#include "report/stroke_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace plimsoll {

namespace {

constexpr int kGlyphRows = 9, kCapitalRows = 7, kGlyphsOfLine = 19, kFirstGlyph = ' ', kLastGlyph = '~';

// From the blank to the tilde as in ASCII, 19 of them side by side; the last two rows are below the baseline.
// clang-format off
constexpr const char* kAlphabet[][kGlyphRows] = {
    {"..... ..#.. .#.#. .#.#. ..#.. ##... .##.. ..#.. ...#. .#... ..... ..... ..... ..... ..... ....# .###. ..#.. .###.",
     "..... ..#.. .#.#. .#.#. .#### ##..# #..#. ..#.. ..#.. ..#.. ..#.. ..#.. ..... ..... ..... ....# #...# .##.. #...#",
     "..... ..#.. ..... ##### #.#.. ...#. #.#.. ..... .#... ...#. #.#.# ..#.. ..... ..... ..... ...#. #...# ..#.. ....#",
     "..... ..#.. ..... .#.#. .###. ..#.. .#... ..... .#... ...#. .###. ##### ..... ####. ..... ..#.. #...# ..#.. ...#.",
     "..... ..#.. ..... ##### ..#.# .#... #.#.# ..... .#... ...#. #.#.# ..#.. ..... ..... ..... .#... #...# ..#.. ..#..",
     "..... ..... ..... .#.#. ####. #..## #..#. ..... ..#.. ..#.. ..#.. ..#.. ..... ..... ..... #.... #...# ..#.. .#...",
     "..... ..#.. ..... .#.#. ..#.. ...## .##.# ..... ...#. .#... ..... ..... ..#.. ..... ..#.. #.... .###. .###. #####",
     "..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..#.. ..... ..... ..... ..... ..... .....",
     "..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .#... ..... ..... ..... ..... ..... ....."},
    {".###. ...#. ##### ..##. ##### .###. .###. ..... ..... ..... ..... ..... .###. .###. ..#.. ####. .###. ####. #####",
     "#...# ..##. #.... .#... ....# #...# #...# ..... ..... ...#. ..... .#... #...# #...# .#.#. #...# #...# #...# #....",
     "....# .#.#. ####. #.... ...#. #...# #...# ..#.. ..#.. ..#.. ####. ..#.. ....# #.### .#.#. #...# #.... #...# #....",
     "..##. #..#. ....# ####. ...#. .###. .#### ..... ..... .#... ..... ...#. ...#. #.#.# #...# ####. #.... #...# ####.",
     "....# ##### ....# #...# ..#.. #...# ....# ..... ..... ..#.. ####. ..#.. ..#.. #.##. ##### #...# #.... #...# #....",
     "#...# ...#. #...# #...# ..#.. #...# ...#. ..... ..... ...#. ..... .#... ..... #.... #...# #...# #...# #...# #....",
     ".###. ...#. .###. .###. ..#.. .###. .##.. ..#.. ..#.. ..... ..... ..... ..#.. .###. #...# ####. .###. ####. #####",
     "..... ..... ..... ..... ..... ..... ..... ..... ..#.. ..... ..... ..... ..... ..... ..... ..... ..... ..... .....",
     "..... ..... ..... ..... ..... ..... ..... ..... .#... ..... ..... ..... ..... ..... ..... ..... ..... ..... ....."},
    {"##### .###. #...# .###. ...## #...# #.... #...# #...# .###. ####. .###. ####. .###. ##### #...# #...# #...# #...#",
     "#.... #...# #...# ..#.. ....# #..#. #.... ##.## ##..# #...# #...# #...# #...# #...# ..#.. #...# #...# #...# #...#",
     "#.... #.... #...# ..#.. ....# #.#.. #.... #.#.# #.#.# #...# #...# #...# #...# #.... ..#.. #...# #...# #...# .#.#.",
     "####. #.### ##### ..#.. ....# ##... #.... #...# #..## #...# ####. #...# ####. .###. ..#.. #...# .#.#. #...# ..#..",
     "#.... #...# #...# ..#.. ....# #.#.. #.... #...# #...# #...# #.... #.#.# #.#.. ....# ..#.. #...# .#.#. #.#.# .#.#.",
     "#.... #...# #...# ..#.. #...# #..#. #.... #...# #...# #...# #.... #..#. #..#. #...# ..#.. #...# .#.#. ##.## #...#",
     "#.... .###. #...# .###. .###. #...# ##### #...# #...# .###. #.... .##.# #...# .###. ..#.. .###. ..#.. #...# #...#",
     "..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....",
     "..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ....."},
    {"#...# ##### .###. #.... .###. ..#.. ..... .#... ..... #.... ..... ....# ..... ...## ..... #.... ..#.. ...#. #....",
     "#...# ....# .#... #.... ...#. .#.#. ..... ..#.. ..... #.... ..... ....# ..... ..#.. ..... #.... ..... ..... #....",
     ".#.#. ...#. .#... .#... ...#. #...# ..... ..... .###. ####. .###. .#### .###. .#### .#### ####. ..#.. ...#. #..#.",
     "..#.. ..#.. .#... ..#.. ...#. ..... ..... ..... ....# #...# #...# #...# #...# ..#.. #...# #...# ..#.. ...#. #.#..",
     "..#.. .#... .#... ...#. ...#. ..... ..... ..... .#### #...# #.... #...# ##### ..#.. #...# #...# ..#.. ...#. ##...",
     "..#.. #.... .#... ....# ...#. ..... ..... ..... #...# #...# #...# #...# #.... ..#.. #...# #...# ..#.. ...#. #.#..",
     "..#.. ##### .###. ....# .###. ..... ..... ..... .#### ####. .###. .#### .###. ..#.. .#### #...# ..#.. ...#. #..#.",
     "..... ..... ..... ..... ..... ..... ##### ..... ..... ..... ..... ..... ..... ..... ....# ..... ..... ...#. .....",
     "..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .###. ..... ..... .##.. ....."},
    {"..#.. ..... ..... ..... ..... ..... ..... ..... ..#.. ..... ..... ..... ..... ..... ..... ...#. ..#.. .#... .....",
     "..#.. ..... ..... ..... ..... ..... ..... ..... ..#.. ..... ..... ..... ..... ..... ..... ..#.. ..#.. ..#.. .....",
     "..#.. ##.#. ####. .###. ####. .#### #.##. .#### ##### #...# #...# #.#.# #...# #...# ##### ..#.. ..#.. ..#.. .#..#",
     "..#.. #.#.# #...# #...# #...# #...# ##..# #.... ..#.. #...# #...# #.#.# .#.#. #...# ...#. .#... ..#.. ...#. #.##.",
     "..#.. #.#.# #...# #...# #...# #...# #.... .###. ..#.. #...# .#.#. #.#.# ..#.. #...# ..#.. ..#.. ..#.. ..#.. .....",
     "..#.. #.#.# #...# #...# #...# #...# #.... ....# ..#.. #...# .#.#. #.#.# .#.#. #...# .#... ..#.. ..#.. ..#.. .....",
     "...#. #.#.# #...# .###. ####. .#### #.... ####. ...## .#### ..#.. .#.#. #...# .#### ##### ...#. ..#.. .#... .....",
     "..... ..... ..... ..... #.... ....# ..... ..... ..... ..... ..... ..... ..... ....# ..... ..... ..... ..... .....",
     "..... ..... ..... ..... #.... ....# ..... ..... ..... ..... ..... ..... ..... .###. ..... ..... ..... ..... ....."}};
// clang-format on

struct Point {
  double x = 0, y = 0;
};

struct Glyph {
  std::vector<std::pair<Point, Point>> strokes;  // from the left edge and the baseline, in points of the grid; a dot is one to itself
  double width = 2;
};

class GlyphDrawing {
 public:
  explicit GlyphDrawing(char c) {
    const int number = (c < kFirstGlyph || c > kLastGlyph ? '?' : c) - kFirstGlyph;
    rows_ = kAlphabet[number / kGlyphsOfLine];
    column_ = number % kGlyphsOfLine * 6;
  }

  Glyph glyph() {
    for (int x = 0; x < 5; ++x)
      for (int y = 0; y < kGlyphRows; ++y) {
        if (!lit(x, y)) continue;
        left_ = std::min(left_, x);
        right_ = std::max(right_, x);
      }
    if (left_ > right_) return {};
    for (int x = left_; x <= right_; ++x)
      for (int y = 0; y < kGlyphRows; ++y)
        if (lit(x, y)) join(x, y);
    out_.width = right_ - left_;
    return std::move(out_);
  }

 private:
  bool lit(int x, int y) const { return x >= 0 && x < 5 && y >= 0 && y < kGlyphRows && rows_[y][column_ + x] == '#'; }

  // To the right and down; aslant only where no corner joins the two already.
  void join(int x, int y) {
    if (lit(x + 1, y)) stroke(x, y, x + 1, y);
    if (lit(x, y + 1)) stroke(x, y, x, y + 1);
    for (const int side : {-1, 1})
      if (lit(x + side, y + 1) && !lit(x + side, y) && !lit(x, y + 1)) stroke(x, y, x + side, y + 1);
    bool alone = true;
    for (int dx = -1; dx <= 1; ++dx)
      for (int dy = -1; dy <= 1; ++dy) alone &= (dx == 0 && dy == 0) || !lit(x + dx, y + dy);
    if (alone) stroke(x, y, x, y);
  }

  void stroke(int x0, int y0, int x1, int y1) {
    const auto point = [&](int x, int y) { return Point{static_cast<double>(x - left_), static_cast<double>(y - kCapitalRows + 1)}; };
    out_.strokes.emplace_back(point(x0, y0), point(x1, y1));
  }

  const char* const* rows_ = nullptr;
  int column_ = 0, left_ = 5, right_ = -1;
  Glyph out_;
};

const Glyph& glyph_of(char c) {
  static const std::array<Glyph, 128> kGlyphs = [] {
    std::array<Glyph, 128> out;
    for (size_t i = 0; i < out.size(); ++i) out[i] = GlyphDrawing(static_cast<char>(i)).glyph();
    return out;
  }();
  return kGlyphs[static_cast<unsigned char>(c) < 128 ? static_cast<size_t>(c) : size_t{'?'}];
}

constexpr double kBetweenGlyphs = 2;  // points of the grid

void blend(Picture& p, int x, int y, Pixel ink, double share) {
  if (share <= 0 || x < 0 || y < 0 || x >= p.width || y >= p.height) return;
  Pixel& to = p.at(x, y);
  const auto mixed = [&](uint8_t a, uint8_t b) { return static_cast<uint8_t>(std::lround(a + (b - a) * std::min(share, 1.0))); };
  to = {mixed(to.red, ink.red), mixed(to.green, ink.green), mixed(to.blue, ink.blue)};
}

double distance_to(Point p, Point a, Point b) {
  const double dx = b.x - a.x, dy = b.y - a.y, square = dx * dx + dy * dy;
  const double t = square > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / square, 0.0, 1.0) : 0;
  return std::hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

// Each pixel by how much of it the stroke covers, to half a pixel.
void draw_stroke(Picture& picture, Point a, Point b, double radius, Pixel ink) {
  const auto first = [&](double v) { return static_cast<int>(std::floor(v - radius - 1)); };
  const auto last = [&](double v) { return static_cast<int>(std::ceil(v + radius + 1)); };
  for (int y = first(std::min(a.y, b.y)); y <= last(std::max(a.y, b.y)); ++y)
    for (int x = first(std::min(a.x, b.x)); x <= last(std::max(a.x, b.x)); ++x)
      blend(picture, x, y, ink, .5 + radius - distance_to({x + .5, y + .5}, a, b));
}

double unit_of(const TextStyle& style) { return style.size / (kCapitalRows - 1); }

}  // namespace

double text_width(const std::string& text, const TextStyle& style) {
  double points = 0;
  for (const char c : text) points += glyph_of(c).width + kBetweenGlyphs;
  return std::max(0.0, points - kBetweenGlyphs) * unit_of(style);
}

void draw_text(Picture& picture, double x, double y, const std::string& text, const TextStyle& style) {
  const double unit = unit_of(style);
  for (const char c : text) {
    const Glyph& glyph = glyph_of(c);
    for (const auto& [a, b] : glyph.strokes) {
      const bool dot = a.x == b.x && a.y == b.y;
      draw_stroke(picture, {x + a.x * unit, y + a.y * unit}, {x + b.x * unit, y + b.y * unit}, style.size * style.weight * (dot ? .65 : .5),
                  style.ink);
    }
    x += (glyph.width + kBetweenGlyphs) * unit;
  }
}

void draw_box(Picture& picture, double x, double y, double width, double height, Pixel ink, double radius) {
  radius = std::max(radius, .5);  // the edge of a pixel
  for (int row = static_cast<int>(std::floor(y)); row <= static_cast<int>(std::ceil(y + height)); ++row)
    for (int column = static_cast<int>(std::floor(x)); column <= static_cast<int>(std::ceil(x + width)); ++column) {
      const double px = column + .5, py = row + .5;
      const double cx = std::clamp(px, x + radius, std::max(x + radius, x + width - radius)),
                   cy = std::clamp(py, y + radius, std::max(y + radius, y + height - radius));
      blend(picture, column, row, ink, .5 + radius - std::hypot(px - cx, py - cy));
    }
}

Pixel pixel_of(const std::string& hex) {
  uint32_t n = 0;
  std::from_chars(hex.data() + 1, hex.data() + hex.size(), n, 16);
  return {static_cast<uint8_t>(n >> 16), static_cast<uint8_t>(n >> 8), static_cast<uint8_t>(n)};
}

}  // namespace plimsoll
