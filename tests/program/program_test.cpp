// Who executes a job, and what is told about one that cannot be: every problem at once, each with a way out, and none that is a bug.
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "program/program.h"
#include "support.h"
#include "util/progress.h"

namespace plimsoll::program_program_test {
namespace {

using Json = nlohmann::json;

Job small_llama(const Json& settings = {}) {
  Json all{{"batch", 2},
           {"seq", 32},
           {"precision", "bf16"},
           {"config",
            {{"num_hidden_layers", 2},
             {"hidden_size", 64},
             {"intermediate_size", 96},
             {"num_attention_heads", 4},
             {"num_key_value_heads", 2},
             {"vocab_size", 512}}}};
  for (const auto& [key, value] : settings.items()) {
    if (key == "config")
      all[key].update(value);
    else
      all[key] = value;
  }
  return job_of("llama", all);
}

// "what | hint" of each.
std::vector<std::string> problems_of(const Job& job) {
  std::vector<std::string> out;
  for (const Problem& p : problems(job)) out.push_back(p.what + " | " + p.hint);
  return out;
}

TEST(Programs, EachJobHasOne) {
  const std::pair<Json, const char*> cases[]{{{}, "PyTorch"},
                                             {{{"ddp", "world=2"}}, "PyTorch"},
                                             {{{"zero1", "world=2"}}, "PyTorch"},
                                             {{{"fsdp", "world=2"}}, "PyTorch"},
                                             {{{"fsdp1", "world=2"}}, "PyTorch"},
                                             {{{"zero", "world=2"}}, "PyTorch"},
                                             {{{"tensor_parallel", "world=2"}}, "PyTorch"},
                                             {{{"torchtitan", "world=2"}, {"precision", "fp32"}}, "torchtitan"},
                                             {{{"megatron", "world=2"}}, "Megatron-LM"},
                                             {{{"framework", "jax"}}, "JAX"}};
  for (const auto& [settings, name] : cases) {
    const Job job = small_llama(settings);
    EXPECT_STREQ(program_of(job).name(), name) << settings;
    EXPECT_TRUE(problems(job).empty()) << settings << problems_of(job).front();
    EXPECT_GT(execute(job)->trace().events.size(), 0u) << settings;
  }
}

struct Case {
  Json settings;
  const char* what;
  const char* hint;
};

TEST(Problems, EachCheckSaysWhatIsWrongAndAWayOut) {
  const Case cases[]{
      {{{"optimizer", "AdamV"}}, "'AdamV' is not known", "AdamW"},
      {{{"ddp", "world=8"}, {"zero1", "world=4"}}, "world 4 is not that of ddp, 8", "the same processes"},
      {{{"fsdp", "world=2"}, {"fsdp1", "world=2"}}, "fsdp with fsdp1 is not simulated", "leave one of them out"},
      {{{"quantization", "nf4"}}, "nf4 without an adapter", "add an adapter"},
      {{{"lora", "r=4"}, {"trainable", {"lm_head"}}}, "PEFT freezes the model", "modules_to_save"},
      {{{"optimizer_in_backward", true}, {"clip", 1}}, "the norm of all gradients is not known", "leave one of them out"},
      {{{"master_weights", "fp32"}, {"precision", "fp32"}}, "are fp32 already", "precision to bf16"},
      {{{"gradient_dtype", "fp32"}}, "without master_weights", "set master_weights to fp32"},
      {{{"offload_optimizer", true}, {"master_weights", "fp32"}}, "the copies on the host have the weights' type", "leave one of them out"},
      {{{"fsdp", "world=2"}, {"swap_blocks", 1}}, "swap_blocks with fsdp is not simulated", "leave one of them out"},
      {{{"zero", "world=2,stage=3"}, {"ema", true}}, "it would be of parts of the weights", "leave one of them out"},
      {{{"tensor_parallel", "world=4"}}, "world 4 does not divide num_key_value_heads 2", "the nearest that do: 2"},
      {{{"ema_update", "averaged-model"}, {"ema_dtype", "fp32"}}, "its foreach lerp does not mix types", "leave ema_dtype out"},
      {{{"prefetch_factor", 2}}, "prefetch_factor 2 needs workers", "set workers"},
      {{{"donate", true}}, "donate is a setting of framework jax", "add framework: jax"},
      {{{"framework", "jax"}, {"ddp", "world=2"}}, "framework jax has no ddp", "replicas"},
      {{{"framework", "jax"}, {"optimizer", "Muon"}}, "framework jax has no Muon", "optax has AdamW"},
      {{{"torchtitan", "world=2"}}, "precision bf16 is not its own", "precision fp32"},
      {{{"torchtitan", "world=8,tensor=4"}, {"precision", "fp32"}},
       "2 heads of keys and values cannot be split",
       "tensor can be one of 1, 2"},
      {{{"torchtitan", "world=8,pipeline=4"}, {"precision", "fp32"}, {"batch", 4}}, "without one", "at most 2 stages"},
      {{{"megatron", "world=2"}, {"precision", "fp32"}}, "[megatron] precision fp32 is not simulated", "precision bf16"},
      {{{"megatron", "world=8,tensor=8"}}, "cannot be split over tensor 8", "tensor can be one of"},
      {{{"megatron", "world=2"}, {"torchtitan", "world=2"}}, "its own data and tensor parallelism", "torchtitan out"},
  };
  for (const Case& c : cases) {
    const std::vector<std::string> found = problems_of(small_llama(c.settings));
    ASSERT_EQ(found.size(), 1u) << c.settings << (found.empty() ? "" : "\n" + found.front() + "\n" + found.back());
    const size_t bar = found[0].find(" | ");
    EXPECT_NE(found[0].find(c.what), std::string::npos) << found[0];
    EXPECT_NE(found[0].find(c.hint, bar), std::string::npos) << found[0];
  }
}

TEST(Problems, AllAreListedAndTheFirstIsThrown) {
  const Job job =
      small_llama({{"optimizer", "AdamV"}, {"ddp", "world=8"}, {"zero1", "world=4"}, {"gradient_dtype", "fp32"}, {"prefetch_factor", 2}});
  const std::vector<std::string> found = problems_of(job);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(error_of([&] { execute(job); }), found.front());
  const Job titan = small_llama({{"torchtitan", "world=8,tensor=4,loss_chunks=3"}, {"ema", true}});
  EXPECT_EQ(problems(titan).size(), 4u) << "precision, ema, heads and chunks";
}

TEST(Problems, AModelWhoseConfigurationCannotBeReadIsOne) {
  for (const char* program : {"torchtitan", "megatron"}) {
    Job job = small_llama({{program, "world=2"}, {"precision", std::string(program) == "megatron" ? "bf16" : "fp32"}});
    job.family = "vit";
    EXPECT_NE(problems_of(job).at(0).find("vit"), std::string::npos) << program;
  }
}

TEST(Attempt, WhatOnlyRunningTellsIsAProblem) {
  const Job job = job_of("gpt2", {{"seq", 2000}, {"config", {{"n_layer", 1}, {"n_positions", 1024}}}});
  EXPECT_TRUE(problems(job).empty());
  const Attempt alone = attempt(job);
  EXPECT_FALSE(alone);
  ASSERT_TRUE(alone.problem);
  EXPECT_EQ(alone.problem->what + " | " + alone.problem->hint, error_of([&] { execute(job); }));
  Runs runs;
  EXPECT_EQ(runs.attempt(job).problem->what, alone.problem->what);
  const Attempt shorter = runs.attempt(small_llama());
  EXPECT_TRUE(shorter);
  EXPECT_FALSE(shorter.problem);
  EXPECT_EQ(runs.execute(small_llama()), shorter.run) << "it is kept";
}

// A program with a bug.
class Broken final : public Program {
 public:
  const char* name() const override { return "broken"; }
  bool takes(const Job&) const override { return true; }
  Problems problems(const Job&) const override { return {}; }
  std::string target_key(const Job&, const Target&) const override { return ""; }
  std::shared_ptr<const Run> execute(const Job& job, const Target&, const Detail&) const override {
    if (job.batch == 1) throw std::logic_error("an index out of range");
    if (job.batch == 2) throw std::bad_alloc();
    if (job.batch == 3) throw Cancelled{};
    throw Error("a batch that is too large", "a smaller one");
  }
};

TEST(Attempt, ABugNeverReadsAsImpossible) {
  const Broken program;
  Job job;
  const auto run = [&] { return attempt([&] { return program.execute(job, {}, {}); }); };
  EXPECT_THROW(run(), std::logic_error);
  job.batch = 2;
  EXPECT_THROW(run(), std::bad_alloc);
  job.batch = 3;
  EXPECT_THROW(run(), Cancelled);
  job.batch = 4;
  EXPECT_EQ(run().problem->what, "a batch that is too large");
  EXPECT_EQ(run().problem->hint, "a smaller one");
}

TEST(Evaluation, InTheBatchOfTrainingFollowsIt) {
  const Job before = small_llama({{"batch", 8}, {"eval_batch", 8}});
  Job changed = before;
  changed.batch = 4;
  follow_training(changed, before);
  EXPECT_EQ(changed.eval_batch, 4);
  changed.eval_batch = 16;
  follow_training(changed, before);
  EXPECT_EQ(changed.eval_batch, 16) << "one of its own size";
  Job without = small_llama({{"batch", 8}});
  changed = without;
  changed.batch = 4;
  follow_training(changed, without);
  EXPECT_EQ(changed.eval_batch, 0);
}

}  // namespace
}  // namespace plimsoll::program_program_test
