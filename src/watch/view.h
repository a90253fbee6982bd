// How a watched run looks: a screen drawn on a canvas (screen.h puts it on a terminal) and a page of text for --once.
#pragma once

#include <string>

#include "report/style.h"
#include "watch/canvas.h"
#include "watch/judge.h"

namespace plimsoll {

struct ViewOptions {
  std::string title;  // what is watched
  bool unicode = true;
  bool paused = false, help = false;
  size_t plot = 0;       // which of plot_names()
  double span = 300;     // seconds that a plot shows
  bool by_size = false;  // processes by size, else as they are: main first
  int scroll = 0;        // first process that is shown
};

// What can be plotted now, in the order in which keys go through it.
std::vector<std::string> plot_names(const Judge& judge);

void draw_view(Canvas& canvas, const Judge& judge, const ViewOptions& options);
std::string once_text(const Judge& judge, const std::string& title, const Style& style);
// "14:03:07 warning leak:main ..." and its advice, for a log of a watch.
std::string change_text(const AlertChange& change, double time);

}  // namespace plimsoll
