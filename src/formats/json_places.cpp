// Where the values of a JSON text are. The text was read before (job/document.cpp), so that this only has to find ends.
#include "formats/placed.h"
#include "job/job_file.h"
#include "util/error.h"

namespace plimsoll {

namespace {

class Scan {
 public:
  explicit Scan(const std::string& text) : text_(text) {}

  Placed whole() {
    Placed p = value(0);
    skip();
    if (at_ != text_.size()) stop();
    return p;
  }

 private:
  [[noreturn]] static void stop() { throw Error("[json] the text is no JSON", "fix the JSON"); }

  bool next_is(std::string_view word) const { return text_.compare(at_, word.size(), word) == 0; }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  // Blanks and comments.
  void skip() {
    for (;;) {
      at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
      if (next_is("//"))
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (next_is("/*"))
        at_ = std::min(text_.find("*/", at_ + 2), text_.size() - 2) + 2;
      else
        return;
    }
  }

  std::string text() {
    const size_t begin = at_;
    if (peek() != '"') stop();
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
      if (text_[at_] == '\\') ++at_;
    if (at_ >= text_.size()) stop();
    ++at_;
    const nlohmann::json parsed = nlohmann::json::parse(text_.substr(begin, at_ - begin), nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_string()) stop();
    return parsed.get<std::string>();
  }

  Placed value(int depth) {
    if (depth > 1000) stop();
    skip();
    Placed p;
    p.begin = at_;
    if (peek() == '{' || peek() == '[') {
      p.kind = peek() == '{' ? Placed::Kind::mapping : Placed::Kind::sequence;
      p.flow = true;
      members(p, depth);
    } else if (peek() == '"') {
      text();
    } else {
      at_ = std::min(text_.find_first_of(" \t\r\n,]}/", at_), text_.size());
      if (at_ == p.begin) stop();
    }
    p.end = at_;
    return p;
  }

  void members(Placed& p, int depth) {
    const char close = text_[at_++] == '{' ? '}' : ']';
    for (skip(); peek() != close; skip()) {
      if (!p.members.empty()) {
        if (peek() != ',') stop();
        ++at_;
        skip();
      }
      PlacedMember m;
      m.key_begin = at_;
      m.key = std::to_string(p.members.size());
      if (close == '}') {
        m.key = text();
        skip();
        if (peek() != ':') stop();
        ++at_;
      }
      m.value = value(depth + 1);
      p.members.push_back(std::move(m));
    }
    ++at_;
  }

  const std::string& text_;
  size_t at_ = 0;
};

}  // namespace

Placed place_json(const std::string& text) { return Scan(text).whole(); }

}  // namespace plimsoll
