#include "report/card.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "report/stroke_text.h"
#include "util/bytes.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kCardWidth = 1200, kCardHeight = 630;
constexpr double kMargin = 72, kRoom = kCardWidth - 2 * kMargin;

constexpr const char *kPaper = "#fbfaf7", *kInk = "#1b2026", *kSoft = "#5a636e", *kTrack = "#e6e2d9";
constexpr const char *kGood = "#17714a", *kWarn = "#9a6100", *kBad = "#b3261e", *kAccent = "#0b5b8c";

// What a card is drawn on. Sizes are those of a capital letter.
class CardSheet {
 public:
  virtual ~CardSheet() = default;
  virtual void box(double x, double y, double width, double height, const std::string& colour, double radius) = 0;
  virtual void text(double x, double y, const std::string& text, double size, bool bold, const std::string& colour) = 0;

  static double width_of(const std::string& text, double size) { return text_width(text, {size, 0, {}}); }
  // Smaller where it would not fit.
  void line(double y, const std::string& words, double size, bool bold, const std::string& colour) {
    text(kMargin, y, words, size * std::min(1.0, kRoom / std::max(1.0, width_of(words, size))), bold, colour);
  }
};

class PixelSheet : public CardSheet {
 public:
  void box(double x, double y, double width, double height, const std::string& colour, double radius) override {
    draw_box(picture_, x, y, width, height, pixel_of(colour), radius);
  }
  void text(double x, double y, const std::string& text, double size, bool bold, const std::string& colour) override {
    draw_text(picture_, x, y, text, {size, bold ? .17 : .125, pixel_of(colour)});
  }
  std::string file() const { return png(picture_); }

 private:
  Picture picture_{kCardWidth, kCardHeight, pixel_of(kPaper)};
};

std::string xml_text(const std::string& text) {
  std::string out;
  for (const char c : printable(text, 400)) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

class SvgSheet : public CardSheet {
 public:
  void box(double x, double y, double width, double height, const std::string& colour, double radius) override {
    body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"{:.1f}\" fill=\"{}\"/>\n", x, y, width,
                         height, radius, colour);
  }
  // A capital is about seven tenths of a font's size. Widths are those of our own letters, so that nothing overlaps in any font.
  void text(double x, double y, const std::string& text, double size, bool bold, const std::string& colour) override {
    body_ += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.1f}\"{} fill=\"{}\" textLength=\"{:.0f}\" "
        "lengthAdjust=\"spacingAndGlyphs\">{}</text>\n",
        x, y, size / .7, bold ? " font-weight=\"700\"" : "", colour, width_of(text, size) * .94, xml_text(text));
  }
  std::string file(const std::string& title) const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
        "font-family=\"system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, DejaVu Sans, sans-serif\">\n"
        "<title>{2}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"{3}\"/>\n{4}</svg>\n",
        kCardWidth, kCardHeight, xml_text(title), kPaper, body_);
  }

 private:
  std::string body_;
};

// Red is for what is over its limit, as everywhere.
const char* colour_of(const std::string& state) {
  return state == "fits" ? kGood : state == "tight" ? kWarn : state == "does not fit" ? kBad : kAccent;
}

// Whole words on two lines at most; the rest is dots.
std::vector<std::string> two_lines(const std::string& text, double size) {
  std::vector<std::string> out(1);
  for (const std::string& word : split_at(text, ' ')) {
    std::string longer = out.back() + (out.back().empty() ? "" : " ") + word;
    if (CardSheet::width_of(longer, size) <= kRoom) {
      out.back() = std::move(longer);
    } else if (out.size() == 2) {
      out.back() += " ...";
      return out;
    } else {
      out.push_back(word);
    }
  }
  return out;
}

// On two lines at most.
void draw_legend(CardSheet& sheet, const Json& parts, double y) {
  double x = kMargin;
  int lines = 1;
  for (const Json& p : parts) {
    const std::string words = printable(p["name"].get<std::string>(), 40) + " " + to_string(Bytes{p["bytes"].get<int64_t>()});
    const double width = CardSheet::width_of(words, 13) + 58;
    if (x > kMargin && x + width > kMargin + kRoom) {
      if (++lines > 2) return;
      x = kMargin;
      y += 34;
    }
    sheet.box(x, y, 20, 20, p["colour"].get<std::string>(), 3);
    sheet.text(x + 30, y + 16, words, 13, false, kSoft);
    x += width;
  }
}

void draw_memory(CardSheet& sheet, const Json& bar, double y) {
  constexpr double kHeight = 60, kGap = 2;
  if (bar.is_null() || bar["parts"].empty()) return;
  int64_t sum = 0;
  for (const Json& p : bar["parts"]) sum += p["bytes"].get<int64_t>();
  const std::optional<int64_t> limit = bar["limit_bytes"].is_null() ? std::nullopt : std::optional(bar["limit_bytes"].get<int64_t>());
  const double unit = kRoom / static_cast<double>(std::max(sum, limit.value_or(0)));
  sheet.box(kMargin, y, kRoom, kHeight, kTrack, 6);
  double x = kMargin;
  for (const Json& p : bar["parts"]) {
    const double width = static_cast<double>(p["bytes"].get<int64_t>()) * unit;
    sheet.box(x, y, std::max(width - kGap, 1.0), kHeight, p["colour"].get<std::string>(), 2);
    x += width;
  }
  if (limit) {
    const double at = std::min(kMargin + static_cast<double>(*limit) * unit, kMargin + kRoom - 4);
    sheet.box(at, y - 14, 4, kHeight + 28, sum > *limit ? kBad : kInk, 0);
  }
  draw_legend(sheet, bar["parts"], y + kHeight + 34);
}

// Of "fits RTX 4090: needs 16.2 of 23.6 GiB" the two halves on a line each.
void draw_card(CardSheet& sheet, const Json& page) {
  const std::string answer = page["headline"].get<std::string>();
  const char* colour = colour_of(page["verdict"]["state"].get<std::string>());
  sheet.box(0, 0, 20, kCardHeight, colour, 0);
  sheet.line(116, printable(page["title"].get<std::string>(), 80), 36, true, kInk);
  double y = 162;
  for (const std::string& line : two_lines(page["subtitle"].get<std::string>(), 15)) sheet.line(y, line, 15, false, kSoft), y += 30;
  const size_t colon = answer.find(": ");
  sheet.line(296, answer.substr(0, colon), 34, true, colour);
  if (colon != std::string::npos) sheet.line(356, answer.substr(colon + 2), 27, false, kInk);
  draw_memory(sheet, page["bar"], 400);
  sheet.line(
      596, page["kind"] == "job" ? "plimsoll: the run was executed op by op, without a GPU" : "plimsoll: read from a recording of the run",
      13, false, kSoft);
}

}  // namespace

std::string card_svg(const Json& page) {
  SvgSheet sheet;
  draw_card(sheet, page);
  return sheet.file(page["title"].get<std::string>() + ": " + page["headline"].get<std::string>());
}

std::string card_png(const Json& page) {
  PixelSheet sheet;
  draw_card(sheet, page);
  return sheet.file();
}

}  // namespace plimsoll
