// A plot on a part of a canvas: a title with the figures of now, an axis, the largest value of each column's time, and a line for what was
// predicted. A pure function of its input.
#pragma once

#include <string>

#include "estimate/byte_range.h"
#include "watch/canvas.h"
#include "watch/series.h"

namespace plimsoll {

struct Plot {
  const Series& series;
  std::string title{};
  std::string note{};                    // behind the title: which of how many
  std::optional<ByteRange> predicted{};  // a line of its own
  bool bytes = true;                     // else plain numbers
  double now = 0, span = 300;            // seconds
  double warning = 0, critical = 0;      // values from which on it has another colour; 0: none
  bool unicode = true;
};

struct Area {
  int x = 0, y = 0, width = 0, height = 0;
};

void draw_plot(Canvas& canvas, const Area& area, const Plot& plot);

}  // namespace plimsoll
