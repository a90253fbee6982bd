// A program that was captured once: a Trace whose sizes are formulas over named symbols, and what must hold of those for the same program
// to run. Evaluating it at other sizes gives the Trace of that run, in microseconds for each thousand events. It never extrapolates: who
// asks first sees which conditions a size breaks. A trace of recorded numbers is one without symbols.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trace/formula.h"
#include "trace/trace.h"

namespace plimsoll {

using SymbolSizes = std::map<std::string, int64_t>;  // by name; what is not named is as captured

struct CapturedSymbol {
  std::string name;
  int64_t at = 0, least = 0, most = 0;  // where it was captured; the range that the program was traced for
};

// How many elements something had that follows from the data (nonzero, a mask, a router). Its share of the most it can be is what is kept
// at another size.
struct CapturedCount {
  std::string name;
  int64_t at = 0;
  Formula most;
  bool known = false;  // from values that were there, not from an assumption
  std::string where;
};

// What a branch of the program, or a rule of PyTorch, needs of the sizes.
struct CapturedCondition {
  Formula condition;
  bool pin = false;  // a size that was read as a number; it may be one that only the host used
  std::string where;
};

// A value of the device that the host asked for.
struct CapturedRead {
  std::string where, dtype, value;
  bool known = false;  // else it is assumed
};

// Something that was left out, or that is good to know.
struct CapturedNote {
  std::string text, where;
  bool skipped = false;
};

// A number, or the formula that gives it.
struct CapturedAmount {
  int64_t number = 0;
  int32_t formula = -1;  // index into CapturedTrace::formulas; below 0: none
};

struct CapturedKernel {
  NameId op = 0, dtype = 0;
  size_t event = 0;  // events of the program before it
  CapturedAmount flops, read, written;
};

// What data-dependent counts are taken to be, of the most that they can be.
enum class CountShare : uint8_t { observed, none, all };

class CapturedTrace {
 public:
  int version = 1;  // of the format
  std::string torch, script, device;
  std::vector<std::string> command;  // words behind `plimsoll capture`; empty: not written down

  std::vector<CapturedSymbol> symbols;
  std::vector<CapturedCount> counts;
  std::vector<Formula> formulas;
  std::vector<CapturedCondition> conditions;
  std::vector<CapturedRead> reads;
  std::vector<CapturedNote> notes;
  std::vector<SymbolSizes> checked;     // sizes at which a fresh capture was equal
  std::vector<CapturedKernel> kernels;  // of every step

  Trace program;                         // bytes of storages with a formula are those at the captured sizes
  std::vector<int32_t> storage_formula;  // by storage: its formula; below 0: none. Empty: no storage has one

  int32_t formula_of(StorageId s) const { return s < storage_formula.size() ? storage_formula[s] : -1; }

  FormulaNames names;  // of symbols and counts
  bool is_count(uint32_t place) const { return count_places.at(place); }
  std::vector<bool> count_places;  // by the place of a name

  const CapturedSymbol* find_symbol(std::string_view name) const;  // null: there is none
  SymbolSizes base() const;
  bool is_base(const SymbolSizes& sizes) const;
  bool is_checked(const SymbolSizes& sizes) const;
  int64_t steps() const;

  // The values of symbols and counts by place. Throws an Error for a name that is no symbol, and for a size out of its range.
  std::vector<int64_t> values(const SymbolSizes& sizes, CountShare share = CountShare::observed) const;
  // Those that do not hold, in the order of the file.
  std::vector<const CapturedCondition*> broken(const std::vector<int64_t>& values) const;
  // Conditions on counts say nothing about a size.
  bool is_about_counts(const CapturedCondition& c) const;
  // Whether the size of a storage follows from a count.
  bool depends_on_counts() const;
  int64_t amount(const CapturedAmount& a, const std::vector<int64_t>& formula_values) const;
  std::vector<int64_t> evaluate_formulas(const std::vector<int64_t>& values) const;
  // The run at those values. Conditions are not looked at.
  Trace evaluate(const std::vector<int64_t>& values) const;
};

// "batch 4, seq 96".
std::string sizes_text(const SymbolSizes& sizes);

}  // namespace plimsoll
