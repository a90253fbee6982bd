// A document on a terminal.
#include <algorithm>
#include <optional>

#include "report/display_width.h"
#include "report/renderers.h"
#include "util/text.h"

namespace plimsoll::doc {

namespace {

constexpr size_t kIndent = 2, kGap = 2, kTreeSize = 11, kBar = 24;
constexpr size_t kNarrow = 24;  // what is left of a line below this is not worth wrapping into

struct Run {
  std::string text;
  Tone tone;
};
using Line = std::vector<Run>;

size_t width_of(const Line& line) {
  size_t width = 0;
  for (const Run& r : line) width += display_width(r.text);
  return width;
}

// A word may have several tones: "docs/time.md" in code, and the full stop after it.
struct Word {
  Line runs;
  size_t spaces = 0;  // before it
};

class TextRenderer {
 public:
  explicit TextRenderer(const Style& style) : style_(style) {}

  std::string render(const Document& d) {
    if (!d.title.empty() || !d.headline.empty()) {
      Text first = d.title.empty() ? Text() : bold(cut(d.title, style_.width));
      if (!d.title.empty() && !d.headline.empty()) first += "  ";
      prose(first + d.headline, 0);
    }
    if (!d.note.empty()) prose(dim(d.note), 0);
    for (const Block& block : d.blocks) {
      gap_before(block);
      std::visit([this](const auto& b) { add(b); }, block);
      last_ = block.index();
    }
    return out_;
  }

 private:
  template <class T>
  static bool is(const Block& b) {
    return std::holds_alternative<T>(b);
  }

  // A heading stands apart from what is above it, and so does a paragraph, unless it is the heading's own.
  void gap_before(const Block& block) {
    static const size_t kHeading = Block(Heading{}).index(), kParagraph = Block(Paragraph{}).index(), kBar = Block(doc::Bar{}).index();
    if (out_.empty()) return;
    const bool apart =
        is<Heading>(block) || !last_ || (is<Paragraph>(block) && *last_ != kHeading && *last_ != kParagraph && *last_ != kBar);
    if (apart) out_ += "\n";
  }

  std::string clean(const std::string& text) const {
    const std::string plain = without_controls(text);
    return style_.unicode ? plain : in_ascii(plain);
  }

  // The mark of what was left out has three columns in ASCII.
  std::string cut(const std::string& text, size_t width) const { return shortened(text, style_.unicode || width < 4 ? width : width - 2); }

  Line line_of(const Text& text) const {
    Line out;
    for (const Span& s : text.spans) out.push_back({clean(print(s)), s.tone});
    return out;
  }

  std::string painted(const Run& r) const {
    if (r.text.find_first_not_of(' ') == std::string::npos) return r.text;
    switch (r.tone) {
      case Tone::bold: return style_.bold(r.text);
      case Tone::dim: return style_.dim(r.text);
      case Tone::good: return style_.green(r.text);
      case Tone::bad: return style_.red(r.text);
      case Tone::warn: return style_.yellow(r.text);
      case Tone::plain:
      case Tone::code: break;
    }
    return r.text;
  }

  // Neighbours of one tone are painted together.
  std::string painted(const Line& line) const {
    std::string out;
    Run open{"", Tone::plain};
    for (const Run& r : line) {
      if (r.text.empty()) continue;
      if (r.tone != open.tone && !open.text.empty()) {
        out += painted(open);
        open.text.clear();
      }
      open.tone = r.tone;
      open.text += r.text;
    }
    return out + painted(open);
  }

  // Code is one word: what is copied must not be broken.
  static std::vector<Word> words_of(const Line& line) {
    std::vector<Word> out(1);
    bool in_word = false;
    for (const Run& r : line) {
      for (const char c : r.text) {
        if (c == ' ' && r.tone != Tone::code) {
          if (in_word) out.emplace_back();
          in_word = false;
          ++out.back().spaces;
          continue;
        }
        in_word = true;
        Line& runs = out.back().runs;
        if (runs.empty() || runs.back().tone != r.tone) runs.push_back({"", r.tone});
        runs.back().text += c;
      }
    }
    if (out.back().runs.empty()) out.pop_back();
    return out;
  }

