#include "job/yaml_reader.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "job/settings.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDepth = 64;
constexpr int64_t kMaxValues = 100'000;  // an alias of an alias of an alias ... grows fast

class Builder : public YAML::EventHandler {
 public:
  explicit Builder(const std::string& name) : name_(name) {}
  Json take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) fail(mark, "starts a second document", "keep one, and look for a stray ',' ']' or '}'");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { value(mark, anchor, {nullptr, 1, 0}); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
    const bool quoted = tag == "!";
    if (!stack_.empty() && stack_.back().wants_key()) return key(mark, text, quoted);
    value(mark, anchor, {quoted ? Json(text) : plain(text), 1 + weight_of(text), 0});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) fail(mark, "uses an alias inside its own anchor", "write the value out");
    if (stack_.size() + it->second.depth > kMaxDepth) too_deep(mark);
    count(mark, it->second.weight);
    value(mark, 0, it->second);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, anchor, Json::array());
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, anchor, Json::object());
  }
  void OnMapEnd() override { close(); }

 private:
  // A value with what an alias of it costs: values and text in it, and how deep it nests.
  struct Value {
    Json json;
    int64_t weight = 1;
    size_t depth = 0;
  };

  struct Level {
    Value value;
    YAML::anchor_t anchor;
    YAML::Mark mark;
    std::string key;
    bool has_key = false;
    bool merging = false;       // the key is `<<`
    std::optional<Json> merge;  // what it had: a mapping, or a list of them
    bool wants_key() const { return value.json.is_object() && !has_key; }
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what, const char* hint) const {
    throw Error(fmt::format("[yaml] {}:{} {}", name_, mark.line + 1, what), hint);
  }

  [[noreturn]] void too_deep(const YAML::Mark& mark) const { fail(mark, fmt::format("nests deeper than {}", kMaxDepth), "flatten it"); }

  static int64_t weight_of(const std::string& text) { return static_cast<int64_t>(text.size() / 64); }

  void count(const YAML::Mark& mark, int64_t more) {
    values_ += more;
    if (values_ > kMaxValues) fail(mark, fmt::format("holds more than {} values", kMaxValues), "this is not a configuration file");
  }

  static Json plain(const std::string& text) {
    if (text == "yes" || text == "on") return true;
    if (text == "no" || text == "off") return false;
    return parse_scalar(text);
  }

  void key(const YAML::Mark& mark, const std::string& text, bool quoted) {
    Level& level = stack_.back();
    level.merging = text == "<<" && !quoted;
    if (level.merging ? level.merge.has_value() : level.value.json.contains(text))
      fail(mark, fmt::format("repeats '{}'", text), "keep one of them; several mappings are merged as <<: [*a, *b]");
    level.value.weight += weight_of(text);
    level.key = text;
    level.has_key = true;
  }

  void open(const YAML::Mark& mark, YAML::anchor_t anchor, Json empty) {
    if (!stack_.empty() && stack_.back().wants_key()) fail(mark, "has a key that is not a word", "keys are plain words");
    if (stack_.size() >= kMaxDepth) too_deep(mark);
    stack_.push_back({{std::move(empty), 1, 0}, anchor, mark, "", false, false, std::nullopt});
  }

  // Keys of the mapping itself win over merged ones, and those of an earlier mapping over a later one.
  void merge(Level& level) {
    const Json& merged = *level.merge;
    for (const Json& mapping : merged.is_array() ? merged : Json::array({merged})) {
      if (!mapping.is_object()) fail(level.mark, "merges '<<' what is no mapping", "an alias of a mapping, or a list of such");
      for (const auto& item : mapping.items())
        if (!level.value.json.contains(item.key())) level.value.json[item.key()] = item.value();
    }
  }

  void close() {
    Level done = std::move(stack_.back());
    stack_.pop_back();
    if (done.merge) merge(done);
    value(done.mark, done.anchor, std::move(done.value));
  }

  void value(const YAML::Mark& mark, YAML::anchor_t anchor, Value v) {
    count(mark, 1);
    if (anchor) anchors_[anchor] = v;
    if (stack_.empty()) {
      root_ = std::move(v.json);
      return;
    }
    Level& level = stack_.back();
    level.value.weight += v.weight;
    level.value.depth = std::max(level.value.depth, v.depth + 1);
    if (level.value.json.is_array()) {
      level.value.json.push_back(std::move(v.json));
    } else if (!level.has_key) {
      fail(mark, "has a key that is not a word", "keys are plain words");
    } else if (level.merging) {
      level.merge = std::move(v.json);
      level.has_key = false;
    } else {
      level.value.json[level.key] = std::move(v.json);
      level.has_key = false;
    }
  }

  const std::string& name_;
  Json root_ = Json::object();
  std::vector<Level> stack_;
  std::map<YAML::anchor_t, Value> anchors_;
  int documents_ = 0;
  int64_t values_ = 0;
};

}  // namespace

void handle_yaml_events(const std::string& text, const std::string& name, YAML::EventHandler& handler) {
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(handler)) {
    }
  } catch (const YAML::Exception& e) {
    throw Error(fmt::format("[yaml] {}:{}: {}", name, e.mark.line + 1, e.msg), "fix the YAML at that line");
  }
}

Json parse_yaml_text(const std::string& text, const std::string& name) {
  Builder builder(name);
  handle_yaml_events(text, name, builder);
  return builder.take();
}

}  // namespace plimsoll
