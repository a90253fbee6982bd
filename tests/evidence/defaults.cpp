// The defaults of every configuration class of transformers, as it states them.
#include <fstream>

#include "defaults.h"
#include "evidence/evidence.h"

namespace plimsoll::defaults_evidence {
namespace {

TEST(Defaults, AreThoseOfTransformers) {
  std::ifstream in(evidence("data/hf_config_defaults.json"));
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
}  // namespace plimsoll::defaults_evidence
