// A document and its three renderings: what is escaped, what is aligned, and that all of them say the same.
#include <gtest/gtest.h>

#include "report/display_width.h"
#include "report/renderers.h"

namespace plimsoll::document_test {
namespace {

using doc::Kind;

doc::Document with(doc::Block block) { return {"", {}, {std::move(block)}}; }
std::string text(doc::Block block, const Style& style = {}) { return doc::to_text(with(std::move(block)), style); }
std::string markdown(doc::Block block) { return doc::to_markdown(with(std::move(block))); }
std::string html(doc::Block block) { return doc::to_html(with(std::move(block))); }
bool holds(const std::string& whole, const std::string& part) { return whole.find(part) != std::string::npos; }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == '\n') {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  out.pop_back();
  return out;
}

doc::Table sizes() {
  return {{{"name"}, {"size", Kind::size}, {"change", Kind::size}, {"share", Kind::percent}, {"meaning"}},
          {{{"weights", Bytes{int64_t{3} << 30}, doc::Change{Bytes{-(1 << 20)}}, doc::Share{Bytes{1}, Bytes{4}}, "of the model"}},
           {{"total", Bytes{int64_t{12} << 30}, doc::Change{}, doc::Share{Bytes{4}, Bytes{4}}, ""}, {}, true}}};
}

TEST(Text, KeepsItsSizesUntilItIsPrinted) {
  const doc::Text t = doc::dim(doc::Text("needs ") + Bytes{1 << 30} + " of " + doc::bold("24"));
  ASSERT_EQ(t.spans.size(), 4u);
  EXPECT_TRUE(std::holds_alternative<Bytes>(t.spans[1].value));
  EXPECT_EQ(t.spans[1].tone, doc::Tone::dim);
  EXPECT_EQ(t.spans[3].tone, doc::Tone::bold);  // a tone that is there stays
  EXPECT_EQ(doc::print(t), "needs 1.00 GiB of 24");
}

TEST(Text, SignsAChange) {
  EXPECT_EQ(doc::print(doc::Text(doc::Change{Bytes{1 << 30}})), "+1.00 GiB");
  EXPECT_EQ(doc::print(doc::Text(doc::Change{Bytes{-(1 << 30)}})), "-1.00 GiB");
  EXPECT_EQ(doc::print(doc::Text(doc::Change{})), "=");
}

TEST(Renderers, SayTheSameCells) {
  const doc::Document d{"A run",
                        "with a headline",
                        {doc::Heading{"Sizes", "a note"}, sizes(), doc::Facts{{{"peak", Bytes{5 << 20}, "measured"}}},
                         doc::List{{"first", "second"}}, doc::Command{"plimsoll estimate gpt2"}}};
  for (const std::string& form : {doc::to_text(d, {}), doc::to_markdown(d), doc::to_html(d)})
    for (const char* part :
         {"A run", "with a headline", "Sizes", "a note", "name", "weights", "3.00 GiB", "-1.00 MiB", "25.0 %", "of the model", "total",
          "12.00 GiB", "100.0 %", "peak", "5.00 MiB", "measured", "first", "second", "plimsoll estimate gpt2"})
      EXPECT_TRUE(holds(form, part)) << part << "\n" << form;
}

TEST(TextRenderer, AlignsNumbersToTheRight) {
  const std::vector<std::string> lines = lines_of(text(sizes()));
  ASSERT_EQ(lines.size(), 3u);
  const size_t end = lines[0].find("size") + 4;
  EXPECT_EQ(lines[1].find("3.00 GiB") + 8, end);
  EXPECT_EQ(lines[2].find("12.00 GiB") + 9, end);
}

TEST(TextRenderer, AlignsByColumnsOfTheScreenNotByBytes) {
  const doc::Table t{
      {{"name"}, {"size", Kind::size}},
      {{{"名前", Bytes{1 << 20}}}, {{"Tổng cộng", Bytes{1 << 20}}}, {{"e\u0301tat", Bytes{1 << 20}}}, {{"plain", Bytes{1 << 20}}}}};
  const std::vector<std::string> lines = lines_of(text(t));
  for (const std::string& line : lines) EXPECT_EQ(display_width(line), display_width(lines[0])) << line;
}

TEST(TextRenderer, WrapsProseAndTheLastColumn) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += "word ";
  Style narrow;
  narrow.width = 80;
  for (const doc::Block& block : {doc::Block(doc::Paragraph{words}), doc::Block(doc::Table{{{"a"}, {"b"}}, {{{"name", words}}}}),
                                  doc::Block(doc::Facts{{{"name", Bytes{1}, words}}}), doc::Block(doc::List{{words}})}) {
    const std::vector<std::string> lines = lines_of(text(block, narrow));
    EXPECT_GT(lines.size(), 3u);
    for (const std::string& line : lines) EXPECT_LE(display_width(line), 80u) << line;
  }
}

