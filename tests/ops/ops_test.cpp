// Ops by what they share, copy, keep for backward and cast.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>

#include "ops/autocast.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll::ops_test {
namespace {

constexpr DType kFloat = DType::float32;

struct Ops : testing::Test {
  Tensor leaf(const Dims& sizes, DType dtype = kFloat) {
    Parameter& p = owned.emplace_back();
    return make_parameter(tape, p, sizes, dtype);
  }
  int64_t live() const {
    int64_t bytes = 0;
    for (const Event& e : tape.trace.events) {
      if (e.kind == Event::Kind::alloc) bytes += tape.trace.storages[e.storage].bytes;
      if (e.kind == Event::Kind::free) bytes -= tape.trace.storages[e.storage].bytes;
    }
    return bytes;
  }
  size_t allocations() const { return tape.trace.storages.size(); }
  int count(std::string_view op) const {
    int n = 0;
    for (const StorageRecord& s : tape.trace.storages) n += tape.trace.names[s.op] == op;
    return n;
  }
  Tape tape;
  std::deque<Parameter> owned;
};

bool shares(const Tensor& a, const Tensor& b) { return &a.storage() == &b.storage(); }

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// ---- views --------------------------------------------------------------------------------------------------------------

TEST_F(Ops, ViewsShareTheirStorage) {
  const Tensor x = empty(tape, {2, 3, 4}, kFloat);
  for (const Tensor& v : {view(x, {6, 4}), transpose(x, 0, 2), permute(x, {1, 2, 0}), unsqueeze(x, 1), slice(x, 1, 1, 3), select(x, 0, 1),
                          expand(unsqueeze(x, 0), {5, -1, -1, -1}), flatten(x, 1), detach(x)})
    EXPECT_TRUE(shares(v, x)) << to_string(v.sizes());
  for (const Tensors& parts : {split(x, 2, 2), chunk(x, 2, 0), unbind(x, 1)})
    for (const Tensor& part : parts) EXPECT_TRUE(shares(part, x));
  EXPECT_EQ(allocations(), 1u);
}

TEST_F(Ops, ViewsHaveTheShapesAndStridesOfPyTorch) {
  const Tensor x = empty(tape, {2, 3, 4}, kFloat);
  EXPECT_EQ(slice(x, 1, 0, 3, 2).sizes(), (Dims{2, 2, 4}));
  EXPECT_EQ(slice(x, 1, 0, 3, 2).strides(), (Dims{12, 8, 1}));
  EXPECT_EQ(slice(x, -1, -2, INT64_MAX).sizes(), (Dims{2, 3, 2}));
  EXPECT_EQ(permute(x, {2, 0, 1}).strides(), (Dims{1, 12, 4}));
  EXPECT_EQ(expand(select(x, 0, 0), {7, 3, 4}).strides(), (Dims{0, 4, 1}));
  const Tensors parts = split(x, 3, 2);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].sizes(), (Dims{2, 3, 1}));
}

TEST_F(Ops, ReshapeIsAViewWhileTheStridesAllowIt) {
  const Tensor x = empty(tape, {2, 3, 4}, kFloat);
  EXPECT_TRUE(shares(reshape(x, {4, 6}), x));
  EXPECT_TRUE(shares(reshape(x, {-1}), x));
  const Tensor swapped = transpose(x, 0, 1);                   // (3, 2, 4), strides (4, 12, 1)
  EXPECT_TRUE(shares(reshape(swapped, {3, 2, 2, 2}), x));      // splits a dimension
  EXPECT_TRUE(shares(reshape(swapped, {3, 1, 2, 4}), x));      // adds one of size 1
  EXPECT_TRUE(shares(reshape(slice(x, 1, 0, 2), {2, 8}), x));  // joins what is still adjacent
  EXPECT_EQ(allocations(), 1u);
}

TEST_F(Ops, ReshapeCopiesWhenTheStridesForceIt) {
  const Tensor x = empty(tape, {2, 3, 4}, kFloat);
  const Tensor y = reshape(transpose(x, 0, 1), {6, 4});
  EXPECT_FALSE(shares(y, x));
  EXPECT_EQ(y.strides(), (Dims{4, 1}));
  EXPECT_EQ(count("clone"), 1);
  EXPECT_FALSE(shares(reshape(slice(x, 1, 0, 2), {-1}), x));
  EXPECT_FALSE(shares(reshape(expand(unsqueeze(x, 0), {2, -1, -1, -1}), {4, 3, 4}), x));
}

TEST_F(Ops, AViewThatWouldNeedACopyIsAnError) {
  const Tensor x = empty(tape, {2, 3}, kFloat);
  EXPECT_EQ(error_of([&] { view(transpose(x, 0, 1), {6}); }), "[view] (3, 2) cannot be viewed as (6)");
  EXPECT_NE(error_of([&] { view(x, {4}); }), "");
}

