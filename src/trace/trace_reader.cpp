#include "trace/trace_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "trace/trace_file.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr uint32_t kMostStorages = UINT32_MAX - 1;
// Bounds for files that nobody's capture writes: the largest captures that were made have about a hundred formulas and guards.
constexpr size_t kMostFormulas = 1 << 20, kMostNames = 1 << 12, kMostConditions = 1 << 20;
constexpr int64_t kLargestSymbol = int64_t{1} << 32;
constexpr int64_t kMostWork = INT64_MAX;

}  // namespace

SymbolSizes checked_sizes(const TraceLine& l, const CapturedTrace& trace) {
  l.only({"checked"});
  const nlohmann::json& sizes = l.value("checked");
  if (!sizes.is_object() || sizes.empty()) l.refuse("'checked' is not {NAME: SIZE}");
  SymbolSizes out;
  for (const auto& item : sizes.items()) {
    if (!trace.find_symbol(item.key())) l.refuse(fmt::format("'{}' is no symbol", printable(item.key(), 60)));
    if (!item.value().is_number_unsigned() || item.value().get<uint64_t>() > static_cast<uint64_t>(kLargestSymbol))
      l.refuse(fmt::format("'{}' is not a size", printable(item.key(), 60)));
    out[item.key()] = item.value().get<int64_t>();
  }
  return out;
}

void TraceReader::feed(std::string_view text) {
  ++line_;
  if (text.find_first_not_of(" \t\r") == std::string_view::npos) return;
  TraceLine l(file_, line_);
  l.parse(text);
  if (!started_) return start(l);
  if (!feed_event(l) && !(strict() && feed_of_version_2(l))) l.refuse("no event in it");
}

bool TraceReader::feed_event(const TraceLine& l) {
  if (l.has("alloc")) {
    alloc(l);
  } else if (strict() && l.has("work")) {
    work(l);
  } else if (l.has("scope")) {
    scope(l);
  } else if (l.has("free")) {
    free(l);
  } else if (l.has("relabel")) {
    if (strict()) l.only({"relabel", "category"});
    add(Event::Kind::relabel, category(l), living(l, "relabel"));
  } else if (l.has("phase")) {
    if (strict()) l.only({"phase"});
    add(Event::Kind::phase, phase(l), 0);
  } else if (l.has("step")) {
    if (strict()) l.only({"step"});
    add(Event::Kind::step, 0, 0);
  } else {
    return false;
  }
  return true;
}

bool TraceReader::feed_of_version_2(const TraceLine& l) {
  if (l.has("symbol")) {
    symbol(l);
  } else if (l.has("formula")) {
    formula(l);
  } else if (l.has("guard") || l.has("pin")) {
    condition(l, l.has("guard") ? "guard" : "pin");
  } else if (l.has("count")) {
    count(l);
  } else if (l.has("read")) {
    read(l);
  } else if (l.has("skipped") || l.has("note")) {
    note(l, l.has("skipped") ? "skipped" : "note");
  } else if (l.has("checked")) {
    out_.checked.push_back(checked_sizes(l, out_));
  } else {
    return false;
  }
  return true;
}

CapturedTrace TraceReader::finish() {
  TraceLine end(file_, line_);
  if (!started_) end.refuse("empty");
  if (steps_ >= 0 && out_.steps() != steps_)
    end.refuse(fmt::format("the first line says {} steps, and {} are there: the file is cut off, or the script ended early", steps_,
                           out_.steps()));
  if (strict()) {
    settle_conditions();
    settle_sizes();
    check_at_base();
  }
  return std::move(out_);
}

void TraceReader::settle_conditions() {
  for (Written& c : conditions_) {
    try {
      out_.conditions.push_back({Formula::condition(c.text, out_.names), c.pin, std::move(c.where)});
    } catch (const Error& e) {
      TraceLine(file_, c.line).refuse(e.what());
    }
  }
}

// Storages with a formula have the bytes of the captured sizes.
void TraceReader::settle_sizes() {
  if (formula_places_.empty()) return;
  out_.storage_formula.resize(out_.program.storages.size(), -1);
  out_.program = out_.evaluate(out_.values({}));
}

void TraceReader::check_at_base() const {
  const std::vector<const CapturedCondition*> broken = out_.broken(out_.values({}));
  if (broken.empty()) return;
  TraceLine(file_, line_)
      .refuse(fmt::format("'{}' of {} does not hold at the sizes of the capture itself", printable(broken[0]->condition.text(), 120),
                          printable(broken[0]->where, 120)));
}