  // Code that is longer than a line, in pieces that a shell joins again: each but the last ends in a backslash. Returns the columns that
  // the last one takes.
  static size_t append_code(const std::string& code, size_t width, std::vector<Line>& lines) {
    std::string piece;
    const auto put = [&] { lines.back().push_back({piece, Tone::code}); };
    for (const std::string& word : shell_words_of(code)) {
      if (!piece.empty() && display_width(piece) + 1 + display_width(word) + 2 > width) {
        piece += " \\";
        put();
        lines.emplace_back();
        piece.clear();
      }
      piece += (piece.empty() ? "" : " ") + word;
    }
    put();
    return display_width(piece);
  }

  // A list without blanks is broken behind its commas.
  static size_t append_pieces(const Run& run, size_t width, std::vector<Line>& lines) {
    size_t used = 0;
    for (size_t at = 0; at < run.text.size();) {
      const size_t end = std::min(run.text.find(',', at), run.text.size() - 1) + 1;
      const std::string piece = run.text.substr(at, end - at);
      if (used > 0 && used + display_width(piece) > width) {
        lines.emplace_back();
        used = 0;
      }
      lines.back().push_back({piece, run.tone});
      used += display_width(piece);
      at = end;
    }
    return used;
  }

  // Lines of at most `width` columns; a word that is longer and has no commas has one for itself.
  std::vector<Line> wrapped(const Text& text, size_t width) const {
    std::vector<Line> out(1);
    size_t used = 0;
    for (const Word& w : words_of(line_of(text))) {
      const size_t size = width_of(w.runs);
      if (size > width && w.runs.size() == 1 && w.runs[0].tone == Tone::code) {
        if (used > 0) out.emplace_back();
        used = append_code(w.runs[0].text, width, out);
        continue;
      }
      if (size > width && w.runs.size() == 1) {
        if (used > 0) out.emplace_back();
        used = append_pieces(w.runs[0], width, out);
        continue;
      }
      if (used > 0 && used + w.spaces + size > width) {
        out.emplace_back();
        used = 0;
      }
      if (w.spaces > 0 && (used > 0 || out.size() == 1)) {
        out.back().push_back({std::string(w.spaces, ' '), out.back().empty() ? Tone::plain : out.back().back().tone});
        used += w.spaces;
      }
      out.back().insert(out.back().end(), w.runs.begin(), w.runs.end());
      used += size;
    }
    return out;
  }

  void end_line() {
    while (!out_.empty() && out_.back() == ' ') out_.pop_back();
    out_ += "\n";
  }

  // From column `at` on, where the line already is; further lines begin there. Where little of the line is left, all of it goes below.
  void flow(const Text& text, size_t at) {
    size_t room = style_.width > at ? style_.width - at : 0;
    if (room < kNarrow && width_of(line_of(text)) > room) {
      end_line();
      at = std::min(at, 3 * kIndent);
      room = style_.width - at;
      out_ += std::string(at, ' ');
    }
    bool first = true;
    for (const Line& line : wrapped(text, room)) {
      if (!first) out_ += std::string(at, ' ');
      first = false;
      out_ += painted(line);
      end_line();
    }
  }

  void prose(const Text& text, size_t indent) {
    out_ += std::string(indent, ' ');
    flow(text, indent);
  }

  // One cell, padded to `width` unless it is the last.
  void cell(const Line& line, size_t width, bool right) {
    const size_t size = width_of(line);
    const std::string padding(width > size ? width - size : 0, ' ');
    out_ += right ? padding + painted(line) : painted(line) + padding;
  }

  void add(const Heading& h) {
    Text line = bold(h.title);
    if (!h.note.empty()) line += "  " + dim(h.note);
    prose(line, 0);
  }

  void add(const Paragraph& p) { prose(p.text, 0); }

  void add(const List& l) {
    for (size_t i = 0; i < l.items.size(); ++i) {
      const std::string mark = l.numbered ? std::to_string(i + 1) + ". " : "- ";
      out_ += std::string(kIndent, ' ') + mark;
      flow(l.items[i], kIndent + mark.size());
    }
  }

