// A whole number or a condition as a text over named sizes: "3072*batch*seq", "batch*seq < 1024 or seq = 1". Compiled once to a small
// postfix program, so that evaluating costs no parsing. It does not simplify, and it knows names only by their place in a list of values;
// docs/trace-format.md has the grammar.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

using FormulaNames = std::map<std::string, uint32_t, std::less<>>;  // name -> place of its value

// A letter or '_', then letters, digits and '_', at most 64 of them; neither a function nor a word of the grammar.
bool is_formula_name(std::string_view text);

class Formula {
 public:
  // Throw an Error with the text and the place in it.
  static Formula number(std::string_view text, const FormulaNames& names);
  static Formula condition(std::string_view text, const FormulaNames& names);

  // `values` by the places of the names. Exact: what does not fit into 64 bits, and a division by zero, is an Error. Of a condition 0 or 1.
  int64_t evaluate(const std::vector<int64_t>& values) const;

  const std::string& text() const { return text_; }
  const std::vector<uint32_t>& places() const { return places_; }  // of the names in it, each once, ascending

 private:
  friend class FormulaParser;
  enum class Op : uint8_t {
    constant,
    value,
    negate,
    add,
    subtract,
    multiply,
    power,
    floor_divide,
    ceiling_divide,
    modulo,
    minimum,
    maximum,
    less,
    less_equal,
    greater,
    greater_equal,
    equal,
    not_equal,
    both,
    either
  };
  struct Instruction {
    Op op;
    int64_t operand = 0;  // constant: the number; value: the place
  };
  static int64_t apply(Op op, int64_t a, int64_t b);

  std::string text_;
  std::vector<Instruction> program_;
  std::vector<uint32_t> places_;
};

}  // namespace plimsoll
