// The optimizers one by one: what they keep for a parameter, and every temporary of a step in order.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <deque>

#include "optim/foreach.h"
#include "optim/optimizer.h"
#include "step/clip.h"
#include "step/grad_scaler.h"

namespace plimsoll::optim_test {
namespace {

using Json = nlohmann::json;

// A list of parameters with an optimizer, and its step as text: "op:bytes" for an allocation, "-bytes" for a free.
class Bench {
 public:
  explicit Bench(Dialect dialect = {}) : tape(dialect) {}

  Bench& add(const Dims& sizes, DType dtype = DType::float32) {
    Parameter& p = owned_.emplace_back();
    make_parameter(tape, p, sizes, dtype);
    parameters.push_back(&p);
    return *this;
  }

  Bench& use(const std::string& name, const Json& args = Json::object()) {
    tape.begin_phase(Phase::optimizer);
    optimizer = make_optimizer(name, Config("test", args));
    std::vector<LinearWeight> layers;
    for (const Parameter* p : parameters)
      if (p->value.dim() == 2) layers.push_back({"layers." + std::to_string(layers.size()), p});
    if (!layers.empty()) optimizer->know_linear_layers(layers);
    optimizer->attach(parameters);
    return *this;
  }

  // Gradients for all but those listed.
  void make_gradients(const std::vector<size_t>& without = {}) {
    for (size_t i = 0; i < parameters.size(); ++i)
      if (std::find(without.begin(), without.end(), i) == without.end()) parameters[i]->grad = zeros_like(parameters[i]->value);
  }

  int64_t gradient_bytes() const {
    int64_t bytes = 0;
    for (const Parameter* p : parameters) bytes += p->value.storage().bytes;
    return bytes;
  }

  void zero_grad() {
    for (Parameter* p : parameters) p->grad.reset();
  }

  std::string step(const std::vector<size_t>& without = {}) {
    make_gradients(without);
    std::string text = log([&] { optimizer->step(parameters); });
    zero_grad();
    return text;
  }

  template <class F>
  std::string log(F run) {
    const size_t from = tape.trace.events.size();
    run();
    std::string text;
    for (size_t i = from; i < tape.trace.events.size(); ++i) {
      const Event& e = tape.trace.events[i];
      const StorageRecord& s = tape.trace.storages[e.storage];
      if (e.kind == Event::Kind::alloc) text += (text.empty() ? "" : " ") + tape.trace.names[s.op] + ":" + std::to_string(s.bytes);
      if (e.kind == Event::Kind::free) text += (text.empty() ? "-" : " -") + std::to_string(s.bytes);
    }
    return text;
  }

  int64_t state_bytes() const {
    int64_t total = 0;
    for (const Tensor& t : optimizer->states()) total += t.storage().bytes;
    return total;
  }

  Tape tape;
  std::vector<Parameter*> parameters;
  std::unique_ptr<Optimizer> optimizer;