void TraceReader::start(const TraceLine& l) {
  if (!l.has("plimsoll_trace")) l.refuse("the first line is not {\"plimsoll_trace\": 1}");
  const int64_t version = l.integer("plimsoll_trace", INT64_MAX);
  if (version != 1 && version != 2) l.refuse(fmt::format("version {} of the format is not known", version));
  out_.version = static_cast<int>(version);
  started_ = true;
  if (!strict()) return;
  l.only({"plimsoll_trace", "torch", "script", "device", "steps", "command"});
  out_.torch = l.text("torch");
  out_.script = l.text("script");
  out_.device = l.text_or_nothing("device");
  out_.command = command_of(l);
  if (l.has("steps")) steps_ = l.integer("steps", INT32_MAX);
}

std::vector<std::string> TraceReader::command_of(const TraceLine& l) const {
  std::vector<std::string> out;
  if (!l.has("command")) return out;
  const nlohmann::json& words = l.value("command");
  if (!words.is_array()) l.refuse("'command' is not a list of words");
  for (const nlohmann::json& word : words) {
    if (!word.is_string()) l.refuse("'command' is not a list of words");
    out.push_back(word.get<std::string>());
  }
  return out;
}

uint8_t TraceReader::category(const TraceLine& l) const {
  const std::string name = l.text("category");
  for (int c = 0; c < kCategories; ++c)
    if (category_name(static_cast<Category>(c)) == name) return static_cast<uint8_t>(c);
  l.refuse(fmt::format("unknown category '{}'", name));
}

uint8_t TraceReader::phase(const TraceLine& l) const {
  const std::string name = l.text("phase");
  for (int p = 0; p < kPhases; ++p)
    if (phase_name(static_cast<Phase>(p)) == name) return static_cast<uint8_t>(p);
  l.refuse(fmt::format("unknown phase '{}'", name));
}

void TraceReader::scope(const TraceLine& l) {
  if (strict()) l.only({"scope", "parent", "name"});
  const auto most = static_cast<int64_t>(out_.program.scopes.size());
  if (l.integer("scope", most) != most) l.refuse(fmt::format("scope {} comes out of order, expected {}", l.integer("scope", most), most));
  out_.program.add_scope(static_cast<ScopeId>(l.integer("parent", most - 1)), l.text("name"));
}

void TraceReader::alloc(const TraceLine& l) {
  if (strict()) l.only({"alloc", "bytes", "category", "phase", "op", "scope"});
  Trace& trace = out_.program;
  const auto id = static_cast<int64_t>(trace.storages.size());
  if (const int64_t given = l.integer("alloc", kMostStorages); given != id)
    l.refuse(fmt::format("storage {} comes out of order, expected {}", given, id));
  const CapturedAmount bytes = amount(l, "bytes", kLargestStorage);
  StorageRecord s;
  s.bytes = bytes.number;
  if (l.has("op")) s.op = trace.intern(l.text("op"));
  if (l.has("scope")) s.scope = static_cast<ScopeId>(l.integer("scope", static_cast<int64_t>(trace.scopes.size()) - 1));
  if (l.has("category")) s.born_as = static_cast<Category>(category(l));
  if (l.has("phase")) s.phase = static_cast<Phase>(phase(l));
  trace.storages.push_back(s);
  if (bytes.formula >= 0) {
    out_.storage_formula.resize(trace.storages.size(), -1);
    out_.storage_formula.back() = bytes.formula;
  }
  alive_.push_back(true);
  add(Event::Kind::alloc, 0, static_cast<StorageId>(id));
}

StorageId TraceReader::living(const TraceLine& l, const char* key) const {
  const int64_t id = l.integer(key, kMostStorages);
  if (static_cast<size_t>(id) >= alive_.size() || !alive_[static_cast<size_t>(id)]) l.refuse(fmt::format("storage {} is not alive", id));
  return static_cast<StorageId>(id);
}

void TraceReader::free(const TraceLine& l) {
  if (strict()) l.only({"free"});
  const StorageId id = living(l, "free");
  alive_[id] = false;
  add(Event::Kind::free, 0, id);
}

