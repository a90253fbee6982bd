// Adapters, quantised bases and frozen modules: what is trained, what it costs, and what is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "job/settings.h"
#include "model/resolve.h"
#include "simulate.h"
#include "step/train.h"

namespace plimsoll::tuning_test {
namespace {

Job job_with(const char* model, const char* setting, const nlohmann::json& value) {
  Job job;
  job.model = model;
  job.batch = 1;
  job.seq = 16;
  job.origin["seq"] = "test";
  if (*setting) apply_setting(job, setting, value, "test");
  resolve_model(job);
  return job;
}

// The message of the Error that a job ends with.
std::string refusal(const char* model, const char* setting, const nlohmann::json& value) {
  try {
    simulate(job_with(model, setting, value));
  } catch (const Error& e) {
    return std::string(e.what()) + " " + e.hint();
  }
  return "";
}

int64_t bytes_of(const Trace& trace, Category category) {
  int64_t sum = 0;
  for (const StorageRecord& s : trace.storages)
    if (s.born_as == category && s.phase == Phase::setup) sum += s.bytes;
  return sum;
}

TEST(Lora, TrainsTheAdaptersAlone) {
  const Simulation run = simulate(job_with("llama-3.2-1b", "lora", "r=8,target_modules=q_proj+v_proj"));
  EXPECT_EQ(run.trainable, 16 * (8 * (2048 + 2048) + 8 * (2048 + 512)));  // layers, A and B of q_proj and of v_proj
  EXPECT_GT(run.parameters, run.trainable);
}

TEST(Lora, ReadsAMappingAsPeftDoes) {
  const Simulation run = simulate(job_with("gpt2", "lora", {{"r", 4}, {"target_modules", {"c_attn"}}, {"lora_dropout", 0.1}}));
  EXPECT_EQ(run.trainable, 12 * 4 * (768 + 3 * 768));
}

TEST(Lora, ATargetThatMatchesNoModuleIsNamedWithWhatThereIs) {
  const std::string text = refusal("gpt2", "lora", "r=8,target_modules=q_proj");
  EXPECT_NE(text.find("q_proj"), std::string::npos) << text;
  EXPECT_NE(text.find("c_attn"), std::string::npos) << text;
}

TEST(Lora, WrongValuesAreErrors) {
  EXPECT_NE(refusal("gpt2", "lora", "r=0"), "");
  EXPECT_NE(refusal("gpt2", "lora", "r=-4"), "");
  EXPECT_NE(refusal("gpt2", "lora", "rang=8").find("rang"), std::string::npos);
  EXPECT_NE(refusal("gpt2", "lora", 7), "");
  EXPECT_NE(refusal("gpt2", "quantization", "nf3").find("nf3"), std::string::npos);
  EXPECT_NE(refusal("gpt2", "frozen", "nothing_like_it").find("nothing_like_it"), std::string::npos);
}

TEST(Quantization, FourBitWeightsTakeHalfAByteAndTheirScales) {
  nlohmann::json plain{{"type", "nf4"}, {"prepare", false}};
  Job job = job_with("llama-3.2-1b", "quantization", plain);
  job.precision = Precision::bf16;
  apply_setting(job, "lora", "r=8,target_modules=q_proj", "test");
  const Simulation run = simulate(job);
  // Linear layers of the blocks: half a byte an element and an fp32 scale for every 64; the embedding (tied head) stays in bf16.
  const int64_t linears = int64_t{16} * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192), embedding = int64_t{128256} * 2048;
  const int64_t expected = linears / 2 + linears / 64 * 4 + embedding * 2;
  EXPECT_NEAR(static_cast<double>(bytes_of(run.trace, Category::parameter) + bytes_of(run.trace, Category::buffer)),
              static_cast<double>(expected), 0.01 * static_cast<double>(expected));
}

TEST(Frozen, ModulesGetNoGradientAndNoState) {
  const Simulation all = simulate(job_with("gpt2", "", nullptr)), some = simulate(job_with("gpt2", "frozen", "wte+wpe"));
  EXPECT_EQ(all.trainable - some.trainable, (50257 + 1024) * 768);
  EXPECT_EQ(all.parameters, some.parameters);
}

}  // namespace
}  // namespace plimsoll::tuning_test