  // What stands in a column: a bar of a share, or the text itself.
  Line cell_line(const Text& cell, Kind kind) const {
    if (kind != Kind::bar || !cell.is_number()) return line_of(cell);
    const auto* share = std::get_if<Share>(&cell.spans[0].value);
    if (!share || share->whole.count == 0) return line_of(cell);
    return {{style_.bar(static_cast<double>(share->part.count) / static_cast<double>(share->whole.count), kBar), Tone::plain}};
  }

  static bool to_the_right(Kind kind) { return kind != Kind::text && kind != Kind::bar; }

  std::vector<size_t> widths_of(const Table& t) const {
    std::vector<size_t> out;
    for (size_t c = 0; c < t.columns.size(); ++c) {
      size_t width = display_width(t.columns[c].name);
      for (const Row& r : t.rows)
        if (c < r.cells.size()) width = std::max(width, width_of(cell_line(r.cells[c], t.columns[c].kind)));
      out.push_back(width);
    }
    return out;
  }

  // Names of a fitted table, shortened until it has room: those of the widest column first.
  Table fitted(Table t) const {
    for (;;) {
      std::vector<size_t> widths = widths_of(t);
      size_t total = kIndent;
      for (const size_t w : widths) total += w + kGap;
      total -= widths.empty() ? 0 : kGap;
      size_t widest = widths.size();
      for (size_t c = 0; c < widths.size(); ++c)
        if (t.columns[c].kind == Kind::text && (widest == widths.size() || widths[c] > widths[widest])) widest = c;
      if (total <= style_.width || widest == widths.size() || widths[widest] <= kNarrow / 2) return t;
      const size_t room = std::max(kNarrow / 2, widths[widest] - std::min(widths[widest], total - style_.width));
      if (room >= widths[widest]) return t;
      t.columns[widest].name = cut(t.columns[widest].name, room);
      for (Row& r : t.rows)
        if (widest < r.cells.size() && width_of(line_of(r.cells[widest])) > room) r.cells[widest] = Text(cut(print(r.cells[widest]), room));
    }
  }

  // The narrowest that a column may be: text is broken at blanks, but not into a ribbon.
  size_t least_width(const Table& t, size_t c) const {
    size_t least = std::max(kNarrow, display_width(t.columns[c].name));
    for (const Row& r : t.rows) {
      if (c >= r.cells.size()) continue;
      for (const Word& w : words_of(line_of(r.cells[c]))) {
        const bool code = w.runs.size() == 1 && w.runs[0].tone == Tone::code;
        const std::vector<std::string> parts = code ? shell_words_of(w.runs[0].text) : std::vector<std::string>{};
        for (const std::string& part : parts) least = std::max(least, display_width(part) + 2);
        if (!code) least = std::max(least, width_of(w.runs));
      }
    }
    return least;
  }

  // Widths at which the first `columns` have room, the widest text made narrower first; none: they have no room.
  std::optional<std::vector<size_t>> narrowed_widths(const Table& t, const std::vector<size_t>& natural, size_t columns) const {
    std::vector<size_t> widths(natural.begin(), natural.begin() + static_cast<std::ptrdiff_t>(columns)), least = widths;
    for (size_t c = 0; c < columns; ++c)
      if (t.columns[c].kind == Kind::text) least[c] = std::min(widths[c], least_width(t, c));
    for (;;) {
      size_t total = kIndent;
      for (const size_t w : widths) total += w + kGap;
      total -= columns > 0 ? kGap : 0;
      if (total <= style_.width) return widths;
      size_t widest = columns;
      for (size_t c = 0; c < columns; ++c)
        if (widths[c] > least[c] && (widest == columns || widths[c] > widths[widest])) widest = c;
      if (widest == columns) return std::nullopt;
      widths[widest] -= std::min(widths[widest] - least[widest], total - style_.width);
    }
  }

