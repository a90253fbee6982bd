// Shapes, storages, the autograd engine and checkpoints: what the simulation rests on.
#include <gtest/gtest.h>

#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "tensor/checkpoint.h"
#include "tensor/iterator.h"
#include "tensor/node.h"

namespace plimsoll::tensor_test {
namespace {

constexpr DType kFloat = DType::float32;

int64_t live_bytes(const Tape& tape) {
  int64_t live = 0;
  for (const Event& e : tape.trace.events) {
    if (e.kind == Event::Kind::alloc) live += tape.trace.storages[e.storage].bytes;
    if (e.kind == Event::Kind::free) live -= tape.trace.storages[e.storage].bytes;
  }
  return live;
}

// How often `op` allocated.
int count(const Tape& tape, std::string_view op) {
  int n = 0;
  for (const StorageRecord& s : tape.trace.storages) n += tape.trace.names[s.op] == op;
  return n;
}

void backward(const Tensor& loss) {
  loss.tape().op = "ones_like";
  const Tensor seed = empty_like(loss);
  run_backward(loss, seed);
}

Tensor strided(Tape& tape, const Dims& sizes, const Dims& strides) { return empty_strided(tape, sizes, strides, kFloat); }

// ---- sizes --------------------------------------------------------------------------------------------------------------

TEST(Dims, NegativeIndicesCountFromTheEnd) {
  const Dims d{2, 3, 5};
  EXPECT_EQ(d[-1], 5);
  EXPECT_EQ(d[-3], 2);
}

TEST(Dims, ANinthDimensionIsAnError) {
  Dims d = Dims::filled(Dims::kMax, 1);
  EXPECT_THROW(d.push_back(1), Error);
}

TEST(Dims, AProductBeyond63BitsIsAnErrorNotANumber) {
  EXPECT_THROW(numel({int64_t{1} << 32, int64_t{1} << 31}), Error);
  EXPECT_EQ(numel({int64_t{1} << 31, int64_t{1} << 31}), int64_t{1} << 62);
  Tape tape;
  EXPECT_THROW(empty(tape, {int64_t{1} << 31, int64_t{1} << 31}, kFloat), Error);  // the elements fit, the bytes do not
  EXPECT_EQ(live_bytes(tape), 0);
}

TEST(Dims, ANegativeSizeIsAnError) { EXPECT_THROW(numel({4, -2}), Error); }

TEST(Dims, ShapesBroadcastFromTheEnd) {
  EXPECT_EQ(broadcast({4, 1, 3}, {5, 1}), (Dims{4, 5, 3}));
  EXPECT_EQ(broadcast({}, {2}), (Dims{2}));
  EXPECT_EQ(broadcast({0, 1}, {1, 3}), (Dims{0, 3}));
}

TEST(Dims, ShapesThatDoNotBroadcastAreBothNamed) {
  try {
    broadcast({4, 2}, {4, 3});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[broadcast] shapes (4, 2) and (4, 3) do not match");
    EXPECT_NE(e.hint(), "");
  }
}

TEST(Dims, OneUnknownSizeTakesWhatIsLeft) {
  EXPECT_EQ(infer_size({2, -1}, 12), (Dims{2, 6}));
  EXPECT_THROW(infer_size({5, -1}, 12), Error);
  EXPECT_THROW(infer_size({5, 2}, 12), Error);
}

// ---- storages -----------------------------------------------------------------------------------------------------------

TEST(Storage, LivesAsLongAsItsLastView) {
  Tape tape;
  Tensor x = empty(tape, {6}, kFloat);
  Tensor v = view(x, {2, 3});
  x.reset();
  EXPECT_EQ(live_bytes(tape), 24);
  v.reset();
  EXPECT_EQ(live_bytes(tape), 0);
}

TEST(Storage, OfNoBytesLeavesNoTrace) {
  Tape tape;
  { const Tensor x = empty(tape, {0, 7}, kFloat); }
  EXPECT_TRUE(tape.trace.events.empty());
}

TEST(Storage, CopiesOfAHandleAreOneTensor) {
  Tape tape;
  Tensor x = empty(tape, {3}, kFloat);
  EXPECT_TRUE(x.is_sole_owner());
  const Tensor same = x;
  EXPECT_FALSE(x.is_only_handle());
  const Tensor other = detach(x);
  EXPECT_EQ(&other.storage(), &x.storage());
}

// ---- layout of element-wise results, as real PyTorch lays them out --------------------------------------------------------

TEST(IteratorStrides, ContiguousInputsGiveAContiguousResult) {
  Tape tape;
  const Tensor a = empty(tape, {2, 3, 4}, kFloat), b = empty(tape, {3, 1}, kFloat);
  EXPECT_EQ(iterator_strides({2, 3, 4}, {&a, &b}), (Dims{12, 4, 1}));
}

TEST(IteratorStrides, APermutedInputKeepsItsOrder) {
  Tape tape;
  const Tensor a = strided(tape, {2, 3, 4}, {1, 8, 2});
  EXPECT_EQ(iterator_strides({2, 3, 4}, {&a}), (Dims{1, 8, 2}));
  const Tensor b = empty(tape, {4}, kFloat);
  EXPECT_EQ(iterator_strides({2, 3, 4}, {&a, &b}), (Dims{1, 8, 2}));
}

TEST(IteratorStrides, TheFirstInputDecidesWhenTheyDisagree) {
  Tape tape;
  const Tensor rows = empty(tape, {3, 4}, kFloat), columns = strided(tape, {3, 4}, {1, 3});
  EXPECT_EQ(iterator_strides({3, 4}, {&rows, &columns}), (Dims{4, 1}));
  EXPECT_EQ(iterator_strides({3, 4}, {&columns, &rows}), (Dims{1, 3}));
}

TEST(IteratorStrides, ABroadcastDimensionHasNoSay) {
  Tape tape;
  const Tensor spread = strided(tape, {3, 4}, {0, 1}), columns = strided(tape, {3, 4}, {1, 3});
  EXPECT_EQ(iterator_strides({3, 4}, {&spread, &columns}), (Dims{1, 3}));
  const Tensor a = strided(tape, {4, 3, 4, 2, 2}, {4, 0, 1, 0, 0}), b = strided(tape, {4, 2, 2}, {2, 1, 8});
  EXPECT_EQ(iterator_strides({4, 3, 4, 2, 2}, {&a, &b}), (Dims{48, 16, 2, 1, 8}));
}

TEST(IteratorStrides, ChannelsLastStaysChannelsLast) {
  Tape tape;
  const Dims shape{2, 3, 4, 5};
  const Tensor a = strided(tape, shape, channels_last_strides(shape)), bias = empty(tape, {3, 1, 1}, kFloat);
  EXPECT_EQ(iterator_strides(shape, {&a, &a}), channels_last_strides(shape));
  EXPECT_EQ(iterator_strides(shape, {&a, &bias}), channels_last_strides(shape));
}

TEST(IteratorStrides, AStridedInputGivesADenseResult) {
  Tape tape;
  const Tensor every_other = strided(tape, {3, 4}, {16, 2});
  EXPECT_EQ(iterator_strides({3, 4}, {&every_other}), (Dims{4, 1}));
}

// ---- gradients ----------------------------------------------------------------------------------------------------------

TEST(Engine, TakesOverTheFirstGradientOfAParameter) {
  Tape tape;
  Parameter p;
  make_parameter(tape, p, {8}, kFloat);
  Tensor loss = sum(mul_scalar(p.value));
  backward(loss);
  EXPECT_EQ(count(tape, "clone"), 0);
  EXPECT_EQ(p.grad.sizes(), (Dims{8}));
}

TEST(Engine, ClonesAGradientThatIsLaidOutInAnotherWay) {
  Tape tape;
  Parameter p;
  make_parameter(tape, p, {2, 4}, kFloat);
  Tensor loss = sum(mul_scalar(transpose(p.value, 0, 1)));  // its gradient arrives column by column
  backward(loss);
  EXPECT_EQ(count(tape, "new_empty_strided"), 1);
  EXPECT_EQ(p.grad.strides(), (Dims{4, 1}));
}

TEST(Engine, AccumulatesLaterGradientsOfAParameterInPlace) {
  Tape tape;
  Parameter p;
  make_parameter(tape, p, {8}, kFloat);
  {
    Tensor loss = sum(mul_scalar(p.value));
    backward(loss);
  }
  const StorageId first = p.grad.storage().id;
  {
    Tensor loss = sum(mul_scalar(p.value));
    backward(loss);
  }
  EXPECT_EQ(p.grad.storage().id, first);
  EXPECT_EQ(live_bytes(tape), 2 * 8 * 4);
}

TEST(Engine, AddsGradientsInPlaceWhenNobodyElseHoldsThem) {
  Tape tape;
  Parameter p;
  make_parameter(tape, p, {8}, kFloat);
  Tensor y = mul_scalar(p.value);
  Tensor loss = sum(mul_scalar(add(mul_scalar(y), mul_scalar(y))));
  y.reset();
  backward(loss);
  EXPECT_EQ(count(tape, "add"), 1);  // the forward's own
}

TEST(Engine, AddsGradientsIntoNewMemoryWhenTheyAreShared) {
  Tape tape;
  Parameter p;
  make_parameter(tape, p, {8}, kFloat);
  Tensor y = mul_scalar(p.value);
  Tensor loss = sum(mul_scalar(add(y, y)));  // one gradient goes both ways
  y.reset();
  backward(loss);
  EXPECT_EQ(count(tape, "add"), 2);
}

TEST(Engine, SumsAndCastsAGradientToWhatItBelongsTo) {
  Tape tape;
  Parameter p;
  make_parameter(tape, p, {4}, DType::bfloat16);
  const Tensor x = empty(tape, {3, 4}, kFloat);
  Tensor loss = sum(mul(x, p.value));
  backward(loss);
  EXPECT_EQ(p.grad.sizes(), (Dims{4}));
  EXPECT_EQ(p.grad.dtype(), DType::bfloat16);
}

TEST(Engine, FreesWhatANodeKeptAsSoonAsItHasRun) {
  Tape tape;
  Parameter p;
  make_parameter(tape, p, {1000}, kFloat);
  Tensor loss;
  {
    Tensor y = tanh(p.value);
    y = tanh(y);
    loss = sum(y);
  }
  EXPECT_EQ(live_bytes(tape), 3 * 4000 + 4);  // the parameter, both results, the loss
  backward(loss);
  EXPECT_EQ(live_bytes(tape), 2 * 4000 + 4);  // the parameter, its gradient, the loss
}

TEST(Engine, ALossWithoutHistoryIsAnError) {
  Tape tape;
  const Tensor loss = empty(tape, {}, kFloat);
  EXPECT_THROW(backward(loss), Error);
}

TEST(Engine, NothingIsRecordedWithoutGradMode) {
  Tape tape;
  Parameter p;
  make_parameter(tape, p, {8}, kFloat);
  GradGuard no_grad(tape, false);
  EXPECT_TRUE(tanh(p.value).is_leaf());
}

TEST(Engine, AGraphOf200000NodesIsTornDownWithoutRecursion) {
  Tape tape;
  Parameter p;
  make_parameter(tape, p, {1}, kFloat);
  Tensor x = p.value;
  for (int i = 0; i < 200000; ++i) x = tanh(x);
  x.reset();
  EXPECT_EQ(live_bytes(tape), 4);
}

TEST(Engine, AGraphOf200000NodesRunsBackward) {
  Tape tape;
  Parameter p;
  make_parameter(tape, p, {1}, kFloat);
  Tensor x = p.value;
  for (int i = 0; i < 200000; ++i) x = tanh(x);
  backward(x);
  x.reset();
  EXPECT_EQ(live_bytes(tape), 2 * 4);
}

// ---- checkpoints --------------------------------------------------------------------------------------------------------

struct Checkpointed : testing::Test {
  Checkpointed() { make_parameter(tape, p, {1000}, kFloat); }
  // Keeps tanh's result twice; the last sum keeps nothing.
  static Tensor block(const Tensor& x) {
    Tensor y = tanh(x);
    y = tanh(y);
    return add_scalar(y);
  }
  const CheckpointStyle kPlain, kReentrant{true, {}}, kSelective{false, {"tanh"}};
  Tape tape;
  Parameter p;
};

TEST_F(Checkpointed, SelectivelyKeepsResultsAndDoesNotComputeThemAgain) {
  Tensor loss = sum(checkpoint(tape, kSelective, block, mul_scalar(p.value)));
  EXPECT_EQ(live_bytes(tape), (3 + 1) * 4000 + 4);  // the parameter, the input, two tanh; not the output, which sum does not keep
  backward(loss);
  EXPECT_EQ(count(tape, "tanh"), 2);
  EXPECT_EQ(live_bytes(tape), 2 * 4000 + 4);
}

TEST_F(Checkpointed, ReentrantRunsTheWholeBlockAgain) {
  Tensor loss = sum(checkpoint(tape, kReentrant, block, mul_scalar(p.value)));
  EXPECT_EQ(live_bytes(tape), 2 * 4000 + 4);
  backward(loss);
  EXPECT_EQ(count(tape, "tanh"), 4);
  EXPECT_EQ(count(tape, "add"), 2);
  EXPECT_EQ(live_bytes(tape), 2 * 4000 + 4);
}

TEST_F(Checkpointed, ReentrantOnInputsWithoutGradientTrainsNothing) {
  GradGuard off(tape, false);
  const Tensor x = mul_scalar(p.value);
  GradGuard on(tape, true);
  EXPECT_FALSE(checkpoint(tape, kReentrant, block, x).requires_grad());
}

TEST_F(Checkpointed, WhatIsSavedOnTheHostLeavesTheDevice) {
  tape.saves_on = Offload::pinned;
  Tensor loss = sum(block(mul_scalar(p.value)));
  tape.saves_on = Offload::none;
  EXPECT_EQ(live_bytes(tape), 4000 + 4);
  EXPECT_EQ(tape.on_host.now, 2 * 4096);  // two tanh, each a power of two
  backward(loss);
  EXPECT_EQ(tape.on_host.now, 0);
  EXPECT_EQ(tape.on_host.peak, 2 * 4096);
}

TEST_F(Checkpointed, KeepsOnlyItsInputAndOutput) {
  const Tensor out = checkpoint(tape, kPlain, block, mul_scalar(p.value));
  EXPECT_EQ(live_bytes(tape), 3 * 4000);  // the parameter, the input, the output
}

TEST_F(Checkpointed, RecomputesOnceAndOnlyAsFarAsItMust) {
  Tensor loss = sum(checkpoint(tape, kPlain, block, mul_scalar(p.value)));
  EXPECT_EQ(count(tape, "tanh"), 2);
  backward(loss);
  EXPECT_EQ(count(tape, "tanh"), 4);
  EXPECT_EQ(count(tape, "add"), 1);  // after the last kept tensor nothing is computed again
  EXPECT_EQ(live_bytes(tape), 2 * 4000 + 4);
}

TEST_F(Checkpointed, IsNotRecomputedWhenNobodyAsks) {
  { const Tensor out = checkpoint(tape, kPlain, block, mul_scalar(p.value)); }
  EXPECT_EQ(count(tape, "tanh"), 2);
  EXPECT_EQ(live_bytes(tape), 4000);
}

TEST_F(Checkpointed, NestsInAChain) {
  Tensor x = mul_scalar(p.value);
  for (int i = 0; i < 5; ++i) x = checkpoint(tape, kPlain, block, x);
  EXPECT_EQ(live_bytes(tape), (1 + 1 + 5) * 4000);
  Tensor loss = sum(x);
  x.reset();
  backward(loss);
  EXPECT_EQ(count(tape, "tanh"), 2 * 5 * 2);
  EXPECT_EQ(live_bytes(tape), 2 * 4000 + 4);
}

TEST_F(Checkpointed, RunsUnderTheAutocastOfItsForward) {
  Tensor loss;
  {
    AutocastGuard autocast(tape, DType::bfloat16);
    loss = sum(checkpoint(
        tape, kPlain, [](const Tensor& x) { return log(x); }, to(p.value, DType::bfloat16)));
  }
  EXPECT_EQ(count(tape, "_to_copy"), 2);  // the input, and log's cast to fp32
  backward(loss);
  EXPECT_EQ(count(tape, "_to_copy"), 2 + 1 + 2);  // the cast again, and two gradients back
}

}  // namespace
}  // namespace plimsoll::tensor_test
