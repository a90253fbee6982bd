// A configuration is read by many threads at once: ranks and stages of one job build their models from it.
#include "job/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "job/config_log.h"
#include "simulate.h"

namespace plimsoll::config_test {
namespace {

Job llama() {
  Job job;
  job.family = "llama";
  job.batch = 1;
  job.seq = 8;
  job.config = Config("config.json", {{"hidden_size", 64},
                                      {"intermediate_size", 128},
                                      {"num_hidden_layers", 2},
                                      {"num_attention_heads", 4},
                                      {"num_key_value_heads", 2},
                                      {"vocab_size", 128}});
  return job;
}

std::vector<std::string> keys(const ConfigLog& log) {
  std::vector<std::string> out;
  for (const ConfigLookup& l : log.lookups()) out.push_back(l.key);
  return out;
}

TEST(ConfigLog, ListsEachKeyOnceInTheOrderInWhichItWasAskedFor) {
  Config config("test", {{"b", 2}});
  const auto log = std::make_shared<ConfigLog>();
  config.watch(log);
  const Config copy = config;
  EXPECT_EQ(copy.integer({"b"}, 1), 2);
  EXPECT_EQ(config.text({"a", "other"}, "x"), "x");
  EXPECT_EQ(config.integer({"b"}, 1), 2);
  ASSERT_EQ(keys(*log), (std::vector<std::string>{"b", "a"}));
  EXPECT_TRUE(log->lookups()[0].given);
  EXPECT_EQ(log->lookups()[1].value, "\"x\"");
  EXPECT_FALSE(log->lookups()[1].given);
}

TEST(ConfigLog, ThreadsThatRunTheSameJobWriteTheLogOfOne) {
  Job job = llama();
  const auto alone = std::make_shared<ConfigLog>(), together = std::make_shared<ConfigLog>();
  job.config.watch(alone);
  simulate(job);
  ASSERT_FALSE(keys(*alone).empty());
  job.config.watch(together);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&job] {
        for (int k = 0; k < 25; ++k) simulate(job);
      });
  }
  EXPECT_EQ(keys(*together), keys(*alone));
}

}  // namespace
}  // namespace plimsoll::config_test
