// Text as strokes on a picture: an alphabet of our own on a grid of five by nine points, whose neighbouring points are joined by round
// strokes, so that it is smooth at any size. ASCII alone; any other character is a question mark.
#pragma once

#include <string>

#include "util/png.h"

namespace plimsoll {

struct TextStyle {
  double size = 20;    // pixels from the baseline to the top of a capital
  double weight = .1;  // width of a stroke as a part of the size
  Pixel ink;
};

double text_width(const std::string& text, const TextStyle& style);
// `x`, `y`: where its baseline begins.
void draw_text(Picture& picture, double x, double y, const std::string& text, const TextStyle& style);
// Corners are cut to quarters of a circle; what lies outside of the picture is left out.
void draw_box(Picture& picture, double x, double y, double width, double height, Pixel ink, double radius = 0);

Pixel pixel_of(const std::string& hex);  // "#0072b2"

}  // namespace plimsoll
