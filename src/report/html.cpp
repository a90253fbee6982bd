// A document as one page of HTML that needs nothing else.
#include <fmt/format.h>

#include <algorithm>

#include "report/display_width.h"
#include "report/renderers.h"
#include "report/web_files.h"

namespace plimsoll::doc {

namespace {

std::string html_text(const std::string& text, bool lines = false) {
  std::string out;
  for (const char c : without_controls(text, lines)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

// A size keeps its bytes, for whoever reads the page with a program or a pointer.
std::string html_of(const Span& s) {
  const std::string text = html_text(print(s));
  const auto* in = std::get_if<In>(&s.value);
  const auto* bytes = in ? &in->bytes : std::get_if<Bytes>(&s.value);
  return bytes ? fmt::format("<data value=\"{}\">{}</data>", bytes->count, text) : text;
}

std::string in_tone(const std::string& html, Tone tone) {
  if (html.empty()) return "";
  switch (tone) {
    case Tone::bold: return "<b>" + html + "</b>";
    case Tone::dim: return "<span class=\"soft\">" + html + "</span>";
    case Tone::code: return "<code>" + html + "</code>";
    case Tone::good: return "<span class=\"good\">" + html + "</span>";
    case Tone::bad: return "<span class=\"bad\">" + html + "</span>";
    case Tone::warn: return "<b style=\"color:var(--warn)\">" + html + "</b>";
    case Tone::plain: break;
  }
  return html;
}

// Neighbours of one tone are marked together.
std::string html_of(const Text& t) {
  std::string out, open;
  Tone tone = Tone::plain;
  for (const Span& s : t.spans) {
    if (s.tone != tone) {
      out += in_tone(open, tone);
      open.clear();
      tone = s.tone;
    }
    open += html_of(s);
  }
  return out + in_tone(open, tone);
}

class HtmlRenderer {
 public:
  std::string render(const Document& d) {
    for (const Block& block : d.blocks) std::visit([this](const auto& b) { add(b); }, block);
    close_section();
    const std::string title = html_text(d.title.empty() ? "Plimsoll" : d.title);
    return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
           "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src "
           "data:\">\n<title>" +
           title + "</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n" + std::string(web_report_css()) +
           std::string(web_document_css()) + "</style>\n</head>\n<body>\n<header>\n<h1>" + title + "</h1>\n" +
           (d.headline.empty() ? "" : "<p class=\"soft\">" + html_of(d.headline) + "</p>\n") +
           (d.note.empty() ? "" : "<p class=\"soft\">" + html_of(d.note) + "</p>\n") + "</header>\n<main>\n" + body_ +
           "</main>\n</body>\n</html>\n";
  }

 private:
  void open_section() {
    if (!open_) body_ += "<section>\n";
    open_ = true;
  }
  void close_section() {
    if (open_) body_ += "</section>\n";
    open_ = false;
  }
  void put(const std::string& html) {
    open_section();
    body_ += html;
  }

  void add(const Heading& h) {
    if (h.level == 1) close_section();
    const int level = std::min(h.level + 1, 6);
    put(fmt::format("<h{0}>{1}</h{0}>\n", level, html_of(h.title)));
    if (!h.note.empty()) put("<p class=\"note\">" + html_of(h.note) + "</p>\n");
  }

  void add(const Paragraph& p) { put("<p>" + html_of(p.text) + "</p>\n"); }

  void add(const List& l) {
    if (l.items.empty()) return;
    const char* kind = l.numbered ? "ol" : "ul";
    put(fmt::format("<{} class=\"plain\">\n", kind));
    for (const Text& item : l.items) put("<li>" + html_of(item) + "</li>\n");
    put(fmt::format("</{}>\n", kind));
  }

  static const char* class_of(Kind kind) { return kind == Kind::text || kind == Kind::bar ? "" : " class=\"n\""; }

  static std::string meter(const Share& s) {
    const double percent = s.whole.count > 0 ? 100.0 * static_cast<double>(s.part.count) / static_cast<double>(s.whole.count) : 0;
    return fmt::format("<span class=\"meter\"><i style=\"width:{:.1f}%\"></i></span>", std::clamp(percent, 0.0, 100.0));
  }

  static std::string cell(const Text& text, Kind kind) {
    if (kind == Kind::bar && text.is_number())
      if (const auto* share = std::get_if<Share>(&text.spans[0].value)) return meter(*share);
    return html_of(text);
  }

  void add(const Table& t) {
    if (t.rows.empty()) return;
    put("<div class=\"wide\"><table>\n");
    if (std::any_of(t.columns.begin(), t.columns.end(), [](const Column& c) { return !c.name.empty(); })) {
      put("<tr>");
      for (const Column& c : t.columns) put(fmt::format("<th{}>{}</th>", class_of(c.kind), html_of(c.name)));
      put("</tr>\n");
    }
    for (const Row& r : t.rows) {
      put(r.emphasised ? "<tr class=\"strong\">" : "<tr>");
      for (size_t c = 0; c < t.columns.size(); ++c)
        put(fmt::format("<td{}>{}</td>", class_of(t.columns[c].kind), c < r.cells.size() ? cell(r.cells[c], t.columns[c].kind) : ""));
      put("</tr>\n");
      for (const Text& detail : r.details)
        put(fmt::format("<tr class=\"detail\"><td colspan=\"{}\">{}</td></tr>\n", t.columns.size(), html_of(detail)));
    }
    put("</table></div>\n");
  }

  void add(const Facts& f) {
    if (f.facts.empty()) return;
    put("<div class=\"wide\"><table>\n");
    for (const Fact& fact : f.facts)
      put(fmt::format("<tr><th class=\"level{}\">{}</th><td{}>{}</td><td>{}</td></tr>\n", fact.level, html_of(fact.name),
                      fact.value.is_number() ? " class=\"n\"" : "", html_of(fact.value), html_of(fact.meaning)));
    put("</table></div>\n");
  }

  void add(const Branch& b, int depth, Bytes whole) {
    put(fmt::format("<tr{}><td style=\"padding-left:{}em\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
                    b.emphasised ? " class=\"strong\"" : "", depth, html_of(b.name), html_of(b.bytes), print(Share{b.bytes, whole}),
                    meter({b.bytes, whole})));
    for (const Branch& child : b.children) add(child, depth + 1, whole);
  }

  void add(const Tree& t) {
    if (t.branches.empty()) return;
    put("<div class=\"wide\"><table>\n");
    for (const Branch& b : t.branches) add(b, 0, t.whole);
    put("</table></div>\n");
  }

  // A scale of shares, the limit as a line across it.
  void add(const Bar& b) {
    int64_t sum = 0;
    for (const Bar::Part& p : b.parts) sum += p.bytes.count;
    const double whole = static_cast<double>(std::max<int64_t>({sum, b.limit ? b.limit->count : 0, 1}));
    const auto percent = [&](Bytes bytes) { return 100.0 * static_cast<double>(bytes.count) / whole; };
    std::string bar, legend;
    for (const Bar::Part& p : b.parts) {
      bar += fmt::format("<i title=\"{}: {}\" style=\"display:inline-block;height:100%;width:{:.2f}%;background:{}\"></i>",
                         html_text(p.name), print(p.bytes), percent(p.bytes), p.colour.hex);
      legend += fmt::format("<span style=\"margin-right:1em\"><i style=\"color:{}\">&#9632;</i> {} {}</span>", p.colour.hex,
                            html_text(p.name), html_of(Span{p.bytes}));
    }
    if (b.limit) {
      bar += fmt::format("<i style=\"position:absolute;top:0;bottom:0;left:{:.2f}%;border-left:2px solid var(--{})\"></i>",
                         std::min(percent(*b.limit), 99.8), sum > b.limit->count ? "bad" : "ink");
      legend += fmt::format("<span>{} {}</span>", html_text(b.limit_name), html_of(Span{*b.limit}));
    }
    put(
        fmt::format("<div style=\"position:relative;height:1.4em;background:var(--faint);font-size:1rem;line-height:0\">{}</div>\n"
                    "<p class=\"soft\">{}</p>\n",
                    bar, legend));
  }

  void add(const Curve& c) {
    constexpr int kHeight = 80, kStep = 8;
    if (c.levels.empty()) return;
    std::string bars, names;
    for (size_t i = 0; i < c.levels.size(); ++i) {
      const double share = static_cast<double>(c.levels[i].bytes.count) / static_cast<double>(std::max<int64_t>(c.whole.count, 1));
      const double height = std::clamp(share, 0.0, 1.0) * kHeight;
      bars += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\"><title>{}: {}</title></rect>", kStep * i,
                          kHeight - height, kStep - 1, height, html_text(c.levels[i].phase), print(c.levels[i].bytes));
      if (i == 0 || c.levels[i].phase != c.levels[i - 1].phase)
        names += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>", kStep * i, kHeight + 14, html_text(c.levels[i].phase));
    }
    put(fmt::format("<p>{}</p>\n<svg class=\"curve\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}{}</svg>\n", html_text(c.name),
                    kStep * c.levels.size(), kHeight + 20, html_text(c.name), bars, names));
  }

  void add(const Preformatted& p) { put("<pre>" + html_text(p.text, true) + "</pre>\n"); }
  void add(const Command& c) { put("<pre class=\"command\">" + html_text(c.line) + "</pre>\n"); }

  // Nothing but the web's own and relative addresses: a page must not run what a file said.
  void add(const Link& l) {
    const bool scheme = l.address.find(':') != std::string::npos;
    const bool safe = !scheme || l.address.starts_with("https://") || l.address.starts_with("http://");
    put("<p>" +
        (safe ? fmt::format("<a href=\"{}\">{}</a>", html_text(l.address), html_text(l.name)) : html_text(l.name + ": " + l.address)) +
        "</p>\n");
  }

  std::string body_;
  bool open_ = false;
};

}  // namespace

std::string to_html(const Document& document) { return HtmlRenderer().render(document); }

}  // namespace plimsoll::doc
