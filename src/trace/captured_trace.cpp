#include "trace/captured_trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "trace/trace_file.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// The share of `most` that a count has at another size: as much of it as at the captured one, rounded down.
int64_t shared_count(int64_t at, int64_t most_then, int64_t most_now) {
  if (most_then <= 0) return 0;
  return static_cast<int64_t>(static_cast<__int128>(at) * most_now / most_then);
}

int64_t value_at(const SymbolSizes& sizes, const CapturedSymbol& symbol) {
  const auto it = sizes.find(symbol.name);
  return it == sizes.end() ? symbol.at : it->second;
}

void refuse_unknown_symbols(const SymbolSizes& sizes, const CapturedTrace& trace) {
  std::vector<std::string> known;
  for (const CapturedSymbol& s : trace.symbols) known.push_back(s.name);
  for (const auto& [name, value] : sizes)
    if (!trace.find_symbol(name))
      throw Error(fmt::format("[captured] {} = {}: the program was captured without a symbol of that name", printable(name, 60), value),
                  known.empty() ? "it has no symbols: capture it again with --size " + printable(name, 60) + "=N"
                                : "its symbols: " + join(known, ", ") + "; another one needs another capture");
}

}  // namespace

const CapturedSymbol* CapturedTrace::find_symbol(std::string_view name) const {
  const auto it = std::find_if(symbols.begin(), symbols.end(), [&](const CapturedSymbol& s) { return s.name == name; });
  return it == symbols.end() ? nullptr : &*it;
}

SymbolSizes CapturedTrace::base() const {
  SymbolSizes out;
  for (const CapturedSymbol& s : symbols) out[s.name] = s.at;
  return out;
}

bool CapturedTrace::is_base(const SymbolSizes& sizes) const {
  return std::all_of(symbols.begin(), symbols.end(), [&](const CapturedSymbol& s) { return value_at(sizes, s) == s.at; });
}

bool CapturedTrace::is_checked(const SymbolSizes& sizes) const {
  return std::any_of(checked.begin(), checked.end(), [&](const SymbolSizes& c) {
    return std::all_of(symbols.begin(), symbols.end(), [&](const CapturedSymbol& s) { return value_at(sizes, s) == value_at(c, s); });
  });
}

int64_t CapturedTrace::steps() const {
  return std::count_if(program.events.begin(), program.events.end(), [](const Event& e) { return e.kind == Event::Kind::step; });
}

std::vector<int64_t> CapturedTrace::values(const SymbolSizes& sizes, CountShare share) const {
  refuse_unknown_symbols(sizes, *this);
  std::vector<int64_t> now(names.size()), then(names.size());
  for (const CapturedSymbol& s : symbols) {
    const size_t place = names.at(s.name);
    then[place] = s.at;
    now[place] = value_at(sizes, s);
    if (now[place] < s.least || now[place] > s.most)
      throw Error(
          fmt::format("[captured] {} = {} is not from {} to {}, for which the program was captured", s.name, now[place], s.least, s.most),
          "capture it again at that size");
  }
  for (const CapturedCount& c : counts) {  // what one can be at most may follow from those before it
    const size_t place = names.at(c.name);
    const int64_t most = std::max<int64_t>(0, c.most.evaluate(now));
    now[place] = share == CountShare::none ? 0 : share == CountShare::all ? most : shared_count(c.at, c.most.evaluate(then), most);
    then[place] = c.at;
  }
  return now;
}

std::vector<const CapturedCondition*> CapturedTrace::broken(const std::vector<int64_t>& values) const {
  std::vector<const CapturedCondition*> out;
  for (const CapturedCondition& c : conditions)
    if (!c.condition.evaluate(values)) out.push_back(&c);
  return out;
}

bool CapturedTrace::is_about_counts(const CapturedCondition& c) const {
  const std::vector<uint32_t>& places = c.condition.places();
  return std::any_of(places.begin(), places.end(), [&](uint32_t p) { return is_count(p); });
}

bool CapturedTrace::depends_on_counts() const {
  return std::any_of(storage_formula.begin(), storage_formula.end(), [&](int32_t f) {
    if (f < 0) return false;
    const std::vector<uint32_t>& places = formulas[static_cast<size_t>(f)].places();
    return std::any_of(places.begin(), places.end(), [&](uint32_t p) { return is_count(p); });
  });
}

std::vector<int64_t> CapturedTrace::evaluate_formulas(const std::vector<int64_t>& values) const {
  std::vector<int64_t> out;
  out.reserve(formulas.size());
  for (const Formula& f : formulas) out.push_back(f.evaluate(values));
  return out;
}

int64_t CapturedTrace::amount(const CapturedAmount& a, const std::vector<int64_t>& formula_values) const {
  return a.formula < 0 ? a.number : formula_values.at(static_cast<size_t>(a.formula));
}

Trace CapturedTrace::evaluate(const std::vector<int64_t>& values) const {
  Trace out = program;
  const std::vector<int64_t> results = evaluate_formulas(values);
  for (size_t i = 0; i < storage_formula.size(); ++i) {
    if (storage_formula[i] < 0) continue;
    const auto formula = static_cast<size_t>(storage_formula[i]);
    if (results[formula] < 0 || results[formula] > kLargestStorage)
      throw Error(
          fmt::format("[captured] storage {} would have {} bytes: {}", i, results[formula], printable(formulas[formula].text(), 120)),
          "no device has such a size");
    out.storages[i].bytes = results[formula];
  }
  return out;
}

std::string sizes_text(const SymbolSizes& sizes) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : sizes) parts.push_back(fmt::format("{} {}", name, value));
  return join(parts, ", ");
}

}  // namespace plimsoll
