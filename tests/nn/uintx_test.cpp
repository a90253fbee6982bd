// The AI Toolkit's uint2 to uint7: bytes of the stored weight, and what a forward keeps of the unpacked one.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "job/job.h"
#include "job/settings.h"
#include "model/resolve.h"
#include "nn/uintx_linear.h"
#include "simulate.h"
#include "step/train.h"
#include "util/error.h"

namespace plimsoll::uintx_test {
namespace {

TEST(UIntX, CodesArePackedByShards) {
  EXPECT_EQ(uintx_bytes(4, 128, 64), 128 * 64 / 2);
  EXPECT_EQ(uintx_bytes(2, 128, 64), 128 * 64 / 4);
  EXPECT_EQ(uintx_bytes(3, 128, 64), 128 * 64 / 4 + 128 * 64 / 8);
  EXPECT_EQ(uintx_bytes(7, 128, 64), 128 * 64 / 2 + 128 * 64 / 4 + 128 * 64 / 8);
  EXPECT_EQ(uintx_bytes(2, 1, 65), 17);  // rounded up
  EXPECT_TRUE(takes_uintx(192));
  EXPECT_FALSE(takes_uintx(100));
}

struct Alive {
  int64_t parameters = 0, peak = 0;
};

Alive alive_of(const std::string& quantization, bool checkpointing) {
  Job job;
  apply_setting(job, "model", "llama", "test");
  apply_setting(job, "config",
                nlohmann::json{{"hidden_size", 256},
                               {"intermediate_size", 1024},
                               {"num_hidden_layers", 8},
                               {"num_attention_heads", 4},
                               {"num_key_value_heads", 4},
                               {"vocab_size", 64}},
                "test");
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, nlohmann::json>>{{"batch", 1},
                                                           {"seq", 8},
                                                           {"precision", "bf16"},
                                                           {"checkpointing", checkpointing},
                                                           {"lora", {{"r", 4}, {"target_modules", "all-linear"}}}})
    apply_setting(job, key, value, "test");
  if (!quantization.empty()) apply_setting(job, "quantization", quantization, "test");
  resolve_model(job);
  const Simulation run = simulate(job);
  Alive a;
  int64_t now = 0;
  for (const Event& e : run.trace.events) {
    if (e.kind != Event::Kind::alloc && e.kind != Event::Kind::free) continue;
    const StorageRecord& s = run.trace.storages[e.storage];
    now += e.kind == Event::Kind::alloc ? s.bytes : -s.bytes;
    if (e.kind == Event::Kind::alloc && s.born_as == Category::parameter) a.parameters += s.bytes;
    a.peak = std::max(a.peak, now);
  }
  return a;
}

// A weight that a plain linear multiplies by stays for backward: without checkpoints the quantised base costs more than the whole one.
TEST(UIntX, SavesNothingWithoutCheckpoints) {
  EXPECT_LT(alive_of("uint4", true).parameters, alive_of("", true).parameters);
  EXPECT_GT(alive_of("uint4", false).peak, alive_of("", false).peak);
  EXPECT_LT(alive_of("uint4", true).peak, alive_of("uint4", false).peak);
}

TEST(UIntX, IsNotBitsandbytes) {
  Job job;
  EXPECT_THROW(apply_setting(job, "quantization", nlohmann::json{{"type", "uint4"}, {"prepare", true}}, "test"), Error);
  EXPECT_THROW(apply_setting(job, "quantization", "uint8", "test"), Error);
}

}  // namespace
}  // namespace plimsoll::uintx_test
