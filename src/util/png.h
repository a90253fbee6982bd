// A picture of pixels as a PNG file (RFC 2083: true colour, eight bits a channel, no interlacing). Not a drawing library: whoever draws
// fills the pixels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll {

struct Pixel {
  uint8_t red = 0, green = 0, blue = 0;
};

struct Picture {
  int width = 0, height = 0;
  std::vector<Pixel> pixels;  // row after row, from the top

  Picture(int width, int height, Pixel ground)
      : width(width), height(height), pixels(static_cast<size_t>(width) * static_cast<size_t>(height), ground) {}
  Pixel& at(int x, int y) { return pixels[static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)]; }
};

std::string png(const Picture& picture);
// As an address that a page can hold: "data:image/png;base64,...".
std::string data_address(const std::string& png);

}  // namespace plimsoll
