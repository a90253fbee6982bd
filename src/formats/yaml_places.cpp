// Where the values of a YAML text are: yaml-cpp's events say where each begins, and scalars where they end.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/mark.h>

#include <algorithm>
#include <set>

#include "formats/placed.h"
#include "job/yaml_reader.h"
#include "util/error.h"

namespace plimsoll {

namespace {

class Places : public YAML::EventHandler {
 public:
  explicit Places(const std::string& text) : text_(text) {}

  // An anchor that an alias uses is a value of two places.
  Placed take() {
    mark(root_);
    return std::move(root_);
  }

  void OnDocumentStart(const YAML::Mark&) override {
    if (documents_++ > 0) throw Error("[yaml] the text holds a second document", "keep one");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(scalar(mark, "", "?", anchor, /*null=*/true)); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
    if (!stack_.empty() && stack_.back().place.kind == Placed::Kind::mapping && !stack_.back().has_key) {
      Level& level = stack_.back();
      const Placed key = scalar(mark, text, tag, anchor, false);
      level.key = text;
      level.key_begin = key.begin;
      level.has_key = true;
      const size_t colon = text_.find_first_not_of(" \t", key.end);
      level.behind = colon != std::string::npos && text_[colon] == ':' ? colon + 1 : std::string::npos;
      return;
    }
    add(scalar(mark, text, tag, anchor, false));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    aliased_.insert(anchor);
    Placed p;
    p.begin = position(mark);
    p.end = std::min(text_.find_first_of(" \t\r\n,]}#", p.begin), text_.size());
    p.refused = "it is an alias (*) of a value elsewhere";
    add(std::move(p));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, YAML::EmitterStyle::value style) override {
    open(mark, Placed::Kind::sequence, anchor, style);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, YAML::EmitterStyle::value style) override {
    open(mark, Placed::Kind::mapping, anchor, style);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Level {
    Placed place;
    std::string key;
    size_t key_begin = 0;
    size_t behind = std::string::npos;  // the colon
    bool has_key = false;
  };

  size_t position(const YAML::Mark& mark) const { return std::min(static_cast<size_t>(std::max(mark.pos, 0)), text_.size()); }

  Placed scalar(const YAML::Mark& mark, const std::string& value, const std::string& tag, YAML::anchor_t anchor, bool null) {
    Placed p;
    p.begin = p.end = position(mark);
    if (null) {
      const size_t behind = stack_.empty() ? std::string::npos : stack_.back().behind;
      if (behind == std::string::npos) {
        p.refused = "a value is left out there";
        return p;
      }
      p.begin = p.end = behind;
      const size_t word = text_.find_first_not_of(" \t", behind);
      for (const char* name : {"~", "null", "Null", "NULL"}) {
        if (word == std::string::npos || text_.compare(word, std::string_view(name).size(), name) != 0) continue;
        p.begin = word;
        p.end = word + std::string_view(name).size();
      }
      if (anchor) p.refused = "it has an anchor (&)";
      return p;
    }
    if (anchor) {
      p.refused = "it has an anchor (&)";
    } else if (tag != "?" && tag != "!" && !tag.empty()) {
      p.refused = "it has a tag (!)";
    } else if (p.begin < text_.size() && (text_[p.begin] == '"' || text_[p.begin] == '\'')) {
      p.end = end_of_quotes(p.begin);
    } else if (p.begin < text_.size() && text_[p.begin] != '|' && text_[p.begin] != '>' &&
               text_.compare(p.begin, value.size(), value) == 0) {
      p.end = p.begin + value.size();
    } else {
      p.refused = "its text goes over several lines";
    }
    if (p.refused.empty() && text_.substr(p.begin, p.end - p.begin).find('\n') != std::string::npos)
      p.refused = "its text goes over several lines";
    return p;
  }

  size_t end_of_quotes(size_t begin) const {
    const char quote = text_[begin];
    for (size_t i = begin + 1; i < text_.size(); ++i) {
      if (quote == '"' && text_[i] == '\\') {
        ++i;
      } else if (text_[i] == quote) {
        if (quote == '"' || i + 1 >= text_.size() || text_[i + 1] != quote) return i + 1;
        ++i;
      }
    }
    return text_.size();
  }

  // The bracket that closes the one at `begin`, behind the last value in it.
  size_t end_of_flow(const Placed& p) const {
    size_t at = p.members.empty() ? p.begin + 1 : p.members.back().value.end;
    const char close = p.kind == Placed::Kind::mapping ? '}' : ']';
    while (at < text_.size() && text_[at] != close) {
      if (text_[at] == '#') at = std::min(text_.find('\n', at), text_.size() - 1);
      ++at;
    }
    return std::min(at + 1, text_.size());
  }

  void open(const YAML::Mark& mark, Placed::Kind kind, YAML::anchor_t anchor, YAML::EmitterStyle::value style) {
    Level level;
    level.place.kind = kind;
    level.place.begin = position(mark);
    level.place.flow = style == YAML::EmitterStyle::Flow;
    if (anchor) anchored_.emplace_back(anchor, level.place.begin);
    stack_.push_back(std::move(level));
  }

  void close() {
    Placed done = std::move(stack_.back().place);
    stack_.pop_back();
    if (done.flow)
      done.end = end_of_flow(done);
    else
      done.end = done.members.empty() ? done.begin : done.members.back().value.end;
    add(std::move(done));
  }

  void add(Placed p) {
    if (stack_.empty()) {
      root_ = std::move(p);
      return;
    }
    Level& level = stack_.back();
    const bool keyed = level.place.kind == Placed::Kind::mapping;
    if (keyed && !level.has_key) throw Error("[yaml] a key is not a word", "keys are plain words");
    level.place.members.push_back({keyed ? level.key : std::to_string(level.place.members.size()), level.key_begin, std::move(p)});
    level.has_key = false;
    level.behind = std::string::npos;
  }

  void mark(Placed& p) const {
    for (const auto& [anchor, begin] : anchored_)
      if (begin == p.begin && p.kind != Placed::Kind::scalar && aliased_.contains(anchor))
        p.refused = "its section has an anchor (&) and is used elsewhere, too";
    for (PlacedMember& m : p.members) mark(m.value);
  }

  const std::string& text_;
  Placed root_;
  std::vector<Level> stack_;
  std::vector<std::pair<YAML::anchor_t, size_t>> anchored_;
  std::set<YAML::anchor_t> aliased_;
  int documents_ = 0;
};

}  // namespace

Placed place_yaml(const std::string& text, const std::string& name) {
  Places places(text);
  handle_yaml_events(text, name, places);
  return places.take();
}

}  // namespace plimsoll
