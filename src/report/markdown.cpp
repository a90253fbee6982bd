// A document in GitHub's Markdown.
#include <algorithm>
#include <cctype>

#include "report/display_width.h"
#include "report/renderers.h"

namespace plimsoll::doc {

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || (static_cast<unsigned char>(c) & 0x80) != 0; }

// What would be read as markup. An underscore inside of a word is none, and brackets are only before an address or as a box to tick.
std::string markdown_text(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    const bool link = c == ']' && (next == '(' || next == ':'), box = c == '[' && i == 0 && text.size() > 2 && text[2] == ']';
    const bool inside = i > 0 && i + 1 < text.size() && is_word(text[i - 1]) && is_word(text[i + 1]);
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      if (c == '\\' || c == '`' || c == '*' || c == '|' || link || box || (c == '_' && !inside)) out += '\\';
      out += c;
    }
  }
  return out;
}

// Between as many backticks as it takes. In a table a bar ends the cell even here.
std::string in_code(const std::string& text) {
  size_t longest = 0, now = 0;
  std::string out;
  for (const char c : text) {
    now = c == '`' ? now + 1 : 0;
    longest = std::max(longest, now);
    if (c == '|') out += '\\';
    out += c;
  }
  const std::string fence(longest + 1, '`');
  const char* edge = longest > 0 ? " " : "";
  return fence + edge + out + edge + fence;
}

std::string emphasised(const std::string& text) {
  const size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  if (first == std::string::npos) return text;
  return text.substr(0, first) + "**" + text.substr(first, last - first + 1) + "**" + text.substr(last + 1);
}

// Markdown has no colours: what has one is bold.
Tone look_of(Tone tone) { return tone == Tone::good || tone == Tone::bad || tone == Tone::warn ? Tone::bold : tone; }

std::string markdown_of(const std::string& text, Tone look) {
  if (text.empty()) return "";
  if (look == Tone::code) return in_code(text);
  return look == Tone::bold ? emphasised(markdown_text(text)) : markdown_text(text);
}

// Neighbours that look alike are marked together.
std::string markdown_of(const Text& t) {
  std::string out, open;
  Tone look = Tone::plain;
  for (const Span& s : t.spans) {
    const std::string text = without_controls(print(s));
    if (text.empty()) continue;
    if (look_of(s.tone) != look) {
      out += markdown_of(open, look);
      open.clear();
      look = look_of(s.tone);
    }
    open += text;
  }
  return out + markdown_of(open, look);
}

class MarkdownRenderer {
 public:
  std::string render(const Document& d) {
    if (!d.title.empty()) out_ += "# " + markdown_of(d.title) + "\n";
    if (!d.headline.empty()) paragraph(markdown_of(d.headline));
    if (!d.note.empty()) paragraph(markdown_of(d.note));
    for (const Block& block : d.blocks) std::visit([this](const auto& b) { add(b); }, block);
    return out_;
  }

 private:
  void gap() {
    if (!out_.empty()) out_ += "\n";
  }

  void paragraph(std::string text) {
    if (text.empty()) return;
    if (text[0] == '#' || text[0] == '>' || text[0] == '+' || text[0] == '-') text.insert(0, "\\");
    gap();
    out_ += text + "\n";
  }

  void add(const Heading& h) {
    gap();
    out_ += std::string(static_cast<size_t>(h.level) + 1, '#') + " " + markdown_of(h.title) + "\n";
    paragraph(markdown_of(h.note));
  }

  void add(const Paragraph& p) { paragraph(markdown_of(p.text)); }

  void add(const List& l) {
    if (l.items.empty()) return;
    gap();
    for (size_t i = 0; i < l.items.size(); ++i) out_ += (l.numbered ? std::to_string(i + 1) + ". " : "- ") + markdown_of(l.items[i]) + "\n";
  }

  void cells(const std::vector<std::string>& texts) {
    out_ += "|";
    for (const std::string& text : texts) out_ += " " + text + " |";
    out_ += "\n";
  }

  void head(const std::vector<Column>& columns) {
    gap();
    std::vector<std::string> names;
    for (const Column& c : columns) names.push_back(markdown_of(c.name));
    cells(names);
    out_ += "|";
    for (const Column& c : columns) out_ += c.kind == Kind::text || c.kind == Kind::bar ? "---|" : "--:|";
    out_ += "\n";
  }

