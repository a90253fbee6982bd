#include "watch/screen.h"

#include <curses.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <clocale>

#include "util/error.h"

namespace plimsoll {

namespace {

using Clock = std::chrono::steady_clock;

enum Pair : short { kGood = 1, kWarning, kBad, kPredicted, kOther, kTitle };

int attributes(Tone tone, bool colour) {
  const auto pair = [&](Pair p, int without) { return colour ? static_cast<int>(COLOR_PAIR(p)) : without; };
  switch (tone) {
    case Tone::dim: return A_DIM;
    case Tone::bold: return A_BOLD;
    case Tone::title: return pair(kTitle, A_BOLD) | A_BOLD;
    case Tone::heading: return pair(kTitle, A_UNDERLINE) | A_UNDERLINE;
    case Tone::other: return pair(kOther, A_DIM);
    case Tone::good: return pair(kGood, A_NORMAL);
    case Tone::warning: return pair(kWarning, A_BOLD) | A_BOLD;
    case Tone::bad: return pair(kBad, A_REVERSE) | A_BOLD;
    case Tone::predicted: return pair(kPredicted, A_BOLD);
    case Tone::selected: return A_REVERSE;
    default: return A_NORMAL;
  }
}

}  // namespace

Screen::Screen(ViewOptions options, bool colour) : options_(std::move(options)), colour_(colour) {
  const char* term = std::getenv("TERM");
  if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO) || !term || !*term)
    throw Error("[watch] this is no terminal", "use --once, --jsonl, or --listen", ExitCode::usage);
  std::setlocale(LC_ALL, "");
  SCREEN* screen = newterm(nullptr, stdout, stdin);
  if (!screen)
    throw Error(std::string("[watch] the terminal '") + term + "' is not known here", "try TERM=xterm, or --once", ExitCode::usage);
  set_term(screen);
  cbreak();
  noecho();
  nonl();
  keypad(stdscr, TRUE);
  curs_set(0);
  set_escdelay(25);
  colour_ = colour_ && has_colors();
  if (colour_) {
    start_color();
    use_default_colors();
    init_pair(kGood, COLOR_GREEN, -1);
    init_pair(kWarning, COLOR_YELLOW, -1);
    init_pair(kBad, COLOR_RED, -1);
    init_pair(kPredicted, COLOR_MAGENTA, -1);
    init_pair(kOther, COLOR_BLUE, -1);
    init_pair(kTitle, COLOR_CYAN, -1);
  }
}

Screen::~Screen() { endwin(); }

void Screen::draw(const Judge& judge) {
  Canvas canvas(COLS, LINES);
  draw_view(canvas, judge, options_);
  erase();
  for (int y = 0; y < canvas.height(); ++y)
    for (int x = 0; x < canvas.width();) {
      // Runs of one tone go out together.
      const Tone tone = canvas.at(x, y).tone;
      std::string text;
      const int begin = x;
      for (; x < canvas.width() && canvas.at(x, y).tone == tone; ++x) text += canvas.at(x, y).glyph;
      attrset(attributes(tone, colour_));
      mvaddstr(y, begin, text.c_str());
    }
  refresh();
}

bool Screen::obey(int key, const Judge& judge) {
  const size_t plots = std::max<size_t>(1, plot_names(judge).size());
  switch (key) {
    case 'q':
    case 'Q': return false;
    case '\t':
    case KEY_RIGHT: options_.plot = (options_.plot + 1) % plots; break;
    case KEY_BTAB:
    case KEY_LEFT: options_.plot = (options_.plot + plots - 1) % plots; break;
    case '+':
    case '=': options_.span = std::max(30.0, options_.span / 2); break;
    case '-': options_.span = std::min(3600.0, options_.span * 2); break;
    case 's': options_.by_size = !options_.by_size; break;
    case KEY_UP: options_.scroll = std::max(0, options_.scroll - 1); break;
    case KEY_DOWN: options_.scroll = std::min(static_cast<int>(judge.now().processes.size()), options_.scroll + 1); break;
    case 'p':
    case ' ': options_.paused = !options_.paused; break;
    case 'h':
    case '?': options_.help = !options_.help; break;
    default: break;  // KEY_RESIZE: the next draw has the new size
  }
  return true;
}

bool Screen::wait(double seconds, const Judge& judge, const std::function<bool()>& stop) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  if (!options_.paused) draw(judge);
  while (true) {
    const double left = std::chrono::duration<double>(until - Clock::now()).count();
    if (left <= 0 || stop()) return true;
    timeout(std::max(1, static_cast<int>(left * 1000)));
    const int key = getch();
    if (key == ERR) {  // time is over, a signal came, or the input is closed, which must not spin
      if (left > 0.05) usleep(20000);
      continue;
    }
    if (!obey(key, judge)) return false;
    draw(judge);
  }
}

}  // namespace plimsoll
