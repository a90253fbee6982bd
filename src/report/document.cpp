#include "report/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace plimsoll::doc {

namespace {

struct Printer {
  std::string operator()(const std::string& text) const { return text; }
  std::string operator()(Bytes bytes) const { return to_string(bytes); }
  std::string operator()(Change change) const {
    if (change.bytes.count == 0) return "=";
    return change.bytes.count < 0 ? "-" + to_string(Bytes{-change.bytes.count}) : "+" + to_string(change.bytes);
  }
  std::string operator()(Share share) const { return percent_of(share.part, share.whole); }
  std::string operator()(Count count) const { return with_commas(count.n); }
  std::string operator()(In size) const {
    if (size.unit == Unit::bytes) return fmt::format("{} B", size.bytes.count);
    constexpr std::array kNames{"B", "KiB", "MiB", "GiB"};
    const auto power = static_cast<size_t>(size.unit);
    const double value = static_cast<double>(size.bytes.count) / static_cast<double>(int64_t{1} << (10 * power));
    const double least = std::pow(10.0, -size.decimals);
    if (value > 0 && value < least / 2) return fmt::format("<{:.{}f} {}", least, size.decimals, kNames[power]);  // small, and not nothing
    return fmt::format("{:.{}f} {}", value, size.decimals, kNames[power]);
  }
};

using OnPhrase = std::function<void(std::string&)>;

void phrases_of(Text& text, const OnPhrase& change) {
  for (Span& s : text.spans)
    if (auto* words = std::get_if<std::string>(&s.value); words && s.tone != Tone::code) change(*words);
}

void phrases_of(std::vector<Branch>& branches, const OnPhrase& change) {
  for (Branch& b : branches) {
    change(b.name);
    phrases_of(b.children, change);
  }
}

struct PhrasesOf {
  const OnPhrase& change;

  void operator()(Heading& h) const {
    phrases_of(h.title, change);
    phrases_of(h.note, change);
  }
  void operator()(Paragraph& p) const { phrases_of(p.text, change); }
  void operator()(List& l) const {
    for (Text& item : l.items) phrases_of(item, change);
  }
  void operator()(Table& t) const {
    for (Column& c : t.columns) change(c.name);
    for (Row& r : t.rows) {
      for (Text& cell : r.cells) phrases_of(cell, change);
      for (Text& detail : r.details) phrases_of(detail, change);
    }
  }
  void operator()(Facts& f) const {
    for (Fact& fact : f.facts) {
      change(fact.name);
      phrases_of(fact.value, change);
      phrases_of(fact.meaning, change);
    }
  }
  void operator()(Tree& t) const { phrases_of(t.branches, change); }
  void operator()(Bar& b) const {
    for (Bar::Part& p : b.parts) change(p.name);
    change(b.limit_name);
  }
  void operator()(Curve& c) const {
    change(c.name);
    for (Curve::Level& l : c.levels) change(l.phase);
  }
  void operator()(Link& l) const { change(l.name); }
  void operator()(Preformatted&) const {}
  void operator()(Command&) const {}
};

}  // namespace

Unit unit_for(Bytes largest) {
  constexpr int64_t kKiB = 1024, kMiB = kKiB * 1024;
  return largest.count >= 100 * kMiB ? Unit::gib : largest.count >= kMiB ? Unit::mib : largest.count >= kKiB ? Unit::kib : Unit::bytes;
}

bool Text::empty() const {
  return std::all_of(spans.begin(), spans.end(), [](const Span& s) {
    const auto* text = std::get_if<std::string>(&s.value);
    return text && text->empty();
  });
}

bool Text::is_number() const { return spans.size() == 1 && !std::holds_alternative<std::string>(spans[0].value); }

Text& Text::operator+=(const Text& more) {
  spans.insert(spans.end(), more.spans.begin(), more.spans.end());
  return *this;
}

Text toned(Text text, Tone tone) {
  for (Span& s : text.spans)
    if (s.tone == Tone::plain) s.tone = tone;
  return text;
}

Text interval(Bytes low, Bytes high) { return Text(low) + " to " + high; }

Text joined(const std::vector<Text>& parts, const char* separator) {
  Text out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::string print(const Span& span) { return std::visit(Printer{}, span.value); }

std::string print(const Text& text) {
  std::string out;
  for (const Span& s : text.spans) out += print(s);
  return out;
}

void append(Blocks& to, Blocks more) { to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end())); }

Document preformatted(std::string text) { return {"", {}, {Preformatted{std::move(text)}}}; }

void for_each_phrase(Document& document, const std::function<void(std::string&)>& change) {
  change(document.title);
  phrases_of(document.headline, change);
  phrases_of(document.note, change);
  for (Block& block : document.blocks) std::visit(PhrasesOf{change}, block);
}

}  // namespace plimsoll::doc