// A whole number, or {"formula": 3} of version 2.
CapturedAmount TraceReader::amount(const TraceLine& l, const char* key, int64_t most) const {
  if (!strict() || !l.has(key) || !l.value(key).is_object()) return {l.integer(key, most), -1};
  const nlohmann::json& reference = l.value(key);
  if (reference.size() != 1 || !reference.contains("formula") || !reference["formula"].is_number_unsigned() ||
      reference["formula"].get<uint64_t>() > INT32_MAX)
    l.refuse(fmt::format("'{}' is neither a whole number nor {{\"formula\": N}}", key));
  const auto found = formula_places_.find(static_cast<int64_t>(reference["formula"].get<uint64_t>()));
  if (found == formula_places_.end()) l.refuse(fmt::format("formula {} is not there before this line", reference["formula"].dump()));
  return {0, found->second};
}

Formula TraceReader::parse(const TraceLine& l, const char* key) const {
  const std::string text = l.text(key);
  try {
    return Formula::number(text, out_.names);
  } catch (const Error& e) {
    l.refuse(e.what());
  }
}

void TraceReader::name(const TraceLine& l, const std::string& name, bool is_count) {
  if (!is_formula_name(name)) l.refuse(fmt::format("'{}' is not a name: a letter, then letters, digits and '_'", printable(name, 80)));
  if (out_.names.contains(name)) l.refuse(fmt::format("'{}' is there twice", name));
  if (out_.names.size() == kMostNames) l.refuse(fmt::format("more than {} symbols and counts", kMostNames));
  out_.names[name] = static_cast<uint32_t>(out_.names.size());
  out_.count_places.push_back(is_count);
}

void TraceReader::symbol(const TraceLine& l) {
  l.only({"symbol", "at", "min", "max"});
  CapturedSymbol s{l.text("symbol"), 0, l.integer("min", kLargestSymbol), l.integer("max", kLargestSymbol)};
  if (s.least > s.most) l.refuse(fmt::format("min {} is more than max {}", s.least, s.most));
  s.at = l.integer("at", s.most, s.least);
  name(l, s.name, false);
  out_.symbols.push_back(std::move(s));
}

void TraceReader::formula(const TraceLine& l) {
  l.only({"formula", "bytes"});
  const int64_t number = l.integer("formula", INT32_MAX);
  if (out_.formulas.size() == kMostFormulas) l.refuse(fmt::format("more than {} formulas", kMostFormulas));
  if (!formula_places_.emplace(number, static_cast<int32_t>(out_.formulas.size())).second)
    l.refuse(fmt::format("formula {} is there twice", number));
  out_.formulas.push_back(parse(l, "bytes"));
}

void TraceReader::condition(const TraceLine& l, const char* key) {
  l.only({key, "where"});
  if (conditions_.size() == kMostConditions) l.refuse(fmt::format("more than {} guards and pins", kMostConditions));
  conditions_.push_back({l.text(key), l.text("where"), std::string_view(key) == "pin", line_});
}

void TraceReader::count(const TraceLine& l) {
  l.only({"count", "at", "most", "known", "where"});
  CapturedCount c{l.text("count"), l.integer("at", INT64_MAX), parse(l, "most"), l.flag("known"), l.text("where")};
  name(l, c.name, true);
  out_.counts.push_back(std::move(c));
  const CapturedCount& added = out_.counts.back();
  const std::vector<int64_t> base = out_.values({});
  if (const int64_t most = added.most.evaluate(base); added.at > most)
    l.refuse(fmt::format("'{}' is {} and can be {} at most", added.name, added.at, most));
}

void TraceReader::read(const TraceLine& l) {
  l.only({"read", "dtype", "value", "known"});
  const nlohmann::json& v = l.value("value");
  if (v.is_structured()) l.refuse("'value' is neither a number nor a text");
  out_.reads.push_back({l.text("read"), l.text_or_nothing("dtype"),
                        v.is_string() ? v.get<std::string>() : v.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                        l.flag("known")});
}

void TraceReader::note(const TraceLine& l, const char* key) {
  l.only({key, "where"});
  out_.notes.push_back({l.text(key), l.text_or_nothing("where"), std::string_view(key) == "skipped"});
}

void TraceReader::work(const TraceLine& l) {
  l.only({"work", "flops", "read", "written", "dtype"});
  out_.kernels.push_back({out_.program.intern(l.text("work")), out_.program.intern(l.text_or_nothing("dtype")), out_.program.events.size(),
                          amount(l, "flops", kMostWork), amount(l, "read", kMostWork), amount(l, "written", kMostWork)});
}

}  // namespace plimsoll
