#include "trace/formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>

#include "util/checked.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// Far above what a capture writes: an expanded formula of a convolution's padding has a few hundred characters.
constexpr size_t kLongestFormula = 10'000, kDeepestFormula = 64, kFormulaStack = 256, kLongestFormulaName = 64;

constexpr const char* kGrammarHint = "docs/trace-format.md has the grammar of formulas";

std::string shown_formula(std::string_view text) { return printable(std::string(text.substr(0, 200)), 120); }

// What is not a number of 64 bits.
[[noreturn]] void overflow() { throw Error("[formula] a result does not fit in 64 bits", "a size is far too large"); }

int64_t floor_quotient(int64_t a, int64_t b) {
  if (b == 0) throw Error("[formula] division by zero", "a size makes a divisor 0");
  if (a == std::numeric_limits<int64_t>::min() && b == -1) overflow();
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t floor_remainder(int64_t a, int64_t b) {
  if (b == 0) throw Error("[formula] division by zero", "a size makes a divisor 0");
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t ceiling_quotient(int64_t a, int64_t b) { return floor_quotient(a, b) + (floor_remainder(a, b) != 0); }

int64_t product_of(int64_t a, int64_t b) {
  int64_t out;
  if (__builtin_mul_overflow(a, b, &out)) overflow();
  return out;
}

int64_t power_of(int64_t base, int64_t exponent) {
  if (exponent < 0) throw Error("[formula] a negative exponent", "powers are of whole numbers from 0");
  int64_t out = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2) out = product_of(out, base);
    if (exponent > 1) base = product_of(base, base);
  }
  return out;
}

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool continues_name(char c) { return begins_name(c) || std::isdigit(static_cast<unsigned char>(c)); }

constexpr std::array<std::string_view, 8> kReservedWords{"pow", "fdiv", "cdiv", "mod", "min", "max", "and", "or"};

}  // namespace

bool is_formula_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestFormulaName && begins_name(text[0]) &&
         std::all_of(text.begin(), text.end(), continues_name) &&
         std::find(kReservedWords.begin(), kReservedWords.end(), text) == kReservedWords.end();
}

// By falling strength: or, and, a comparison, + and -, *, a sign, and what stands alone. Numbers and conditions are two kinds, so that a
// parenthesis may hold either.
class FormulaParser {
 public:
  FormulaParser(std::string_view text, const FormulaNames& names) : text_(text), names_(names) {}

  Formula parse(bool condition) {
    if (text_.size() > kLongestFormula) refuse(fmt::format("{} characters are more than {}", text_.size(), kLongestFormula));
    if (either() != (condition ? Kind::condition : Kind::number))
      refuse(condition ? "a number where a condition is needed" : "a condition where a number is needed");
    skip_spaces();
    if (at_ < text_.size()) refuse("more than one expression");
    out_.text_ = text_;
    std::sort(out_.places_.begin(), out_.places_.end());
    out_.places_.erase(std::unique(out_.places_.begin(), out_.places_.end()), out_.places_.end());
    return std::move(out_);
  }