  // A share says as much as its bar.
  void add(const Table& whole) {
    Table t = whole;
    for (size_t c = t.columns.size(); c-- > 0;) {
      if (t.columns[c].kind != Kind::bar) continue;
      t.columns.erase(t.columns.begin() + static_cast<std::ptrdiff_t>(c));
      for (Row& r : t.rows)
        if (c < r.cells.size()) r.cells.erase(r.cells.begin() + static_cast<std::ptrdiff_t>(c));
    }
    if (t.rows.empty()) return;
    head(t.columns);
    for (const Row& r : t.rows) {
      std::vector<std::string> texts;
      for (size_t c = 0; c < t.columns.size(); ++c)
        texts.push_back(c >= r.cells.size() ? "" : markdown_of(r.emphasised ? bold(r.cells[c]) : r.cells[c]));
      for (const Text& detail : r.details)
        if (!detail.empty()) texts[0] += "<br>" + markdown_of(detail);
      cells(texts);
    }
  }

  void add(const Facts& f) {
    if (f.facts.empty()) return;
    const bool explained = std::any_of(f.facts.begin(), f.facts.end(), [](const Fact& fact) { return !fact.meaning.empty(); });
    head(explained ? std::vector<Column>{{""}, {""}, {""}} : std::vector<Column>{{""}, {""}});
    for (const Fact& fact : f.facts) {
      std::string name = markdown_of(fact.name);
      for (int i = 0; i < fact.level; ++i) name.insert(0, "&nbsp;&nbsp;");
      std::vector<std::string> texts{name, markdown_of(fact.value)};
      if (explained) texts.push_back(markdown_of(fact.meaning));
      cells(texts);
    }
  }

  void add(const Branch& b, int depth, Bytes whole) {
    std::string name = markdown_of(b.emphasised ? bold(b.name) : Text(b.name));
    for (int i = 0; i < depth; ++i) name.insert(0, "&nbsp;&nbsp;");
    cells({name, print(b.bytes), print(Share{b.bytes, whole})});
    for (const Branch& child : b.children) add(child, depth + 1, whole);
  }

  void add(const Tree& t) {
    if (t.branches.empty()) return;
    head({{"part"}, {"size", Kind::size}, {"share", Kind::percent}});
    for (const Branch& b : t.branches) add(b, 0, t.whole);
  }

  // A table of what it is made of says as much.
  void add(const Bar& b) {
    if (b.parts.empty()) return;
    head({{"part"}, {"size", Kind::size}, {"share", Kind::percent}});
    Bytes sum;
    for (const Bar::Part& p : b.parts) sum += p.bytes;
    for (const Bar::Part& p : b.parts) cells({markdown_of(p.name), print(p.bytes), print(Share{p.bytes, sum})});
    if (b.limit) cells({markdown_of(bold(b.limit_name)), print(*b.limit), ""});
  }

  // Its extent for each phase, in order: a row says what the picture does.
  void add(const Curve& c) {
    if (c.levels.empty()) return;
    head({{c.name}, {"lowest", Kind::size}, {"highest", Kind::size}});
    for (size_t i = 0; i < c.levels.size();) {
      const size_t begin = i;
      Bytes low = c.levels[i].bytes, high = low;
      for (; i < c.levels.size() && c.levels[i].phase == c.levels[begin].phase; ++i) {
        low = std::min(low, c.levels[i].bytes);
        high = std::max(high, c.levels[i].bytes);
      }
      cells({markdown_of(c.levels[begin].phase), print(low), print(high)});
    }
  }

  void fenced(const std::string& text, const char* language) {
    std::string fence = "```";
    while (text.find(fence) != std::string::npos) fence += '`';
    gap();
    out_ += fence + language + "\n" + text + (text.empty() || text.back() != '\n' ? "\n" : "") + fence + "\n";
  }

  void add(const Preformatted& p) { fenced(without_controls(p.text, true), p.difference ? "diff" : ""); }
  void add(const Command& c) { fenced(without_controls(c.line), "sh"); }
  void add(const Link& l) {
    std::string address;
    for (const char c : without_controls(l.address)) {
      if (c == '(' || c == ')' || c == '<' || c == '>' || c == '\\') address += '\\';
      address += c == ' ' ? std::string("%20") : std::string(1, c);
    }
    paragraph("[" + markdown_of(l.name) + "](" + address + ")");
  }

  std::string out_;
};

}  // namespace

std::string to_markdown(const Document& document) { return MarkdownRenderer().render(document); }

}  // namespace plimsoll::doc
