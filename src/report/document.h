// What an answer says, as plain data: a title and blocks that know what they are (a table, a tree, facts, a curve), and nothing of what
// they are about. renderers.h makes text, Markdown and HTML of it; sizes stay `Bytes` until then. Not the data for programs: that is JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "util/bytes.h"

namespace plimsoll::doc {

// bad: over a limit, and nothing else; warn: near it.
enum class Tone : uint8_t { plain, bold, dim, code, good, bad, warn };

struct Change {  // "+1.25 GiB", "-3.00 MiB", "=" for none
  Bytes bytes;
};
struct Share {  // "12.5 %"; in a column of bars, a bar
  Bytes part, whole;
};
struct Count {  // "1,234"
  int64_t n = 0;
};

enum class Unit : uint8_t { bytes, kib, mib, gib };
// The one in which the largest of a column is read best; then the others have it too.
Unit unit_for(Bytes largest);
struct In {  // "0.03 GiB": sizes of a column in one unit, so that they can be compared by eye
  Bytes bytes;
  Unit unit = Unit::gib;
  int decimals = 2;
};

using Value = std::variant<std::string, Bytes, Change, Share, Count, In>;

struct Span {
  Value value;
  Tone tone = Tone::plain;
};

struct Text {
  std::vector<Span> spans;

  Text() = default;
  Text(std::string text) : spans{{std::move(text)}} {}
  Text(std::string_view text) : spans{{std::string(text)}} {}
  Text(const char* text) : spans{{std::string(text)}} {}
  Text(Bytes bytes) : spans{{bytes}} {}
  Text(Change change) : spans{{change}} {}
  Text(Share share) : spans{{share}} {}
  Text(Count count) : spans{{count}} {}
  Text(In size) : spans{{size}} {}

  bool empty() const;
  bool is_number() const;  // one span, and no string
  Text& operator+=(const Text& more);
};

inline Text operator+(Text a, const Text& b) { return a += b; }
// Spans that have a tone keep it.
Text toned(Text text, Tone tone);
inline Text bold(Text text) { return toned(std::move(text), Tone::bold); }
inline Text dim(Text text) { return toned(std::move(text), Tone::dim); }
inline Text code(Text text) { return toned(std::move(text), Tone::code); }
inline Text good(Text text) { return toned(std::move(text), Tone::good); }
inline Text bad(Text text) { return toned(std::move(text), Tone::bad); }
inline Text warn(Text text) { return toned(std::move(text), Tone::warn); }
// "1.20 GiB to 1.45 GiB".
Text interval(Bytes low, Bytes high);
Text joined(const std::vector<Text>& parts, const char* separator);

// The one way a value is printed, without its tone.
std::string print(const Span& span);
std::string print(const Text& text);

struct Heading {
  Text title;
  Text note = {};  // beside it, quieter
  int level = 1;
};

struct Paragraph {
  Text text;
};

struct List {
  std::vector<Text> items;
  bool numbered = false;
};

enum class Kind : uint8_t { text, number, size, percent, bar };  // all but text and bar stand to the right

struct Column {
  std::string name;
  Kind kind = Kind::text;
};

struct Row {
  std::vector<Text> cells;         // at most as many as columns
  std::vector<Text> details = {};  // lines under the row
  bool emphasised = false;
};

struct Table {
  std::vector<Column> columns;
  std::vector<Row> rows = {};
  bool fitted = false;  // on a terminal too narrow for it, names are shortened in the middle
};

struct Fact {
  std::string name;
  Text value;
  Text meaning = {};
  int level = 0;  // 1: a part of the one above
};

struct Facts {
  std::vector<Fact> facts;
};

struct Branch {
  std::string name;
  Bytes bytes;
  std::vector<Branch> children = {};
  bool emphasised = false;
};

struct Tree {
  std::vector<Branch> branches;
  Bytes whole;          // what shares and bars are of
  bool fitted = false;  // as of a table
};

// What a thing looks like wherever it is drawn: on a terminal with 256 colours, on a page, and without colours.
struct Colour {
  int ansi = 246;
  const char* hex = "#999999";
  char letter = 'o';
};

// Parts of a sum side by side, on a scale that ends at the limit, or at the sum where that is larger; a legend below.
struct Bar {
  struct Part {
    std::string name;
    Bytes bytes;
    Colour colour;
  };
  std::vector<Part> parts;
  std::optional<Bytes> limit = {};
  std::string limit_name = "limit";
};

struct Curve {
  struct Level {
    Bytes bytes;
    std::string phase;
  };
  std::string name;
  std::vector<Level> levels;  // one for each slice of time
  Bytes whole;
};

struct Preformatted {  // lines as they are
  std::string text;
  bool picture = false;     // drawn with marks that a terminal without Unicode has in ASCII
  bool difference = false;  // of a file: lines with + and - before them stand out
};

struct Command {  // to be copied into a shell
  std::string line;
  bool folded = false;  // longer than a line of the terminal: continued with a backslash
};

struct Link {
  std::string name, address;
};

using Block = std::variant<Heading, Paragraph, List, Table, Facts, Tree, Bar, Curve, Preformatted, Command, Link>;
using Blocks = std::vector<Block>;

struct Document {
  std::string title;   // may be empty: blocks begin at once
  Text headline = {};  // beside or below the title
  Blocks blocks = {};
  Text note = {};  // a line of its own below the title
};

void append(Blocks& to, Blocks more);
// What was made elsewhere, as it is: a file, a difference, a schema.
Document preformatted(std::string text);

// Changes every string that is read as language, in place: names of columns and facts, headings, spans that are no code.
void for_each_phrase(Document& document, const std::function<void(std::string&)>& change);

}  // namespace plimsoll::doc
