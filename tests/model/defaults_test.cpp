// Missing keys of a config.json are the class defaults of transformers: a configuration with every default written out
// needs the same bytes as an empty one.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "model/registry.h"
#include "step/train.h"

namespace plimsoll::defaults_test {
namespace {

int64_t peak_of(const ModelEntry& entry, const nlohmann::json& config) {
  Job job;
  job.model = job.family = entry.name;
  job.config = Config(entry.name, config);
  job.batch = 1;
  job.seq = entry.inputs == InputKind::image || entry.inputs == InputKind::own ? entry.default_seq : 64;
  job.inputs = entry.inputs;
  return ideal_timeline(simulate(job).trace).peak().bytes;
}

TEST(Defaults, AreThoseOfTransformers) {
  const std::string path = PLIMSOLL_SOURCE_DIR "/../shared/data/hf_config_defaults.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "skipped: ../shared/data/hf_config_defaults.json is not here";
  std::ifstream in(path);
  const nlohmann::json all = nlohmann::json::parse(in);
  int checked = 0;
  for (const ModelEntry& entry : model_registry()) {
    if (entry.classes.empty() || !all.contains(entry.name)) continue;
    if (entry.name == "qwen2_vl" || entry.name.starts_with("deepseek_v2")) continue;  // defaults that no run could have
    const nlohmann::json& defaults = all[entry.name]["defaults"];
    EXPECT_EQ(peak_of(entry, defaults), peak_of(entry, nlohmann::json::object())) << entry.name;
    ++checked;
  }
  EXPECT_GE(checked, 14);
}

}  // namespace
}  // namespace plimsoll::defaults_test