  // What stands in a column of that width: several lines where the text is longer, those after the first of a name set in.
  std::vector<Line> cell_lines(const Text& cell, const Column& column, size_t width, bool name) const {
    const Line whole = cell_line(cell, column.kind);
    if (column.kind != Kind::text || width_of(whole) <= width) return {whole};
    std::vector<Line> lines = wrapped(cell, name ? width - kIndent : width);
    for (size_t i = 1; name && i < lines.size(); ++i) lines[i].insert(lines[i].begin(), {std::string(kIndent, ' '), Tone::plain});
    return lines;
  }

  void table_row(const Table& t, const Row& r, const std::vector<size_t>& widths) {
    const size_t columns = std::min(r.cells.size(), widths.size());
    std::vector<std::vector<Line>> cells;
    size_t height = 1;
    for (size_t c = 0; c < columns; ++c) {
      cells.push_back(cell_lines(r.cells[c], t.columns[c], widths[c], c == 0 && columns > 1));
      height = std::max(height, cells.back().size());
    }
    for (size_t i = 0; i < height; ++i) {
      out_ += std::string(kIndent, ' ');
      for (size_t c = 0; c < columns; ++c) {
        cell(i < cells[c].size() ? cells[c][i] : Line(), widths[c], to_the_right(t.columns[c].kind));
        if (c + 1 < columns) out_ += std::string(kGap, ' ');
      }
      end_line();
    }
  }

  // The columns for which a row has no room, below it with their names; a bar is left out.
  static Text rest_of(const Table& t, const Row& r, size_t shown) {
    std::vector<Text> parts;
    for (size_t c = shown; c < r.cells.size() && c < t.columns.size(); ++c) {
      if (t.columns[c].kind == Kind::bar || print(r.cells[c]).empty()) continue;
      const std::string& name = t.columns[c].name;
      parts.push_back(name.empty() ? r.cells[c] : dim(name + " ") + r.cells[c]);
    }
    return joined(parts, ", ");
  }

  void add(const Table& whole) {
    const Table t = whole.fitted ? fitted(whole) : whole;
    const std::vector<size_t> natural = widths_of(t);
    std::optional<std::vector<size_t>> narrow;
    for (size_t shown = natural.size(); shown > 0 && !narrow; --shown) narrow = narrowed_widths(t, natural, shown);
    const std::vector<size_t> widths = narrow.value_or(std::vector<size_t>(natural.begin(), natural.begin() + (natural.empty() ? 0 : 1)));
    if (std::any_of(t.columns.begin(), t.columns.end(), [](const Column& c) { return !c.name.empty(); })) {
      Row head;
      for (const Column& c : t.columns) head.cells.push_back(dim(c.name));
      table_row(t, head, widths);
    }
    // Under a number stands nothing but numbers.
    const bool numbered = !t.columns.empty() && to_the_right(t.columns[0].kind);
    const size_t indent = numbered ? kIndent + natural[0] + kGap : 2 * kIndent;
    for (const Row& r : t.rows) {
      Row shown = r;
      if (r.emphasised)
        for (Text& text : shown.cells) text = bold(text);
      table_row(t, shown, widths);
      if (const Text rest = rest_of(t, r, widths.size()); !rest.empty()) prose(rest, indent);
      for (const Text& detail : r.details) prose(detail, indent);
    }
  }

  void add(const Facts& f) {
    constexpr size_t kLeastName = 14, kLeastValue = 11;
    const size_t kMostValue = style_.width < 100 ? 24 : 40;
    size_t name = kLeastName, value = kLeastValue;
    for (const Fact& fact : f.facts) {
      name = std::max(name, display_width(fact.name) + kIndent * static_cast<size_t>(fact.level));
      if (!fact.meaning.empty()) value = std::max(value, std::min(kMostValue, width_of(line_of(fact.value))));
    }
    for (const Fact& fact : f.facts) {
      const size_t indent = kIndent * static_cast<size_t>(1 + fact.level);
      out_ += std::string(indent, ' ');
      cell({{clean(fact.name), Tone::plain}}, name + kIndent - indent, false);
      out_ += std::string(kGap, ' ');
      const size_t at = kIndent + name + kGap;
      if (fact.meaning.empty() && !fact.value.is_number()) {
        flow(fact.value, at);
        continue;
      }
      const Line shown = line_of(fact.value);
      if (at + width_of(shown) > style_.width) {
        flow(fact.value, at);
        if (!fact.meaning.empty()) prose(fact.meaning, at);
        continue;
      }
      cell(shown, value, fact.value.is_number());
      out_ += std::string(kGap, ' ');
      flow(fact.meaning, at + std::max(value, width_of(shown)) + kGap);
    }
  }

