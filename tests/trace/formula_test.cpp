#include "trace/formula.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <random>

#include "fuzzing.h"

namespace plimsoll::formula_test {
namespace {

const FormulaNames kNames{{"batch", 0}, {"seq", 1}, {"n1", 2}};

int64_t value(const std::string& text, const std::vector<int64_t>& values = {6, 160, 480}) {
  return Formula::number(text, kNames).evaluate(values);
}
bool holds(const std::string& text, const std::vector<int64_t>& values = {6, 160, 480}) {
  return Formula::condition(text, kNames).evaluate(values) != 0;
}

TEST(Formula, FollowsTheUsualPrecedence) {
  EXPECT_EQ(value("3072*batch*seq"), 3072 * 6 * 160);
  EXPECT_EQ(value("2 + 3*batch - 4"), 16);
  EXPECT_EQ(value("(2 + 3)*batch"), 30);
  EXPECT_EQ(value("10 - 4 - 3"), 3);
  EXPECT_EQ(value("-batch*2 + 20"), 8);
  EXPECT_EQ(value("--7"), 7);
  EXPECT_EQ(value("2*-3"), -6);
}

TEST(Formula, HasItsFunctions) {
  EXPECT_EQ(value("pow(batch, 3)"), 216);
  EXPECT_EQ(value("pow(seq, 0)"), 1);
  EXPECT_EQ(value("fdiv(seq - 1, 32)"), 4);
  EXPECT_EQ(value("cdiv(seq - 1, 32)"), 5);
  EXPECT_EQ(value("32*cdiv(seq + 1, 32)"), 192);
  EXPECT_EQ(value("mod(seq, 7)"), 6);
  EXPECT_EQ(value("min(batch, seq) + max(batch, n1)"), 486);
}

// As Python and SymPy have them.
TEST(Formula, RoundsQuotientsOfNegativesDown) {
  EXPECT_EQ(value("fdiv(-7, 2)"), -4);
  EXPECT_EQ(value("cdiv(-7, 2)"), -3);
  EXPECT_EQ(value("mod(-7, 2)"), 1);
  EXPECT_EQ(value("mod(7, -2)"), -1);
  EXPECT_EQ(value("fdiv(7, -2)"), -4);
  EXPECT_EQ(value("cdiv(7, -2)"), -3);
}

TEST(Formula, ComparesAndJoins) {
  EXPECT_TRUE(holds("batch*seq < 1024"));
  EXPECT_FALSE(holds("batch*seq < 960"));
  EXPECT_TRUE(holds("batch*seq <= 960 and seq != batch"));
  EXPECT_TRUE(holds("seq = 1 or (batch > 5 and seq >= 160)"));
  EXPECT_TRUE(holds("(batch + 1)*2 > 13"));
  EXPECT_TRUE(holds("((batch) = 6)"));
  EXPECT_TRUE(holds("batch = 6 or batch = 7 and seq = 1"));  // and binds closer
}

TEST(Formula, RefusesWhatItCannotRead) {
  for (const char* text : {"",
                           " ",
                           "batch +",
                           "2batch",
                           "1.5",
                           "1e3",
                           "batches",
                           "batch seq",
                           "pow(batch)",
                           "pow(batch, 2, 3)",
                           "(batch",
                           "batch)",
                           "batch / 2",
                           "batch ** 2",
                           "9223372036854775808",
                           "batch < 3",
                           "batch and seq",
                           "min",
                           "and",
                           "\xff"})
    EXPECT_THROW(Formula::number(text, kNames), Error) << text;
  for (const char* text :
       {"batch", "batch < seq < n1", "batch == 3", "(batch < 3) + 1 = 2", "not batch < 3", "batch < 3 or", "batch < 3 or seq"})
    EXPECT_THROW(Formula::condition(text, kNames), Error) << text;
}

TEST(Formula, NamesThePlaceOfAnError) {
  try {
    Formula::number("3*batch + width", kNames);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), "[formula] '3*batch + width', character 16: 'width' is neither a symbol nor a count");
  }
}

