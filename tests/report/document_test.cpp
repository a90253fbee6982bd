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

doc::Bar three_parts(std::optional<Bytes> limit = {}) {
  const auto gib = [](int64_t n) { return Bytes{n << 30}; };
  return {
      {{"weights", gib(20), {25, "#0072b2", 'W'}}, {"states", gib(10), {178, "#e69f00", 'S'}}, {"rest", gib(10), {246, "#999999", 'x'}}},
      limit,
      "card"};
}

TEST(Bar, IsDrawnInLettersWithoutColours) {
  Style narrow;
  narrow.width = 44;  // 40 for the bar
  for (const bool unicode : {true, false}) {
    narrow.unicode = unicode;
    const std::vector<std::string> lines = lines_of(text(three_parts(), narrow));
    EXPECT_EQ(lines[0], "  " + std::string(20, 'W') + std::string(10, 'S') + std::string(10, 'x'));
    EXPECT_EQ(lines[1], "  W weights 20.0  S states 10.0");
    EXPECT_EQ(lines[2], "  x rest 10.0 GiB");
  }
}

TEST(Bar, MarksTheLimitInsideOrBehindIt) {
  Style narrow;
  narrow.width = 44;
  narrow.unicode = false;
  EXPECT_EQ(lines_of(text(three_parts(Bytes{int64_t{25} << 30}), narrow))[0],
            "  " + std::string(20, 'W') + std::string(5, 'S') + "|" + std::string(4, 'S') + std::string(10, 'x'));
  const std::vector<std::string> roomy = lines_of(text(three_parts(Bytes{int64_t{80} << 30}), narrow));
  EXPECT_EQ(roomy[0], "  " + std::string(10, 'W') + std::string(5, 'S') + std::string(5, 'x') + std::string(19, '.') + "|");
  EXPECT_EQ(roomy[2], "  | card 80.0 GiB");
}

TEST(Bar, HasTheColoursOfItsPartsInTextAndOnAPage) {
  Style colour;
  colour.colour = true;
  const std::string shown = text(three_parts(Bytes{int64_t{25} << 30}), colour);
  EXPECT_TRUE(holds(shown, "\033[38;5;25m█\033[0m"));
  EXPECT_TRUE(holds(shown, "\033[38;5;178m■\033[0m states 10.0"));
  EXPECT_TRUE(holds(shown, "\033[31m┃\033[0m"));  // over the limit
  const std::string page = html(three_parts(Bytes{int64_t{80} << 30}));
  for (const char* part : {"background:#0072b2", "width:25.00%", "weights", "card", "<data value=\"85899345920\">80.00 GiB</data>"})
    EXPECT_TRUE(holds(page, part)) << part;
  EXPECT_TRUE(holds(markdown(three_parts(Bytes{int64_t{80} << 30})), "| weights | 20.00 GiB | 50.0 % |"));
}

TEST(Sizes, OfOneColumnHaveOneUnit) {
  const doc::Unit unit = doc::unit_for(Bytes{int64_t{3} << 30});
  EXPECT_EQ(doc::print(doc::Text(doc::In{Bytes{int64_t{3} << 30}, unit})), "3.00 GiB");
  EXPECT_EQ(doc::print(doc::Text(doc::In{Bytes{32 << 20}, unit})), "0.03 GiB");
  EXPECT_EQ(doc::print(doc::Text(doc::In{Bytes{1536}, doc::unit_for(Bytes{4096})})), "1.50 KiB");
  EXPECT_EQ(doc::print(doc::Text(doc::In{Bytes{100}, doc::unit_for(Bytes{512})})), "100 B");
  EXPECT_TRUE(holds(text(doc::Tree{{{"a", Bytes{int64_t{3} << 30}}, {"b", Bytes{32 << 20}}}, Bytes{int64_t{3} << 30}}), "0.03 GiB"));
}

TEST(Command, IsContinuedWithABackslashWhereItIsToFit) {
  Style narrow;
  narrow.width = 40;
  const std::string line = "plimsoll plan gpt2 --config 'a=1 2' --config n_layer=10 --gpu rtx-4090";
  const std::string folded = text(doc::Command{line, true}, narrow);
  std::string joined;
  for (const std::string& l : lines_of(folded)) {
    EXPECT_LE(display_width(l), 40u) << l;
    const size_t first = l.find_first_not_of(' ');
    joined += l.ends_with(" \\") ? l.substr(first, l.size() - first - 1) : l.substr(first);
  }
  EXPECT_EQ(joined, line);
  EXPECT_EQ(text(doc::Command{line}, narrow), "  " + line + "\n");
}