TEST_F(Ops, ContiguousAndToCopyOnlyWhatIsNotSoAlready) {
  const Tensor x = empty(tape, {2, 3}, kFloat);
  EXPECT_TRUE(shares(contiguous(x), x));
  EXPECT_TRUE(shares(to(x, kFloat), x));
  EXPECT_FALSE(shares(contiguous(transpose(x, 0, 1)), x));
  EXPECT_FALSE(shares(to(x, DType::bfloat16), x));
}

TEST_F(Ops, ToKeepsTheOrderOfDimensions) {
  const Tensor x = transpose(empty(tape, {2, 3}, kFloat), 0, 1);
  EXPECT_EQ(to(x, DType::bfloat16).strides(), (Dims{1, 3}));
}

TEST_F(Ops, CatJoinsAndWidens) {
  const Tensor a = empty(tape, {2, 3}, DType::bfloat16), b = empty(tape, {2, 1}, kFloat);
  const Tensor c = cat({a, b}, -1);
  EXPECT_EQ(c.sizes(), (Dims{2, 4}));
  EXPECT_EQ(c.dtype(), kFloat);
}

// ---- arithmetic ---------------------------------------------------------------------------------------------------------

TEST_F(Ops, ArithmeticBroadcastsAndWidens) {
  const Tensor a = empty(tape, {2, 1, 4}, DType::bfloat16), b = empty(tape, {3, 1}, kFloat);
  const Tensor c = add(a, b);
  EXPECT_EQ(c.sizes(), (Dims{2, 3, 4}));
  EXPECT_EQ(c.dtype(), kFloat);
  EXPECT_NE(error_of([&] { add(empty(tape, {2}, kFloat), empty(tape, {3}, kFloat)); }).find("(2) and (3)"), std::string::npos);
}

TEST_F(Ops, ATensorWithoutDimensionsDoesNotWidenOneWithThem) {
  const Tensor half = empty(tape, {4}, DType::bfloat16), number = empty(tape, {}, kFloat);
  EXPECT_EQ(mul(half, number).dtype(), DType::bfloat16);
  EXPECT_EQ(mul(number, half).dtype(), DType::bfloat16);
  EXPECT_EQ(mul(empty(tape, {}, DType::bfloat16), number).dtype(), kFloat);
}

TEST_F(Ops, MulKeepsOnlyWhatAWantedGradientNeeds) {
  const Tensor w = leaf({100});
  Tensor x = empty(tape, {100}, kFloat), frozen = empty(tape, {100}, kFloat);
  const int64_t before = live();
  const Tensor y = mul(x, w);  // the gradient of w needs x; that of x is not wanted
  x.reset();
  EXPECT_EQ(live(), before + 400);
  Tensor z = mul(frozen, frozen);  // nothing is wanted
  z.reset();
  frozen.reset();
  EXPECT_EQ(live(), before);
}

TEST_F(Ops, ActivationsKeepTheirInputOrTheirResult) {
  const Tensor w = leaf({100});
  Tensor x = mul_scalar(w);
  Tensor y = gelu(x);  // keeps x
  x.reset();
  y.reset();
  EXPECT_EQ(live(), 400);
  x = mul_scalar(w);
  y = relu(x);  // keeps y
  x.reset();
  EXPECT_EQ(live(), 2 * 400);
}

TEST_F(Ops, AnInPlaceActivationWritesIntoItsInput) {
  const Tensor w = leaf({100});
  Tensor x = mul_scalar(w);
  const size_t before = allocations();
  const Tensor y = relu_(x);
  EXPECT_TRUE(shares(y, x));
  EXPECT_EQ(allocations(), before);
  const Tensor z = silu_(mul_scalar(w));  // its backward needs the input, which is saved as a clone
  EXPECT_EQ(count("clone"), 1);
}

TEST_F(Ops, DropoutKeepsOneByteAnElement) {
  const Tensor w = leaf({100});
  const Tensor y = dropout(w, 0.1);
  EXPECT_EQ(live(), 400 + 400 + 100);
  EXPECT_TRUE(shares(dropout(w, 0.0), w));
}

// ---- products -----------------------------------------------------------------------------------------------------------

TEST_F(Ops, ProductsCheckTheirInnerSizes) {
  const Tensor a = empty(tape, {2, 3}, kFloat), b = empty(tape, {4, 5}, kFloat);
  EXPECT_NE(error_of([&] { mm(a, b); }).find("(2, 3) x (4, 5)"), std::string::npos);
  EXPECT_NE(error_of([&] { linear(a, b); }).find("does not match weight (4, 5)"), std::string::npos);
}

TEST_F(Ops, AnOverflowInAProductIsAnError) {
  const Tensor a = expand(empty(tape, {1, 1}, kFloat), {int64_t{1} << 40, 1}),
               b = expand(empty(tape, {1, 1}, kFloat), {1, int64_t{1} << 40});
  EXPECT_NE(error_of([&] { mm(a, b); }).find("does not fit in 63 bits"), std::string::npos);
}