TEST(Formula, RefusesNestingThatNobodyWrites) {
  const std::string many(100'000, '('), signs(100'000, '-');
  EXPECT_THROW(Formula::number(many + "1", kNames), Error);
  EXPECT_THROW(Formula::number(std::string(1000, '(') + "1" + std::string(1000, ')'), kNames), Error);
  EXPECT_THROW(Formula::number(signs.substr(0, 1000) + "1", kNames), Error);
  EXPECT_EQ(value(std::string(20, '(') + "1" + std::string(20, ')')), 1);
}

TEST(Formula, OverflowIsAnErrorAndNotANumber) {
  EXPECT_EQ(value("pow(2, 62) + (pow(2, 62) - 1)"), std::numeric_limits<int64_t>::max());
  for (const char* text : {"pow(2, 63)", "pow(2, 62) + pow(2, 62)", "pow(10, 1000000000)", "-pow(2, 62) - pow(2, 62) - 1",
                           "fdiv(-pow(2, 62) - pow(2, 62), -1)", "-(-pow(2, 62) - pow(2, 62))", "4294967296*4294967296", "pow(2, -1)"})
    EXPECT_THROW(value(text), Error) << text;
  EXPECT_EQ(value("pow(1, 1000000000) + pow(-1, 1000000001)"), 0);
  EXPECT_EQ(value("mod(-pow(2, 62) - pow(2, 62), -1)"), 0);
}

TEST(Formula, DivisionByZeroIsAnError) {
  for (const char* text : {"fdiv(seq, batch - 6)", "cdiv(seq, 0)", "mod(seq, batch - 6)"}) EXPECT_THROW(value(text), Error) << text;
}

TEST(Formula, KnowsTheNamesInIt) {
  EXPECT_EQ(Formula::number("n1*n1 + batch", kNames).places(), (std::vector<uint32_t>{0, 2}));
  EXPECT_TRUE(Formula::number("4096", kNames).places().empty());
}

TEST(Formula, WordsOfTheGrammarAreNoNames) {
  for (const char* name : {"batch", "_x", "n1", "side2"}) EXPECT_TRUE(is_formula_name(name)) << name;
  for (const char* name : {"", "1n", "a-b", "min", "or", "a b"}) EXPECT_FALSE(is_formula_name(name)) << name;
  EXPECT_FALSE(is_formula_name(std::string(65, 'a')));
}

// A tree that is evaluated by walking it in 128 bits; none: an intermediate result does not fit into 64, or a divisor is 0.
struct Tree {
  std::string text;
  std::optional<int64_t> value;
};

class RandomFormula {
 public:
  RandomFormula(uint32_t seed, std::vector<int64_t> values) : random_(seed), values_(std::move(values)) {}

  Tree tree(int depth) {
    const int kind = depth == 0 ? below(2) : below(10);
    if (kind == 0) return constant();
    if (kind == 1) return {std::array{"batch", "seq", "n1"}[name_ = static_cast<size_t>(below(3))], values_[name_]};
    if (kind == 2) return negative(tree(depth - 1));
    if (kind <= 5) return operation(std::array{"+", "-", "*"}[static_cast<size_t>(kind - 3)], tree(depth - 1), tree(depth - 1));
    const char* name = std::array{"fdiv", "cdiv", "mod", "min", "max"}[static_cast<size_t>(below(5))];
    const Tree a = tree(depth - 1), b = tree(depth - 1);
    return {fmt::format("{}({}, {})", name, a.text, b.text), of_function(name, a, b)};
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  Tree constant() {
    const int64_t n = below(5) == 0 ? static_cast<int64_t>(random_()) << 20 : below(40);
    return {std::to_string(n), n};
  }
  static std::optional<int64_t> fitting(__int128 v) {
    if (v > std::numeric_limits<int64_t>::max() || v < std::numeric_limits<int64_t>::min()) return {};
    return static_cast<int64_t>(v);
  }
  static Tree negative(const Tree& a) { return {"-(" + a.text + ")", a.value ? fitting(-static_cast<__int128>(*a.value)) : std::nullopt}; }
  static Tree operation(const std::string& sign, const Tree& a, const Tree& b) {
    Tree out{fmt::format("({}) {} ({})", a.text, sign, b.text), {}};
    if (!a.value || !b.value) return out;
    const __int128 x = *a.value, y = *b.value;
    out.value = fitting(sign == "+" ? x + y : sign == "-" ? x - y : x * y);
    return out;
  }
  // The quotient whose remainder has the sign of the divisor, by its definition: floor(x / y).
  static std::optional<int64_t> of_function(const std::string& name, const Tree& a, const Tree& b) {
    if (!a.value || !b.value) return {};
    const __int128 x = *a.value, y = *b.value;
    if (name == "min") return static_cast<int64_t>(x < y ? x : y);
    if (name == "max") return static_cast<int64_t>(x < y ? y : x);
    if (y == 0) return {};
    __int128 floor = x / y;
    while (floor * y > x && y > 0) --floor;
    while (floor * y < x && y < 0) --floor;
    const __int128 rest = x - floor * y;
    return fitting(name == "mod" ? rest : name == "fdiv" ? floor : floor + (rest != 0));
  }

  std::mt19937 random_;
  std::vector<int64_t> values_;
  size_t name_ = 0;
};

TEST(Formula, EqualsWalkingTheTree) {
  int errors = 0, same = 0;
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    const std::vector<int64_t> values{1 + seed % 37, 160 - seed % 11, seed % 5000};
    const Tree tree = RandomFormula(seed, values).tree(1 + static_cast<int>(seed % 6));
    const Formula formula = Formula::number(tree.text, kNames);
    if (tree.value) {
      ++same;
      EXPECT_EQ(formula.evaluate(values), *tree.value) << tree.text;
    } else {
      ++errors;
      EXPECT_THROW(formula.evaluate(values), Error) << tree.text;
    }
  }
  EXPECT_GT(errors, 100);
  EXPECT_GT(same, 1000);
}

TEST(FormulaFuzz, AnyTextIsAValueOrAnError) {
  Fuzzing("formula", [](const std::string& text) {
    const std::vector<int64_t> values{6, 160, 480};
    if (text.find_first_of("<>=") == std::string::npos)
      Formula::number(text, kNames).evaluate(values);
    else
      Formula::condition(text, kNames).evaluate(values);
  }).run({"32*cdiv(batch*seq, 32) + 3*pow(n1, 2)", "batch*seq < 1024 and (mod(seq, 8) = 0 or n1 != 3)", "-fdiv(seq, min(batch, 2))"}, 6000);
}

}  // namespace
}  // namespace plimsoll::formula_test