TEST(Curve, KeepsLabelsApartAndFitsTheTerminal) {
  doc::Curve c{"over the step", {}, Bytes{64}};
  for (int i = 0; i < 58; ++i) c.levels.push_back({Bytes{i}, "forward"});
  for (int i = 0; i < 3; ++i) c.levels.push_back({Bytes{64}, "optimizer"});
  for (int i = 0; i < 3; ++i) c.levels.push_back({Bytes{8}, "ema"});
  Style narrow;
  narrow.width = 80;
  const std::vector<std::string> lines = lines_of(text(c, narrow));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_LE(display_width(lines[0]), 80u);
  EXPECT_FALSE(holds(lines[1], "optem")) << lines[1];
  for (int i = 0; i < 10; ++i) c.levels.insert(c.levels.end() - 3, {Bytes{64}, "optimizer"});
  EXPECT_TRUE(holds(lines_of(text(c, narrow))[1], "optimizer")) << lines_of(text(c, narrow))[1];
}

TEST(Names, ThatAreTooLongLoseTheirMiddle) {
  EXPECT_EQ(shortened("model.layers.0.mlp.down_proj", 12), "model…n_proj");
  EXPECT_EQ(shortened("short", 12), "short");
  doc::Table t{{{"name"}, {"size", Kind::size}}, {{{std::string(200, 'n'), Bytes{1 << 20}}}}};
  t.fitted = true;
  Style narrow;
  narrow.width = 80;
  for (const bool unicode : {true, false}) {
    narrow.unicode = unicode;
    for (const std::string& line : lines_of(text(t, narrow))) EXPECT_LE(display_width(line), 80u) << line;
  }
}

TEST(Tables, KeepToANarrowTerminal) {
  const std::string words = "activations on the host, cross-entropy in chunks, micro-batch 1 x 8 and everything in bf16";
  const std::string flags =
      "--batch 1 --precision bf16 --checkpointing --accumulation 8 --offload-optimizer --alloc-conf expandable_segments:True";
  const doc::Table t{{{"what would fit"}, {"needs", Kind::size}, {"ask for it"}}, {{{words, Bytes{int64_t{3} << 30}, doc::code(flags)}}}};
  Style narrow;
  for (const size_t width : {80u, 120u}) {
    narrow.width = width;
    const std::string shown = text(t, narrow);
    for (const std::string& line : lines_of(shown)) EXPECT_LE(display_width(line), width) << line;
    EXPECT_TRUE(holds(shown, "what would fit") && holds(shown, "3.00 GiB") && holds(shown, "expandable_segments:True")) << shown;
    EXPECT_TRUE(holds(shown, " \\\n")) << shown;  // a shell joins what was broken
  }
}

TEST(Tables, PutColumnsWithoutRoomBelowWithTheirNames) {
  doc::Table t{{{"name"}}, {{{"AdamW"}}}};
  for (int i = 0; i < 12; ++i) {
    t.columns.push_back({"column " + std::to_string(i), Kind::size});
    t.rows[0].cells.emplace_back(Bytes{int64_t{i + 1} << 30});
  }
  Style narrow;
  narrow.width = 80;
  const std::vector<std::string> lines = lines_of(text(t, narrow));
  for (const std::string& line : lines) EXPECT_LE(display_width(line), 80u) << line;
  EXPECT_FALSE(holds(lines[0], "column 11")) << lines[0];
  EXPECT_TRUE(holds(text(t, narrow), "column 11 12.00 GiB")) << text(t, narrow);
}

TEST(Facts, WhoseMeaningHasNoRoomSayItBelow) {
  Style narrow;
  narrow.width = 80;
  const doc::Facts facts{{{"lora", std::string(60, 'x'), "read from the command line, where it was given"}}};
  for (const std::string& line : lines_of(text(facts, narrow))) EXPECT_LE(display_width(line), 80u) << line;
  EXPECT_TRUE(holds(text(facts, narrow), "command line")) << text(facts, narrow);
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