  // Names with their depth, in order.
  void rows_of(const Branch& b, size_t depth, Bytes whole, Table& t) const {
    t.rows.push_back(
        {{std::string(kIndent * depth, ' ') + b.name, In{b.bytes, unit_for(whole)}, Share{b.bytes, whole}, Share{b.bytes, whole}},
         {},
         b.emphasised});
    for (const Branch& child : b.children) rows_of(child, depth + 1, whole, t);
  }

  void add(const Tree& tree) {
    Table t{{{std::string(), Kind::text}, {"", Kind::size}, {"", Kind::percent}, {"", Kind::bar}}};
    t.fitted = tree.fitted;
    for (const Branch& b : tree.branches) rows_of(b, 0, tree.whole, t);
    const size_t kTreeName = style_.width < 100 ? 24 : 42;
    for (Row& r : t.rows) {  // trees below each other are aligned
      const size_t name = display_width(print(r.cells[0])), size = display_width(print(r.cells[1]));
      if (name < kTreeName) r.cells[0] += std::string(kTreeName - name, ' ');
      if (size < kTreeSize) r.cells[1] = std::string(kTreeSize - size, ' ') + r.cells[1];
    }
    add(t);
  }

  // Each part in whole columns, so that their ends lie where they belong; without colours in letters.
  void add(const Bar& b) {
    Bytes sum;
    for (const Bar::Part& p : b.parts) sum += p.bytes;
    const Bytes whole = std::max(sum, b.limit.value_or(Bytes{}));
    if (whole.count <= 0) return;
    const size_t columns = std::min<size_t>(style_.width - 2 * kIndent, 96);
    const auto column = [&](Bytes at) {
      return static_cast<size_t>(static_cast<double>(at.count) / static_cast<double>(whole.count) * static_cast<double>(columns) + 0.5);
    };
    const auto block = [&](const Colour& c) {
      return !style_.colour ? std::string(1, c.letter) : style_.ink(c.ansi, style_.unicode ? "█" : "#");
    };
    const bool over = b.limit && sum > *b.limit;
    const std::string line = style_.unicode ? "┃" : "|", mark = over ? style_.red(line) : style_.bold(line);
    const size_t limit = b.limit ? std::min(column(*b.limit), columns - 1) : columns;
    out_ += std::string(kIndent, ' ');
    size_t at = 0;
    Bytes end;
    const auto put = [&](const std::string& text) { out_ += at++ == limit ? mark : text; };
    for (const Bar::Part& p : b.parts) {
      end += p.bytes;
      while (at < column(end)) put(block(p.colour));
    }
    while (at <= limit && b.limit) put(style_.dim(style_.unicode ? "·" : "."));
    end_line();
    legend(b, unit_for(whole), mark);
  }

  void legend(const Bar& b, Unit unit, const std::string& limit_mark) {
    std::vector<std::pair<std::string, std::string>> entries;  // the mark as it is painted, what it stands for
    const auto size = [&](Bytes bytes) { return print(Span{In{bytes, unit, 1}}); };
    const auto number = [&](Bytes bytes) { return size(bytes).substr(0, size(bytes).find(' ')); };
    for (const Bar::Part& p : b.parts)
      entries.emplace_back(style_.colour ? style_.ink(p.colour.ansi, style_.unicode ? "■" : "#") : std::string(1, p.colour.letter),
                           clean(p.name) + " " + number(p.bytes));
    if (b.limit) entries.emplace_back(limit_mark, clean(b.limit_name) + " " + number(*b.limit));
    if (entries.empty()) return;
    const std::string last = size(Bytes{});
    entries.back().second += last.substr(last.find(' '));
    size_t at = 0;
    for (const auto& [mark, text] : entries) {
      const size_t width = 2 + display_width(text);
      if (at > 0 && at + kGap + width > style_.width) {
        out_ += "\n";
        at = 0;
      }
      out_ += std::string(kGap, ' ') + mark + " " + text;
      at += kGap + width;
    }
    out_ += "\n";
  }

