#include "watch/plot.h"

#include <fmt/format.h>

#include <algorithm>

#include "watch/judge.h"

namespace plimsoll {

namespace {

constexpr int kAxis = 11;  // columns of the labels and the line beside them

std::string value_text(const Plot& p, double v) { return p.bytes ? to_string(Bytes{static_cast<int64_t>(v)}) : fmt::format("{:.2f}", v); }

class Drawing {
 public:
  Drawing(Canvas& canvas, const Area& area, const Plot& plot) : c_(canvas), a_(area), p_(plot) { sample(); }

  void draw() {
    title();
    for (int row = 0; row < height(); ++row) draw_row(row);
  }

 private:
  int height() const { return a_.height - 1; }
  int width() const { return a_.width - kAxis; }
  const char* glyph(const char* unicode, const char* ascii) const { return p_.unicode ? unicode : ascii; }

  // The most of each column's time; between two looks the column before counts.
  void sample() {
    columns_.assign(static_cast<size_t>(std::max(1, width())), -1);
    top_ = p_.predicted ? static_cast<double>(p_.predicted->bytes.count) : 0;
    for (const Series::Point& point : p_.series.points()) {
      const double place = (point.time - (p_.now - p_.span)) / p_.span * width();
      if (place < 0) continue;
      double& column = columns_[std::min(static_cast<size_t>(place), columns_.size() - 1)];
      column = std::max(column, point.value);
      most_ = std::max(most_, point.value);
    }
    for (size_t i = 1; i < columns_.size(); ++i)
      if (columns_[i] < 0) columns_[i] = columns_[i - 1];
    top_ = std::max(top_, most_);
    top_ = top_ > 0 ? top_ * 1.05 : 1;
  }

  // "run  1.20 GiB, last 5 min  ┄ predicted 1.25 GiB, at most 1.31 GiB ────── 1/7 Tab": as much as there is room for.
  void title() {
    const int end = a_.x + a_.width, note = end - static_cast<int>(p_.note.size());
    int x = c_.put(a_.x, a_.y, p_.title, Tone::title) + 2;
    // `width` columns, which are fewer than bytes.
    const auto add = [&](const std::string& text, size_t width, Tone tone) {
      const bool fits = x + static_cast<int>(width) < note - 2;
      if (fits) x = c_.put(x, a_.y, text, tone);
      return fits;
    };
    const auto words = [&](const std::string& text, Tone tone) { return add(text, text.size(), tone); };
    const std::string now = value_text(p_, p_.series.last());
    if (!words(fmt::format("{}, last {}", now, duration_text(p_.span)), Tone::plain)) words(now, Tone::plain);
    if (p_.predicted) {
      const std::string predicted = " predicted " + to_string(p_.predicted->bytes);
      ++x;
      add(glyph("┄", "=") + predicted, predicted.size() + 1, Tone::predicted);
      words(fmt::format(" ({} to {})", to_string(p_.predicted->low), to_string(p_.predicted->high)), Tone::predicted);
    }
    words(fmt::format("  at most {}", value_text(p_, most_)), Tone::plain);
    for (++x; x < note - 1; ++x) c_.put(x, a_.y, glyph("─", "-"), Tone::dim);
    c_.put(note, a_.y, p_.note, Tone::dim);
  }

  Tone tone_at(int row) const {
    const double value = top_ * (height() - row - 0.5) / height();
    return p_.critical > 0 && value >= p_.critical ? Tone::bad : p_.warning > 0 && value >= p_.warning ? Tone::warning : Tone::good;
  }

  void draw_row(int row) {
    static const char* kParts[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const int y = a_.y + 1 + row;
    const int line = p_.predicted ? height() - 1 - static_cast<int>(static_cast<double>(p_.predicted->bytes.count) / top_ * height()) : -1;
    const int middle = height() >= 7 ? height() / 2 : -1;
    if (row == line)
      label(y, static_cast<double>(p_.predicted->bytes.count), Tone::predicted);
    else if (row == 0 || row == height() - 1 || (row == middle && std::abs(row - line) > 1))
      label(y, row == 0 ? top_ : row == middle ? top_ * (height() - row) / height() : 0, Tone::dim);
    c_.put(a_.x + kAxis - 1, y, glyph("│", "|"), Tone::dim);
    for (int i = 0; i < width(); ++i) {
      const double filled = columns_[static_cast<size_t>(i)] / top_ * height() - (height() - 1 - row);
      const char* mark = filled <= 0.0625 ? " "
                         : p_.unicode     ? kParts[std::clamp(static_cast<int>(filled * 8 + 0.5), 0, 8)]
                         : filled >= 0.5  ? "#"
                                          : ".";
      if (row == line && filled < 1)
        c_.put(a_.x + kAxis + i, y, glyph("┄", "="), Tone::predicted);
      else
        c_.put(a_.x + kAxis + i, y, mark, tone_at(row));
    }
  }

  void label(int y, double value, Tone tone) { c_.put(a_.x, y, fmt::format("{:>10}", value_text(p_, value)), tone); }

  Canvas& c_;
  const Area& a_;
  const Plot& p_;
  std::vector<double> columns_;
  double top_ = 0, most_ = 0;
};

}  // namespace

void draw_plot(Canvas& canvas, const Area& area, const Plot& plot) {
  if (area.height < 3 || area.width < kAxis + 10 || plot.series.empty()) return;
  Drawing(canvas, area, plot).draw();
}

}  // namespace plimsoll