TEST_F(Ops, ABatchTimesAMatrixIsOneProductOfTheFoldedBatch) {
  const Tensor x = empty(tape, {2, 3, 4}, kFloat), w = leaf({4, 5});
  EXPECT_EQ(matmul(x, w).sizes(), (Dims{2, 3, 5}));
  EXPECT_EQ(count("mm"), 1);
  EXPECT_EQ(count("clone"), 0);
  EXPECT_EQ(matmul(transpose(x, 0, 1), w).sizes(), (Dims{3, 2, 5}));  // folding has to copy here
  EXPECT_EQ(count("clone"), 1);
}

// ---- autocast -----------------------------------------------------------------------------------------------------------

TEST_F(Ops, AutocastCastsALeafOncePerContext) {
  const Tensor w = leaf({8, 8}), x = empty(tape, {2, 8}, DType::bfloat16);
  {
    GradGuard no_grad(tape, false);  // nothing but the cache holds the cast
    AutocastGuard autocast(tape, DType::bfloat16);
    mm(x, w);
    mm(x, w);
    EXPECT_EQ(count("_to_copy"), 1);
    EXPECT_EQ(live(), 64 * 4 + 32 + 64 * 2);
  }
  EXPECT_EQ(live(), 64 * 4 + 32);
  AutocastGuard again(tape, DType::bfloat16);
  mm(x, w);
  EXPECT_EQ(count("_to_copy"), 2);
}

TEST_F(Ops, AutocastKeepsItsCastsUntilTheOutermostContextEnds) {
  const Tensor w = leaf({8, 8}), x = empty(tape, {2, 8}, DType::bfloat16);
  AutocastGuard outer(tape, DType::bfloat16);
  {
    AutocastGuard inner(tape, DType::bfloat16);
    mm(x, w);
  }
  mm(x, w);
  EXPECT_EQ(count("_to_copy"), 1);
}

TEST_F(Ops, AutocastCastsWhatIsNotALeafEveryTime) {
  const Tensor w = leaf({8, 8}, DType::bfloat16), x = empty(tape, {2, 8}, kFloat);
  AutocastGuard autocast(tape, DType::bfloat16);
  mm(x, w);
  mm(x, w);
  EXPECT_EQ(count("_to_copy"), 2);
}

TEST_F(Ops, AutocastRaisesWhatNeedsPrecisionAndLeavesTheRest) {
  const Tensor x = empty(tape, {4}, DType::bfloat16), y = empty(tape, {4}, kFloat), ids = empty(tape, {4}, DType::int64);
  AutocastGuard autocast(tape, DType::bfloat16);
  EXPECT_EQ(pow(x, 2).dtype(), kFloat);
  EXPECT_EQ(add(x, x).dtype(), DType::bfloat16);
  EXPECT_EQ(add(y, y).dtype(), kFloat);
  EXPECT_TRUE(shares(autocast_low(ids), ids));
}

TEST_F(Ops, WithoutAutocastNothingIsCast) {
  const Tensor w = leaf({8, 8}), x = empty(tape, {2, 8}, kFloat);
  EXPECT_EQ(mm(x, w).dtype(), kFloat);
  EXPECT_EQ(count("_to_copy"), 0);
}

// ---- kernels' rules ---------------------------------------------------------------------------------------------------------

TEST_F(Ops, ClampInPlaceKeepsACloneOfItsInputForBackward) {
  const Tensor x = mul_scalar(leaf({8, 8}));  // what a layer made
  const int64_t before = live();
  const Tensor y = clamp_(x);
  EXPECT_TRUE(shares(y, x));
  EXPECT_EQ(live() - before, 8 * 8 * 4);
}

TEST_F(Ops, ADropoutThatIsNotFusedKeepsNoiseInTheTypeOfItsInput) {
  const Tensor x = leaf({8, 8});
  const Tensor mask_kept = dropout(x, 0.5);
  EXPECT_EQ(count("native_dropout"), 2);  // the result, and a mask of bytes
  tape.dialect.rules.fused_dropout = false;
  const int64_t before = live();
  const Tensor noise_kept = dropout(x, 0.5);
  EXPECT_EQ(live() - before, 2 * 8 * 8 * 4);
}

TEST_F(Ops, ANumberIsATensorWhereTheRulesSaySo) {
  const Tensor x = leaf({8, 8});
  mean(x, {}, false);
  EXPECT_EQ(allocations(), 2u);
  tape.dialect.rules.numbers_are_tensors = true;
  mean(x, {}, false);
  EXPECT_EQ(allocations(), 5u);  // the result, the number, and its cast
}

TEST(KernelRules, OfTheCpuDifferFromThoseOfCudaInEveryOne) {
  static_assert(sizeof(KernelRules) == 26 * sizeof(bool), "a new rule has a value for the CPU, too, and is counted here");
  const auto bytes = [](const KernelRules& rules) {
    std::array<bool, sizeof(KernelRules)> out;
    std::memcpy(out.data(), &rules, sizeof rules);
    return out;
  };
  const auto cuda = bytes(kCudaRules), cpu = bytes(kCpuRules);
  for (size_t i = 0; i < cuda.size(); ++i) EXPECT_NE(cuda[i], cpu[i]) << "rule " << i;
}

}  // namespace
}  // namespace plimsoll::ops_test
