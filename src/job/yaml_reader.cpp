#include "job/yaml_reader.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "job/settings.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDepth = 64;
constexpr int kMaxValues = 100'000;  // an alias of an alias of an alias ... grows fast

class Builder : public YAML::EventHandler {
 public:
  explicit Builder(const std::string& name) : name_(name) {}
  Json take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) fail(mark, "starts a second document", "keep one, and look for a stray ',' ']' or '}'");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { value(mark, anchor, nullptr); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
    if (!stack_.empty() && stack_.back().wants_key()) return key(mark, text);
    value(mark, anchor, tag == "!" ? Json(text) : plain(text));  // "!": quoted
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) fail(mark, "uses an alias inside its own anchor", "write the value out");
    count(mark, static_cast<int>(it->second.flatten().size()));
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
  struct Level {
    Json value;
    YAML::anchor_t anchor;
    YAML::Mark mark;
    std::string key;
    bool has_key = false;
    bool wants_key() const { return value.is_object() && !has_key; }
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what, const char* hint) const {
    throw Error(fmt::format("[yaml] {}:{} {}", name_, mark.line + 1, what), hint);
  }

  void count(const YAML::Mark& mark, int more) {
    values_ += more;
    if (values_ > kMaxValues) fail(mark, fmt::format("holds more than {} values", kMaxValues), "this is not a configuration file");
  }

  static Json plain(const std::string& text) {
    if (text == "yes" || text == "on") return true;
    if (text == "no" || text == "off") return false;
    return parse_scalar(text);
  }

  void key(const YAML::Mark& mark, const std::string& text) {
    Level& level = stack_.back();
    if (text == "<<") fail(mark, "uses a merge key '<<'", "write the settings out");
    if (level.value.contains(text)) fail(mark, fmt::format("repeats '{}'", text), "keep one of them");
    level.key = text;
    level.has_key = true;
  }

  void open(const YAML::Mark& mark, YAML::anchor_t anchor, Json empty) {
    if (!stack_.empty() && stack_.back().wants_key()) fail(mark, "has a key that is not a word", "keys are plain words");
    if (stack_.size() >= kMaxDepth) fail(mark, fmt::format("nests deeper than {}", kMaxDepth), "flatten it");
    stack_.push_back({std::move(empty), anchor, mark, "", false});
  }

  void close() {
    Level done = std::move(stack_.back());
    stack_.pop_back();
    value(done.mark, done.anchor, std::move(done.value));
  }

  void value(const YAML::Mark& mark, YAML::anchor_t anchor, Json v) {
    count(mark, 1);
    if (anchor) anchors_[anchor] = v;
    if (stack_.empty()) {
      root_ = std::move(v);
      return;
    }
    Level& level = stack_.back();
    if (level.value.is_array()) {
      level.value.push_back(std::move(v));
    } else if (!level.has_key) {
      fail(mark, "has a key that is not a word", "keys are plain words");
    } else {
      level.value[level.key] = std::move(v);
      level.has_key = false;
    }
  }

  const std::string& name_;
  Json root_ = Json::object();
  std::vector<Level> stack_;
  std::map<YAML::anchor_t, Json> anchors_;
  int documents_ = 0, values_ = 0;
};

}  // namespace

Json parse_yaml_text(const std::string& text, const std::string& name) {
  Builder builder(name);
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    throw Error(fmt::format("[yaml] {}:{}: {}", name, e.mark.line + 1, e.msg), "fix the YAML at that line");
  }
  return builder.take();
}

}  // namespace plimsoll