 private:
  std::deque<Parameter> owned_;
};

// Of 40 and of 12 bytes.
Bench& two(Bench& bench) { return bench.add({5, 2}).add({3}); }

Dialect recorded(double item) {
  Dialect d;
  d.item = item;
  d.recorder = true;
  return d;
}

std::string error_of(const std::string& name, const Json& args) {
  try {
    make_optimizer(name, Config("test", args));
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

// ---- SGD ----------------------------------------------------------------------------------------------------------------

TEST(Sgd, PlainKeepsNothingAndMakesNothing) {
  for (const Json& form : {Json::object(), Json{{"foreach", false}}, Json{{"fused", true}}}) {
    Bench b;
    two(b).use("SGD", form);
    EXPECT_EQ(b.step(), "");
    EXPECT_TRUE(b.optimizer->states().empty());
  }
}

TEST(Sgd, MomentumIsMadeFromTheFirstGradient) {
  Bench b;
  two(b).use("SGD", {{"momentum", 0.9}});
  EXPECT_EQ(b.step(), "clone:40 clone:12");
  EXPECT_EQ(b.step(), "");
  EXPECT_EQ(b.state_bytes(), 52);
}

TEST(Sgd, FusedMomentumIsEmptyAtFirst) {
  Bench b;
  two(b).use("SGD", {{"momentum", 0.9}, {"fused", true}, {"nesterov", true}, {"weight_decay", 0.1}});
  EXPECT_EQ(b.step(), "empty_like:40 empty_like:12");
  EXPECT_EQ(b.step(), "");
}

TEST(Sgd, DecayedGradientsGiveWayToTheBuffers) {
  Bench b;
  two(b).use("SGD", {{"momentum", 0.9}, {"weight_decay", 0.1}});
  b.step();
  EXPECT_EQ(b.step(), "_foreach_add:40 _foreach_add:12 -40 -12");
}

TEST(Sgd, MaximizeAndDecayShareOneCopy) {
  Bench b;
  two(b).use("SGD", {{"maximize", true}, {"weight_decay", 0.1}});
  EXPECT_EQ(b.step(), "_foreach_neg:40 _foreach_neg:12 -40 -12");
}

TEST(Sgd, NesterovWritesIntoTheGradientsItself) {
  Bench b;
  two(b).use("SGD", {{"momentum", 0.9}, {"nesterov", true}});
  b.step();
  EXPECT_EQ(b.step(), "");
}

TEST(Sgd, TheLoopHoldsThePreviousTemporaryUntilTheNextExists) {
  Bench b;
  two(b).use("SGD", {{"weight_decay", 0.1}, {"foreach", false}});
  EXPECT_EQ(b.step(), "add:40 -40 add:12 -12");  // grad = grads[i] lets go of the first one
  Bench m;
  two(m).use("SGD", {{"maximize", true}, {"foreach", false}});
  EXPECT_EQ(m.step(), "neg:40 neg:12 -40 -12");  // grad = -grads[i] does not, until it is done
}

TEST(Sgd, NesterovNeedsMomentum) { EXPECT_NE(error_of("SGD", {{"nesterov", true}}).find("nesterov needs a momentum"), std::string::npos); }

// ---- Adam ---------------------------------------------------------------------------------------------------------------

TEST(AdamW, KeepsTwoStatesAndOneRootForAllParametersAtOnce) {
  Bench b;
  two(b).use("AdamW");
  EXPECT_EQ(b.step(), "zeros_like:40 zeros_like:40 zeros_like:12 zeros_like:12 _foreach_sqrt:40 _foreach_sqrt:12 -40 -12");
  EXPECT_EQ(b.step(), "_foreach_sqrt:40 _foreach_sqrt:12 -40 -12");
  EXPECT_EQ(b.state_bytes(), 2 * 52);
}

TEST(AdamW, AmsgradKeepsAThirdState) {
  Bench b;
  two(b).use("AdamW", {{"amsgrad", true}});
  b.step();
  EXPECT_EQ(b.state_bytes(), 3 * 52);
}

TEST(AdamW, FusedKeepsStepCountsOnTheDeviceAndHasNoTemporaries) {
  Bench b;
  two(b).use("AdamW", {{"fused", true}});
  EXPECT_EQ(b.step(), "zeros:4 zeros_like:40 zeros_like:40 zeros:4 zeros_like:12 zeros_like:12");
  EXPECT_EQ(b.step(), "");
  EXPECT_EQ(b.state_bytes(), 2 * (52 + 4));
}

TEST(AdamW, LoopHoldsTwoTemporariesOfOneParameter) {
  Bench b;
  two(b).use("AdamW", {{"foreach", false}});
  b.step();
  EXPECT_EQ(b.step(), "sqrt:40 div:40 -40 sqrt:12 div:12 -12 -40 -12");
}

TEST(AdamW, AFusedThatIsSetToFalseMeansTheLoop) {
  Bench b;
  two(b).use("AdamW", {{"fused", false}});
  b.step();
  EXPECT_EQ(b.step().substr(0, 7), "sqrt:40");
}

TEST(AdamW, NullMeansTheDefault) {
  Bench b;
  two(b).use("AdamW", {{"fused", nullptr}, {"foreach", nullptr}});
  b.step();
  EXPECT_EQ(b.step().substr(0, 16), "_foreach_sqrt:40");
}

TEST(Adam, OnlyDecayThatIsNotDecoupledCopiesTheGradients) {
  Bench adam, adamw;
  two(adam).use("Adam", {{"weight_decay", 0.1}});
  two(adamw).use("AdamW", {{"weight_decay", 0.1}});
  adam.step();
  adamw.step();
  EXPECT_EQ(adam.step(), "_foreach_add:40 _foreach_add:12 -40 -12 _foreach_sqrt:40 _foreach_sqrt:12 -40 -12");
  EXPECT_EQ(adamw.step(), "_foreach_sqrt:40 _foreach_sqrt:12 -40 -12");
}

TEST(Adam, CapturableMakesItsCorrectionsOnTheDevice) {
  Bench b;
  b.add({5, 2}).use("Adam", {{"capturable", true}});
  b.step();
  EXPECT_EQ(b.step(), "_foreach_pow:4 _foreach_pow:4 _foreach_sqrt:40 -40 -4 -4");
}

TEST(Adam, StatesAreInTheTypeOfTheParameter) {
  Bench b;
  b.add({5, 2}, DType::bfloat16).use("Adam");
  b.step();
  EXPECT_EQ(b.state_bytes(), 2 * 20);
}

TEST(Adam, AParameterWithoutGradientGetsNoStateUntilItHasOne) {
  Bench b;
  two(b).use("Adam");
  b.step({0});
  EXPECT_EQ(b.state_bytes(), 2 * 12);
  b.step();
  EXPECT_EQ(b.state_bytes(), 2 * 52);
}

TEST(Adam, NoGradientAtAllIsNoStep) {
  Bench b;
  two(b).use("Adam");
  EXPECT_EQ(b.step({0, 1}), "");
}

TEST(Adam, EachElementTypeIsAGroupAndHoldsItsRootsUntilTheNextHasItsOwn) {
  Bench b;
  b.add({10}).add({3}, DType::bfloat16).use("AdamW");
  b.step();
  EXPECT_EQ(b.step(), "_foreach_sqrt:6 _foreach_sqrt:40 -6 -40");  // the type met last comes first
}

// ---- the others ---------------------------------------------------------------------------------------------------------

TEST(RmsProp, KeepsOneToThreeStates) {
  for (auto [args, count] : std::vector<std::pair<Json, int64_t>>{
           {Json::object(), 1}, {{{"momentum", 0.9}}, 2}, {{{"centered", true}}, 2}, {{{"momentum", 0.9}, {"centered", true}}, 3}}) {
    Bench b;
    two(b).use("RMSprop", args);
    b.step();
    EXPECT_EQ(b.state_bytes(), count * 52) << args;
  }
}

TEST(RmsProp, CenteredMakesItsRootFromAProduct) {
  Bench b;
  two(b).use("RMSprop", {{"centered", true}, {"weight_decay", 0.1}});
  b.step();
  EXPECT_EQ(b.step(), "_foreach_add:40 _foreach_add:12 _foreach_addcmul:40 _foreach_addcmul:12 -40 -12 -40 -12");
}

TEST(Adafactor, FactorsWhatHasTwoDimensionsOrMore) {
  Bench b;
  b.add({30, 7}).use("Adafactor");
  b.step();
  EXPECT_EQ(b.state_bytes(), 4 * (30 + 7));
  Bench convolution;
  convolution.add({8, 4, 3, 5}).use("Adafactor");
  convolution.step();
  EXPECT_EQ(convolution.state_bytes(), 4 * 8 * 4 * (3 + 5));  // a row and a column for each kernel
}

TEST(Adafactor, KeepsVectorsAndNumbersWhole) {
  Bench b;
  b.add({7}).add({}).use("Adafactor");
  b.step();
  EXPECT_EQ(b.state_bytes(), 4 * (7 + 1));
}

TEST(Adafactor, IsALoopByDefaultAndHoldsTheLastUpdateWhileItMakesTheNext) {
  Bench b;
  b.add({5, 2}).add({3, 1}).use("Adafactor");
  b.step();
  EXPECT_EQ(b.step(),
            "linalg_vector_norm:4 -4 linalg_vector_norm:20 linalg_vector_norm:8 mm:40 mean:4 -4 linalg_vector_norm:4 -4 "
            "linalg_vector_norm:4 -4 linalg_vector_norm:12 -20 linalg_vector_norm:4 -8 mm:12 mean:4 -4 -40 linalg_vector_norm:4 -4 "
            "-12 -4 -12");
}

TEST(Adagrad, MakesItsStateInTheConstructor) {
  Bench b;
  two(b).use("Adagrad");
  EXPECT_EQ(b.state_bytes(), 52);
  EXPECT_EQ(b.step(), "_foreach_sqrt:40 _foreach_sqrt:12 _foreach_mul:40 _foreach_mul:12 -40 -12 -40 -12");
}

TEST(Adamax, CopiesTheGradientsOnlyIfNothingElseHas) {
  Bench plain, decayed;
  two(plain).use("Adamax");
  two(decayed).use("Adamax", {{"weight_decay", 0.1}});
  plain.step();
  decayed.step();
  EXPECT_EQ(plain.step(), "_foreach_abs:40 _foreach_abs:12 -40 -12");
  EXPECT_EQ(decayed.step(), "_foreach_add:40 _foreach_add:12 -40 -12");
}

TEST(RAdam, LoopIsRectifiedOnceTheRunIsUnderWay) {
  const Json loop{{"foreach", false}};
  Bench first(recorded(1)), later;
  first.add({10}).use("RAdam", loop);
  later.add({10}).use("RAdam", loop);
  first.step();
  later.step();
  EXPECT_EQ(first.step(), "div:40 mul:40 -40 -40");
  EXPECT_EQ(later.step(), "div:40 mul:40 sqrt:40 reciprocal:40 mul:40 -40 -40 mul:40 -40 -40 mul:40 -40 -40 -40");
}

TEST(Rprop, TheLastSignOutlivesTheList) {
  Bench b;
  two(b).use("Rprop");
  b.step();
  EXPECT_EQ(b.step(),
            "_foreach_mul:40 _foreach_mul:12 gt:10 -10 lt:10 -10 eq:10 -10 gt:3 -3 lt:3 -3 eq:3 -3 "
            "eq:10 scalar_tensor:4 where:40 -4 -40 -10 eq:3 scalar_tensor:4 where:12 -4 -12 -3 -40 sign:40 sign:12 -40 -12 -12");
}

TEST(Asgd, KeepsThreeNumbersOnTheDevice) {
  Bench b;
  two(b).use("ASGD");
  b.step();
  EXPECT_EQ(b.state_bytes(), 52 + 2 * 3 * 4);
}

TEST(Registry, EveryOptimizerStepsTwiceAndFreesItsTemporaries) {
  for (const OptimizerEntry& entry : optimizer_registry()) {
    const std::string name = entry.name;
    if (name == "none") continue;
    const bool has_forms = error_of(name, {{"foreach", true}}).empty();
    for (bool foreach : {true, false}) {
      Bench b;
      name == "Muon" ? b.add({5, 2}) : two(b);
      b.use(entry.name, has_forms ? Json{{"foreach", foreach}} : Json::object());
      b.step();
      int64_t live = 0;
      b.make_gradients();
      const size_t from = b.tape.trace.events.size();
      b.optimizer->step(b.parameters);
      for (size_t i = from; i < b.tape.trace.events.size(); ++i) {
        const Event& e = b.tape.trace.events[i];
        if (e.kind == Event::Kind::alloc) live += b.tape.trace.storages[e.storage].bytes;
        if (e.kind == Event::Kind::free) live -= b.tape.trace.storages[e.storage].bytes;
      }
      const bool drops_gradients = name == "Lomo" || name == "AdaLomo";
      EXPECT_EQ(live, drops_gradients ? -b.gradient_bytes() : 0) << entry.name;
    }
  }
}

// ---- bitsandbytes -------------------------------------------------------------------------------------------------------

TEST(BitsAndBytes, KeepsOneByteAStateAndAScaleForEveryBlock) {
  Tape tape;
  std::deque<Parameter> all(2);
  all[0].value = make_parameter(tape, all[0], {100, 100}, DType::bfloat16);
  all[1].value = make_parameter(tape, all[1], {4095}, DType::bfloat16);  // one below the smallest that is quantised
  std::vector<Parameter*> parameters{&all[0], &all[1]};
  for (Parameter* p : parameters) p->grad = zeros_like(p->value);
  const std::unique_ptr<Optimizer> optimizer = make_optimizer("AdamW8bit", Config());
  optimizer->step(parameters);
  int64_t bytes = 0;
  for (const Tensor& t : optimizer->states()) bytes += t.storage().bytes;
  EXPECT_EQ(bytes, 2 * (10'000 + 40 * 4) + 2 * 4095 * 4 + 2 * 256 * 4);
  const size_t events = tape.trace.events.size();
  optimizer->step(parameters);
  EXPECT_EQ(tape.trace.events.size(), events);  // nothing more in later steps
}

TEST(BitsAndBytes, PagedStatesOfLargeTensorsAreOutsideTheAllocator) {
  Bench b;
  b.add({400, 250}).add({99'999}).use("PagedAdamW32bit");  // from 100,000 elements on
  b.step();
  EXPECT_EQ(b.state_bytes(), 2 * 4 * 99'999);
  EXPECT_EQ(b.optimizer->managed(), Bytes{2 * 4 * 100'000});
}

TEST(BitsAndBytes, ScalesOfPagedStatesStayInTheAllocator) {
  Bench b;
  b.add({512, 512}).use("PagedLion8bit");
  b.step();
  EXPECT_EQ(b.state_bytes(), 4 * 1024 + 4 * 256);  // one for every 256, and the table
  EXPECT_EQ(b.optimizer->managed(), Bytes{512 * 512});
  Bench argument;
  argument.add({512, 512}).use("Lion8bit", {{"is_paged", true}});
  argument.step();
  EXPECT_EQ(argument.optimizer->managed(), Bytes{512 * 512});
}

// ---- other libraries ----------------------------------------------------------------------------------------------------

TEST(Muon, OrthogonalisesMatrixByMatrixInHalfPrecision) {
  Bench b;
  b.add({6, 2}).use("Muon", {{"ns_steps", 1}});
  EXPECT_EQ(b.step(), "zeros_like:48 lerp:48 _to_copy:24 linalg_vector_norm:2 clamp:2 -2 -2 mm:8 addmm:8 addmm:24 -24 -8 -8 -48 -24");
  EXPECT_EQ(b.state_bytes(), 48);
}

TEST(Muon, AHalfPrecisionUpdateIsNotCopied) {
  Bench b;
  b.add({2, 6}, DType::bfloat16).use("Muon", {{"ns_steps", 1}, {"nesterov", false}});
  b.step();
  EXPECT_EQ(b.step(), "linalg_vector_norm:2 clamp:2 -2 -2 mm:8 addmm:8 addmm:24 -8 -8 -24");
}

TEST(Muon, RefusesWhatIsNoMatrixAndNamesTheRecipe) {
  Bench b;
  b.add({6, 2}).add({3}).add({2, 3, 1, 1});
  try {
    b.use("Muon");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("2 of 3 trained parameters are none"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("(3)"), std::string::npos) << e.what();
    EXPECT_NE(e.hint().find("Muon+AdamW"), std::string::npos);
  }
  Bench vectors;
  vectors.add({3});
  EXPECT_THROW(vectors.use("Muon+AdamW"), Error);
}

TEST(Muon, TheRecipeGivesTheRestToAdamW) {
  Bench b;
  b.add({6, 2}).add({3}).use("Muon+AdamW", {{"adamw", {{"fused", true}}}});
  b.step();
  EXPECT_EQ(b.state_bytes(), 48 + 2 * 12 + 4);
}

TEST(LionPytorch, ClonesAndAdds) {
  Bench loop, all;
  two(loop).use("lion_pytorch.Lion");
  two(all).use("lion_pytorch.Lion", {{"foreach", true}});
  loop.step();
  all.step();
  EXPECT_EQ(loop.step(), "clone:40 add:40 -40 -40 clone:12 add:12 -12 -12");
  EXPECT_EQ(all.step(), "clone:40 clone:12 -40 -12");
  EXPECT_EQ(loop.state_bytes(), 52);
}

TEST(Sophia, KeepsTheLastRatio) {
  Bench b;
  two(b).use("SophiaG");
  b.step();
  EXPECT_EQ(b.step(),
            "abs:40 mul:40 add:40 -40 div:40 -40 -40 clamp:40 -40 sign:40 -40 "
            "abs:12 mul:12 add:12 -12 div:12 -12 -12 clamp:12 -12 -40 sign:12 -12 -12");
}

TEST(Came, KeepsAFirstMomentAndTwoPairsOfFactors) {
  Bench b;
  b.add({5, 2}, DType::bfloat16).add({3}).use("CAME");
  b.step();
  EXPECT_EQ(b.state_bytes(), 4 * (10 + 2 * (5 + 2)) + 2 + 2 * 12 + 4);  // and an RMS each, in the type of the parameter
}

TEST(Came, HoldsTheLastApproximationWhileVectorsAreUpdated) {
  Bench b;
  b.add({5, 2}).add({3}).use("CAME");
  b.step();
  EXPECT_EQ(b.step(),
            "linalg_vector_norm:4 div:4 -4 -4 pow:40 add:40 -40 mean:20 -20 mean:8 -8 mean:4 div:20 -4 rsqrt:8 mul:40 -8 -20 -40 "
            "linalg_vector_norm:4 div:4 -4 div:4 -4 -4 sub:40 pow:40 -40 add:40 -40 "
            "mean:20 -20 mean:8 -8 mean:4 div:20 -4 rsqrt:8 mul:40 -8 -20 -40 neg:40 -40 "
            "linalg_vector_norm:4 div:4 -4 -4 pow:12 add:12 -12 rsqrt:12 -12 linalg_vector_norm:4 div:4 -4 div:4 -4 -4 "
            "sub:12 pow:12 -12 add:12 -12 -40 clone:12 -12 neg:12 -12 -40 -12 -12");
}

TEST(Prodigy, SlicedStatesAreRoundedUp) {
  Bench b;
  b.add({10}).use("Prodigy", {{"slice_p", 4}});
  b.step();
  EXPECT_EQ(b.state_bytes(), 2 * 40 + 2 * 4 * 3);
}

TEST(Soap, KeepsTwoMatricesForEverySideThatIsNotTooLarge) {
  Bench b;
  b.add({6, 20}).use("SOAP", {{"max_precond_dim", 10}});
  b.step();
  EXPECT_EQ(b.state_bytes(), 2 * 4 * 120 + 2 * 4 * 36);
}

TEST(Soap, AndShampooRefuseHalfPrecision) {
  for (const char* name : {"SOAP", "ScalableShampoo"}) {
    Bench b;
    b.add({6, 20}, DType::bfloat16);
    EXPECT_THROW(b.use(name), Error) << name;
  }
}

TEST(Shampoo, KeepsTwoMatricesForEverySideOfEveryBlock) {
  Bench b;
  b.add({6, 20}).use("ScalableShampoo", {{"block_size", 8}});
  b.step();
  // 6 x 20 is cut into 6 x 8, 6 x 8 and 6 x 4
  EXPECT_EQ(b.state_bytes(), 2 * 4 * 120 + 2 * 4 * (3 * 36 + 64 + 64 + 16));
}

TEST(TorchAo, KeepsCodesScalesAndATableForEachState) {
  for (const auto& [name, bytes] : std::vector<std::pair<const char*, int64_t>>{{"torchao.AdamW8bit", 4096 + 4 * 16 + 4 * 256},
                                                                                {"torchao.AdamW4bit", 2048 + 4 * 32 + 4 * 16},
                                                                                {"torchao.AdamWFp8", 4096 + 4 * 16},
                                                                                {"torchao.AdamW", 2 * 4096}}) {
    Bench b;
    b.add({64, 64}, DType::bfloat16).use(name, {{"bf16_stochastic_round", true}});
    b.step();
    EXPECT_EQ(b.state_bytes(), 2 * bytes) << name;
    EXPECT_EQ(b.step(), "") << name;
  }
}

TEST(TorchAo, WhatNoBlockDividesKeepsTheTypeOfTheParameter) {
  Bench b;
  b.add({4097}, DType::bfloat16).use("torchao.AdamW8bit");
  b.step();
  EXPECT_EQ(b.state_bytes(), 2 * 2 * 4097);
}

// ---- arguments ----------------------------------------------------------------------------------------------------------

TEST(Arguments, AnUnknownOneIsNamedWithASuggestion) {
  const std::string error = error_of("SGD", {{"momentun", 0.9}});
  EXPECT_NE(error.find("SGD has no argument 'momentun'"), std::string::npos) << error;
  EXPECT_NE(error.find("momentum"), std::string::npos) << error;
}

TEST(Arguments, OneOptimizersArgumentIsNotAnothers) {
  EXPECT_NE(error_of("AdamW", {{"decoupled_weight_decay", true}}), "");
  EXPECT_EQ(error_of("Adam", {{"decoupled_weight_decay", true}, {"lr", 0.1}, {"betas", {0.9, 0.95}}}), "");
}

TEST(Arguments, AFormThatAnOptimizerDoesNotHaveIsNamedWithThoseItHas) {
  const std::string rmsprop = error_of("RMSprop", {{"fused", true}});
  EXPECT_NE(rmsprop.find("RMSprop: it has no fused form"), std::string::npos) << rmsprop;
  EXPECT_NE(rmsprop.find("foreach and the loop"), std::string::npos) << rmsprop;
  for (const char* name : {"Muon", "AdamW8bit", "SOAP", "Prodigy", "torchao.AdamW4bit", "SophiaG"})
    EXPECT_NE(error_of(name, {{"fused", true}}).find("one form"), std::string::npos) << name;
  EXPECT_NE(error_of("lion_pytorch.Lion", {{"fused", true}}).find("no fused form"), std::string::npos);
}

TEST(Arguments, AnUnknownOneOfOtherLibrariesListsWhatThereIs) {
  const std::string error = error_of("SOAP", {{"max_precond_dimension", 10}});
  EXPECT_NE(error.find("max_precond_dim"), std::string::npos) << error;
  EXPECT_NE(error.find("precondition_frequency"), std::string::npos) << error;
  EXPECT_NE(error_of("Muon", {{"maximize", true}}), "");
}

TEST(Arguments, WhatPyTorchRefusesIsRefused) {
  EXPECT_NE(error_of("Adam", {{"fused", true}, {"foreach", true}}).find("cannot both be true"), std::string::npos);
  EXPECT_NE(error_of("Adam", {{"differentiable", true}}).find("differentiable"), std::string::npos);
  EXPECT_NE(error_of("RAdam", {{"betas", 0.9}}).find("expected two numbers"), std::string::npos);
  EXPECT_NE(error_of("Adam", {{"amsgrad", 1}}).find("expected true or false"), std::string::npos);
}

TEST(Registry, NamesAreFoundInAnyCaseAndAMisspeltOneIsSuggested) {
  EXPECT_NE(make_optimizer("adamw", Config()), nullptr);
  EXPECT_NE(error_of("AdmaW", Json::object()).find("AdamW"), std::string::npos);
}

TEST(Registry, ALibraryMayBeNamed) {
  EXPECT_NE(make_optimizer("torch.optim.AdamW", Config()), nullptr);
  EXPECT_NE(make_optimizer("bitsandbytes.PagedAdamW8bit", Config()), nullptr);
}

// ---- clipping and loss scaling ------------------------------------------------------------------------------------------

TEST(Clip, MakesOneNumberPerGradientAndAHandfulMore) {
  Bench b(recorded(1));
  two(b);
  b.make_gradients();
  EXPECT_EQ(
      b.log([&] { clip_grad_norm(b.parameters); }),
      "linalg_vector_norm:4 linalg_vector_norm:4 stack:8 linalg_vector_norm:4 -8 -4 -4 add:4 reciprocal:4 mul:4 -4 -4 clamp:4 -4 -4 -4");
  b.zero_grad();
}

TEST(Clip, OnCudaTheNormsOfChunksNeedAScratchTensor) {
  Bench b;
  b.add({65536 * 2 + 1}, DType::bfloat16).add({3}, DType::bfloat16);
  b.make_gradients();
  EXPECT_EQ(b.log([&] { clip_grad_norm(b.parameters); }).substr(0, 57), "_foreach_norm:24 _foreach_norm:2 _foreach_norm:2 -24 stac");
  b.zero_grad();
}

TEST(Clip, WithoutGradientsDoesNothing) {
  Bench b;
  two(b);
  EXPECT_EQ(b.log([&] { clip_grad_norm(b.parameters); }), "");
}

TEST(GradScaler, KeepsItsScaleAndTrackerAndUnscalesThroughCopies) {
  Bench b;
  two(b).use("SGD");
  Parameter loss;
  make_parameter(b.tape, loss, {}, DType::float32);
  GradScaler scaler;
  EXPECT_EQ(b.log([&] { scaler.scale(loss.value); }), "full:4 full:4 mul:4 -4");
  EXPECT_EQ(b.log([&] { scaler.scale(loss.value); }), "mul:4 -4");
  b.make_gradients();
  EXPECT_EQ(b.log([&] {
    scaler.step(*b.optimizer, b.parameters);
    scaler.update();
  }),
            "_to_copy:8 reciprocal:8 -8 _to_copy:4 -8 full:4 _to_copy:4 _to_copy:4 -4 -4 -4 -4");
  b.zero_grad();
}

TEST(GradScaler, AFusedOptimizerUnscalesItself) {
  Bench b;
  two(b).use("SGD", {{"fused", true}});
  Parameter loss;
  make_parameter(b.tape, loss, {}, DType::float32);
  GradScaler scaler;
  scaler.scale(loss.value);
  b.make_gradients();
  EXPECT_EQ(b.log([&] { scaler.step(*b.optimizer, b.parameters); }), "full:4 full:4 _to_copy:4 _to_copy:4 -4 -4 -4 add:4 mul:4 -4 -4");
  scaler.update();
  scaler.unscale(b.parameters);  // as before clipping
  EXPECT_EQ(b.log([&] { scaler.step(*b.optimizer, b.parameters); }), "add:4 -4");
  b.zero_grad();
}

}  // namespace
}  // namespace plimsoll::optim_test
