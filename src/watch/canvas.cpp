#include "watch/canvas.h"

namespace plimsoll {

int Canvas::put(int x, int y, std::string_view text, Tone tone) {
  for (size_t i = 0; i < text.size();) {
    size_t n = 1;
    while (i + n < text.size() && (static_cast<unsigned char>(text[i + n]) & 0xc0) == 0x80) ++n;
    if (y >= 0 && y < height_ && x >= 0 && x < width_)
      cells_[static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)] = {std::string(text.substr(i, n)), tone};
    ++x;
    i += n;
  }
  return x;
}

std::string Canvas::row(int y) const {
  std::string out;
  for (int x = 0; x < width_; ++x) out += at(x, y).glyph;
  out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

std::string Canvas::text() const {
  std::string out;
  for (int y = 0; y < height_; ++y) out += row(y) + "\n";
  return out;
}

}  // namespace plimsoll
