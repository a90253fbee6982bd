// What-if: every lever is simulated, so its figure is that of the job written out.
#include "plan/levers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "estimate/estimate.h"
#include "hardware/lookup.h"
#include "report/levers_report.h"
#include "shown.h"
#include "support.h"

namespace plimsoll::levers_test {
namespace {

const LeverEffect& effect(const WhatIf& w, const std::string& name) {
  const auto it = std::find_if(w.effects.begin(), w.effects.end(), [&](const LeverEffect& e) { return e.lever.name == name; });
  if (it == w.effects.end()) throw Error("no lever " + name);
  return *it;
}

TEST(WhatIf, ALeversFigureIsThatOfTheJobWithItsSettings) {
  const Job job = job_of("gpt2", {{"batch", 8}});
  const WhatIf w = what_if(job);
  EXPECT_EQ(w.device.count, estimate(job).memory->device.bytes.count);
  int compared = 0;
  for (const LeverEffect& e : w.effects) {
    if (e.outcome == LeverOutcome::impossible) continue;
    Job changed = job;
    e.lever.settings.apply(changed, "test");
    const Bytes expected = estimate(changed).memory->device.bytes;
    EXPECT_EQ(e.device.count, expected.count) << e.lever.name;
    EXPECT_EQ(e.saving.count, w.device.count - expected.count) << e.lever.name;
    ++compared;
  }
  EXPECT_GT(compared, 12);
}

TEST(WhatIf, IsRankedAndNamesWhatDoesNothing) {
  const WhatIf w = what_if(job_of("llama-3.1-8b", {{"precision", "bf16"}, {"seq", 64}}));
  std::vector<int64_t> savings;
  for (const LeverEffect& e : w.effects)
    if (e.outcome == LeverOutcome::saves) savings.push_back(e.saving.count);
  EXPECT_TRUE(std::is_sorted(savings.rbegin(), savings.rend()));
  EXPECT_EQ(w.peak_phase, Phase::optimizer);  // 64 tokens are nothing beside 8 billion parameters
  EXPECT_EQ(effect(w, "checkpoint every block").outcome, LeverOutcome::nothing);
  EXPECT_EQ(effect(w, "fused optimizer").outcome, LeverOutcome::saves);
  const std::string text = shown(what_if_blocks(w));
  EXPECT_NE(text.find("Saves nothing here (under 0.5 %; the peak is in optimizer"), std::string::npos) << text;
}

TEST(WhatIf, LeavesOutWhatIsOnAlready) {
  for (const Lever& l : levers_for(job_of("gpt2", {{"checkpointing", true}, {"precision", "bf16"}, {"lora", {{"r", 8}}}})))
    for (const auto& [key, value] : l.settings) EXPECT_TRUE(key != "checkpointing" && key != "precision" && key != "lora") << l.name;
}

// No weights exist that an adapter could be put on.
TEST(WhatIf, OffersNoAdapterToWhatIsTrainedFromNothing) {
  const auto offers = [](const char* model) {
    const std::vector<Lever> levers = levers_for(job_of(model, nlohmann::json::object()));
    return std::any_of(levers.begin(), levers.end(), [](const Lever& l) { return l.knob == "adapter"; });
  };
  EXPECT_FALSE(offers("stdiff"));
  EXPECT_FALSE(offers("gsa-512m"));
  EXPECT_TRUE(offers("gpt2"));
}

TEST(WhatIf, SaysWhyALeverCannotBe) {
  const WhatIf w = what_if(job_of("albert-base-v2", {{"batch", 2}, {"seq", 64}}));
  const LeverEffect& e = effect(w, "checkpoint every block");
  EXPECT_EQ(e.outcome, LeverOutcome::impossible);
  EXPECT_NE(e.note.find("no gradient checkpointing"), std::string::npos) << e.note;
}

TEST(WhatIf, GivesVerdictsForADevice) {
  const WhatIf w = what_if(job_of("gpt2", {{"batch", 16}}), target_device(find_device("rtx-3060")));
  EXPECT_EQ(effect(w, "batch 1, the rest by accumulation").verdict, Verdict::fits);
  EXPECT_EQ(effect(w, "fused optimizer").verdict, Verdict::does_not_fit);
  EXPECT_EQ(what_if_json(w)["levers"][0]["outcome"], "saves");
}

// The same job on a card and on a device whose memory is the host's.
TEST(WhatIf, MovesNothingToTheHostWhereThatIsTheDevice) {
  Job job = job_of("gpt2", {{"batch", 2}, {"seq", 64}, {"lora", {{"r", 4}}}, {"ema", true}});
  for (const char* id : {"gb10", "strix-halo-8060s"}) {
    const TargetDevice device = target_device(find_device(id));
    ASSERT_TRUE(one_pool(device)) << id;
    const WhatIf w = what_if(job, device);
    for (const LeverEffect& e : w.effects) EXPECT_FALSE(moves_to_host(e.lever.settings)) << e.lever.name;
    const std::vector<std::string> expected{"activations on the host", "optimizer on the host", "optimizer and gradients on the host",
                                            "weights of 4 blocks on the host", "moving average on the host"};
    EXPECT_EQ(w.left_out, expected);
    const std::string text = shown(what_if_blocks(w));
    EXPECT_EQ(text.find(kOnePool), text.rfind(kOnePool)) << text;
    EXPECT_NE(text.find(kOnePool), std::string::npos) << text;
    EXPECT_EQ(what_if_json(w)["left_out"]["levers"].size(), expected.size());
  }
  const WhatIf card = what_if(job, target_device(find_device("rtx-3060")));
  EXPECT_NO_THROW(effect(card, "weights of 4 blocks on the host"));
  EXPECT_TRUE(card.left_out.empty());
  EXPECT_TRUE(what_if_json(card)["left_out"].is_null());
}

TEST(WhatIf, TellsHowFarItIsAndCanBeEnded) {
  const Job job = job_of("gpt2", {{"seq", 64}});
  Runs runs;
  size_t told = 0, all = 0;
  const WhatIf w = what_if(runs, job, {}, [&](size_t done, size_t total, const char*) {
    EXPECT_EQ(done, ++told);
    all = total;
    return true;
  });
  EXPECT_EQ(told, all);
  EXPECT_EQ(told, w.effects.size());
  EXPECT_THROW(what_if(runs, job, {}, [](size_t, size_t, const char*) { return false; }), Cancelled);
}

TEST(WhatIf, ArgumentsOfNoneAreNotOn) {
  const WhatIf w = what_if(job_of("gpt2", {{"seq", 64}, {"optimizer_args", {{"fused", nullptr}, {"foreach", nullptr}}}}));
  EXPECT_NO_THROW(effect(w, "fused optimizer"));
}

TEST(Levers, OfZeroSayTheirStage) {
  for (const int stage : {1, 2, 3}) {
    const Job job = job_of("gpt2", {{"zero", {{"world", 2}, {"stage", stage}}}});
    int seen = 0;
    for (const Lever& l : levers_for(job)) {
      if (!l.settings.contains("zero")) continue;
      Job changed = job;
      l.settings.apply(changed, "test");
      const bool to_3 = l.name.find("(ZeRO-3)") != std::string::npos, to_2 = l.name.find("(ZeRO-2)") != std::string::npos;
      EXPECT_EQ(changed.parallel.deepspeed->stage, to_3 ? 3 : to_2 ? 2 : stage) << l.name;
      ++seen;
    }
    EXPECT_GE(seen, 1) << stage;
  }
}

TEST(Levers, OfAVideoAreFramesAndPixelsNotItsSequence) {
  Job job;
  job.model = job.family = "wan";
  job.inputs = InputKind::own;
  job.seq = 480;
  job.config = Config("wan", {{"height", 480}, {"width", 832}, {"frames", 81}});
  std::vector<std::string> names;
  for (const Lever& l : levers_for(job)) names.push_back(l.name);
  const auto offered = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  EXPECT_TRUE(offered("41 frames instead of 81"));
  EXPECT_TRUE(offered("352 x 608 pixels"));
  EXPECT_FALSE(offered("half the sequence"));
  job.config = Config("wan", {});
  names.clear();
  for (const Lever& l : levers_for(job)) names.push_back(l.name);
  EXPECT_TRUE(offered("half the sequence"));
}

}  // namespace
}  // namespace plimsoll::levers_test