TEST(TextRenderer, NeutralisesTerminalEscapes) {
  const std::string evil = "a\033]0;title\007\x1b[31mred\r\u009b2J\x7f";
  for (const doc::Block& block : {doc::Block(doc::Paragraph{evil}), doc::Block(doc::Table{{{evil}}, {{{evil}, {evil}}}}),
                                  doc::Block(doc::Facts{{{evil, evil, evil}}}), doc::Block(doc::Tree{{{evil, Bytes{1}}}, Bytes{1}}),
                                  doc::Block(doc::Command{evil})}) {
    for (const std::string& form : {text(block), markdown(block)})
      for (const char* bad : {"\033", "\007", "\r", "\u009b", "\x7f"}) EXPECT_FALSE(holds(form, bad)) << form;
  }
  EXPECT_FALSE(holds(text(doc::Preformatted{evil}), "\033"));
}

TEST(TextRenderer, PaintsOnlyWithColour) {
  Style colour;
  colour.colour = true;
  EXPECT_EQ(text(doc::Paragraph{doc::bad("does not fit")}, colour), "\033[31mdoes not fit\033[0m\n");
  EXPECT_EQ(text(doc::Paragraph{doc::bad("does not fit")}), "does not fit\n");
}

TEST(TextRenderer, HasNoUnicodeWhereThereIsNone) {
  const Style ascii{false, false};
  const doc::Document d{"",
                        {},
                        {doc::Paragraph{"a → b"}, doc::Tree{{{"x", Bytes{4}}}, Bytes{8}},
                         doc::Curve{"over time", {{Bytes{1}, "up"}, {Bytes{2}, "up"}}, Bytes{2}}, doc::Preformatted{"│ ◆\n", true}}};
  for (const char c : doc::to_text(d, ascii)) EXPECT_GE(c, 0) << doc::to_text(d, ascii);
}

TEST(Renderers, LeaveOutATableWithoutRows) {
  const doc::Table empty{{{"name"}, {"size", Kind::size}}};
  EXPECT_EQ(markdown(empty), "");
  EXPECT_FALSE(holds(html(empty), "<table"));
  EXPECT_EQ(text(doc::Table{}), "");
}

TEST(MarkdownRenderer, EscapesWhatWouldBeMarkup) {
  EXPECT_EQ(markdown(doc::Paragraph{"a|b <script> & *c* `d` [e](f) [g] _f_ max_memory \\"}),
            "a\\|b &lt;script> &amp; \\*c\\* \\`d\\` [e\\](f) [g] \\_f\\_ max_memory \\\\\n");
  EXPECT_EQ(markdown(doc::Paragraph{doc::code("a`b")}), "`` a`b ``\n");
  EXPECT_EQ(markdown(doc::Table{{{"a"}}, {{{doc::code("x|y")}}}}), "| a |\n|---|\n| `x\\|y` |\n");
  EXPECT_TRUE(holds(markdown(doc::Preformatted{"```\nx"}), "````\n```\nx\n````"));
}

TEST(MarkdownRenderer, MarksNeighboursOfOneToneTogether) {
  EXPECT_EQ(markdown(doc::Paragraph{doc::bold(doc::Text(Bytes{1 << 30}) + " (" + doc::Count{1 << 30} + " B)")}),
            "**1.00 GiB (1,073,741,824 B)**\n");
}

TEST(HtmlRenderer, EscapesWhatWouldBeMarkup) {
  const std::string page = html(doc::Paragraph{"<script>alert('x')</script> & \"y\""});
  EXPECT_TRUE(holds(page, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot;"));
  EXPECT_FALSE(holds(page, "<script"));
  EXPECT_FALSE(holds(html(doc::Link{"x", "javascript:alert(1)"}), "href=\"javascript"));
  EXPECT_TRUE(holds(html(doc::Link{"x", "docs/a.md?b&c"}), "href=\"docs/a.md?b&amp;c\""));
}

TEST(HtmlRenderer, NeedsNothingElseAndKeepsTheBytes) {
  const std::string page = html(sizes());
  for (const char* part : {"src=", "@import", "http://", "https://"}) EXPECT_FALSE(holds(page, part)) << part;
  EXPECT_TRUE(holds(page, "<data value=\"3221225472\">3.00 GiB</data>"));
}

TEST(HtmlRenderer, IsRedOnlyForWhatIsOverTheLimit) {
  EXPECT_TRUE(holds(html(doc::Paragraph{doc::bad("does not fit")}), "<span class=\"bad\">does not fit</span>"));
  EXPECT_FALSE(holds(html(sizes()), "class=\"bad\""));
}

TEST(Document, HandsOutEveryPhraseButCode) {
  doc::Document d{"title", "headline", {doc::Heading{"heading"}, sizes(), doc::Paragraph{doc::code("code") + " prose"}}};
  std::vector<std::string> seen;
  doc::for_each_phrase(d, [&](std::string& phrase) { seen.push_back(phrase), phrase = "x"; });
  for (const char* phrase : {"title", "headline", "heading", "name", "weights", "of the model", " prose"})
    EXPECT_NE(std::find(seen.begin(), seen.end(), phrase), seen.end()) << phrase;
  EXPECT_EQ(std::find(seen.begin(), seen.end(), "code"), seen.end());
  EXPECT_EQ(d.title, "x");
}

}  // namespace
}  // namespace plimsoll::document_test