 private:
  using Op = Formula::Op;
  enum class Kind : uint8_t { number, condition };

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(fmt::format("[formula] '{}', character {}: {}", shown_formula(text_), at_ + 1, what), kGrammarHint);
  }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool take(std::string_view sign) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }

  bool take_word(std::string_view word) {
    skip_spaces();
    const size_t end = at_ + word.size();
    if (!text_.substr(at_).starts_with(word) || (end < text_.size() && continues_name(text_[end]))) return false;
    at_ = end;
    return true;
  }

  void need(std::string_view sign) {
    if (!take(sign)) refuse(fmt::format("expected '{}'", sign));
  }

  void push(Op op, int64_t operand = 0) {
    const int taken = op == Op::constant || op == Op::value ? 0 : op == Op::negate ? 1 : 2;
    stack_ += 1 - taken;
    if (stack_ > static_cast<int>(kFormulaStack)) refuse("nested too deep");
    out_.program_.push_back({op, operand});
  }

  void need_number(Kind k) const {
    if (k != Kind::number) refuse("a condition where a number is needed");
  }
  void need_condition(Kind k) const {
    if (k != Kind::condition) refuse("a number where a condition is needed");
  }

  Kind either() {
    if (++depth_ > static_cast<int>(kDeepestFormula)) refuse("nested too deep");
    const Kind first = all();
    while (take_word("or")) {
      need_condition(first);
      need_condition(all());
      push(Op::either);
    }
    --depth_;
    return first;
  }

  Kind all() {
    const Kind first = comparison();
    while (take_word("and")) {
      need_condition(first);
      need_condition(comparison());
      push(Op::both);
    }
    return first;
  }

  Kind comparison() {
    static constexpr std::array<std::pair<std::string_view, Op>, 6> kSigns{
        {{"<=", Op::less_equal}, {"<", Op::less}, {">=", Op::greater_equal}, {">", Op::greater}, {"!=", Op::not_equal}, {"=", Op::equal}}};
    const Kind left = sum();
    for (const auto& [sign, op] : kSigns) {
      if (!take(sign)) continue;
      need_number(left);
      need_number(sum());
      push(op);
      return Kind::condition;
    }
    return left;
  }

  Kind sum() {
    const Kind first = product();
    for (;;) {
      const Op op = take("+") ? Op::add : take("-") ? Op::subtract : Op::constant;
      if (op == Op::constant) return first;
      need_number(first);
      need_number(product());
      push(op);
    }
  }

  Kind product() {
    const Kind first = signed_value();
    while (take("*")) {
      need_number(first);
      need_number(signed_value());
      push(Op::multiply);
    }
    return first;
  }

  Kind signed_value() {
    if (!take("-")) return alone();
    if (++depth_ > static_cast<int>(kDeepestFormula)) refuse("nested too deep");
    need_number(signed_value());
    --depth_;
    push(Op::negate);
    return Kind::number;
  }

  Kind alone() {
    if (take("(")) {
      const Kind inside = either();
      need(")");
      return inside;
    }
    skip_spaces();
    if (at_ == text_.size()) refuse("it ends where a value is needed");
    if (std::isdigit(static_cast<unsigned char>(text_[at_]))) return literal();
    if (begins_name(text_[at_])) return name();
    refuse("a value is needed");
  }

  Kind literal() {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), n);
    if (error != std::errc()) refuse("the number does not fit in 64 bits");
    at_ = static_cast<size_t>(end - text_.data());
    if (at_ < text_.size() && (text_[at_] == '.' || continues_name(text_[at_]))) refuse("not a whole number");
    push(Op::constant, n);
    return Kind::number;
  }

  Kind name() {
    const size_t begin = at_;
    while (at_ < text_.size() && continues_name(text_[at_])) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (const Op op = function(word); op != Op::constant) return call(op);
    const auto found = names_.find(word);
    if (found == names_.end()) refuse(fmt::format("'{}' is neither a symbol nor a count", printable(std::string(word), 60)));
    out_.places_.push_back(found->second);
    push(Op::value, found->second);
    return Kind::number;
  }

  static Op function(std::string_view word) {
    static constexpr std::array<std::pair<std::string_view, Op>, 6> kFunctions{{{"pow", Op::power},
                                                                                {"fdiv", Op::floor_divide},
                                                                                {"cdiv", Op::ceiling_divide},
                                                                                {"mod", Op::modulo},
                                                                                {"min", Op::minimum},
                                                                                {"max", Op::maximum}}};
    for (const auto& [name, op] : kFunctions)
      if (word == name) return op;
    return Op::constant;
  }

  Kind call(Op op) {
    need("(");
    need_number(either());
    need(",");
    need_number(either());
    need(")");
    push(op);
    return Kind::number;
  }

  const std::string_view text_;
  const FormulaNames& names_;
  size_t at_ = 0;
  int depth_ = 0, stack_ = 0;
  Formula out_;
};

Formula Formula::number(std::string_view text, const FormulaNames& names) { return FormulaParser(text, names).parse(false); }

Formula Formula::condition(std::string_view text, const FormulaNames& names) { return FormulaParser(text, names).parse(true); }

int64_t Formula::apply(Op op, int64_t a, int64_t b) {
  int64_t out = 0;
  switch (op) {
    case Op::constant:
    case Op::value:
    case Op::negate: break;  // of one operand or none: evaluate() has them
    case Op::add:
      if (__builtin_add_overflow(a, b, &out)) overflow();
      return out;
    case Op::subtract:
      if (__builtin_sub_overflow(a, b, &out)) overflow();
      return out;
    case Op::multiply: return product_of(a, b);
    case Op::power: return power_of(a, b);
    case Op::floor_divide: return floor_quotient(a, b);
    case Op::ceiling_divide: return ceiling_quotient(a, b);
    case Op::modulo: return floor_remainder(a, b);
    case Op::minimum: return std::min(a, b);
    case Op::maximum: return std::max(a, b);
    case Op::less: return a < b;
    case Op::less_equal: return a <= b;
    case Op::greater: return a > b;
    case Op::greater_equal: return a >= b;
    case Op::equal: return a == b;
    case Op::not_equal: return a != b;
    case Op::both: return a && b;
    case Op::either: return a || b;
  }
  return out;
}

int64_t Formula::evaluate(const std::vector<int64_t>& values) const try {
  std::array<int64_t, kFormulaStack> stack;  // the parser has seen that it is enough
  size_t top = 0;
  for (const Instruction& i : program_) {
    switch (i.op) {
      case Op::constant: stack[top++] = i.operand; break;
      case Op::value: stack[top++] = values.at(static_cast<size_t>(i.operand)); break;
      case Op::negate: stack[top - 1] = apply(Op::subtract, 0, stack[top - 1]); break;
      default: --top; stack[top - 1] = apply(i.op, stack[top - 1], stack[top]);
    }
  }
  return stack[0];
} catch (const Error& e) {
  throw Error(fmt::format("{} in {}", e.what(), shown_formula(text_)), e.hint());
}

}  // namespace plimsoll