  // Neighbouring slices of a phase become one, the larger of the two, until there is room for all.
  static Curve narrowed(Curve c, size_t columns) {
    while (c.levels.size() > columns) {
      size_t at = 0, longest = 0;
      for (size_t i = 0, begin = 0; i < c.levels.size(); ++i) {
        if (c.levels[i].phase != c.levels[begin].phase) begin = i;
        if (i - begin > longest) longest = i - begin, at = begin + (i - begin) / 2;
      }
      if (longest == 0) return c;
      c.levels[at].bytes = std::max(c.levels[at].bytes, c.levels[at + 1].bytes);
      c.levels.erase(c.levels.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    return c;
  }

  // One character for each slice, with the phases named below.
  void add(const Curve& all) {
    const Curve c = narrowed(all, style_.width - 18);  // beside the name of a fact
    std::string levels, names;
    for (size_t i = 0; i < c.levels.size(); ++i) {
      levels +=
          style_.level(static_cast<double>(c.levels[i].bytes.count) / static_cast<double>(std::max<int64_t>(c.whole.count, 1)) * 0.999);
      if (i > 0 && c.levels[i].phase == c.levels[i - 1].phase) continue;
      size_t end = i;
      while (end < c.levels.size() && c.levels[end].phase == c.levels[i].phase) ++end;
      std::string name = clean(c.levels[i].phase);
      const bool last = end == c.levels.size();
      if (name.size() >= end - i && !(last && name.size() == end - i))
        name.resize(end - i > 3 || (last && end - i == 3) ? 3 : 0);  // "opt", and a gap to the next
      names += name + std::string(end - i - name.size(), ' ');
    }
    add(Facts{{{c.name, levels}, {"", dim(names)}}});
  }

  void add(const Preformatted& p) {
    const std::string text = without_controls(p.text, true);
    if (p.difference) return add_difference(text);
    out_ += style_.unicode || !p.picture ? text : in_ascii(text);
    if (!text.empty() && text.back() != '\n') out_ += "\n";
  }

  // Red is for what is over a limit, so what goes is only dim.
  void add_difference(std::string_view text) {
    if (text.ends_with('\n')) text.remove_suffix(1);
    for (const std::string& line : split_at(text, '\n')) {
      const bool name = line.starts_with("+++") || line.starts_with("---");
      const Tone tone = name || line.starts_with("@@") || line.starts_with("-") ? Tone::dim
                        : line.starts_with("+")                                 ? Tone::good
                                                                                : Tone::plain;
      out_ += painted(Run{line, tone}) + "\n";
    }
  }

  void add(const Command& c) {
    const std::string line = clean(c.line);
    if (!c.folded || kIndent + display_width(line) <= style_.width) {
      out_ += std::string(kIndent, ' ') + line + "\n";
      return;
    }
    size_t at = 0;
    bool first = true;
    for (const std::string& word : shell_words_of(line)) {
      const size_t width = display_width(word);
      if (at > 0 && at + 1 + width + 2 > style_.width) {
        out_ += " \\\n";
        at = 0;
      }
      const std::string before = at > 0 ? " " : std::string(first ? kIndent : 3 * kIndent, ' ');
      out_ += before + word;
      at += before.size() + width;
      first = false;
    }
    out_ += "\n";
  }

  // At blanks outside of quotes.
  static std::vector<std::string> shell_words_of(const std::string& line) {
    std::vector<std::string> out(1);
    bool quoted = false;
    for (const char c : line) {
      if (c == '\'') quoted = !quoted;
      if (c == ' ' && !quoted)
        out.emplace_back();
      else
        out.back() += c;
    }
    return out;
  }

  void add(const Link& l) { prose(l.name + ": " + l.address, kIndent); }

  const Style& style_;
  std::string out_;
  std::optional<size_t> last_;  // which kind of block
};

}  // namespace

std::string to_text(const Document& document, const Style& style) { return TextRenderer(style).render(document); }

}  // namespace plimsoll::doc
