// Every preset has the parameters of the model that transformers 5.12 makes of the same configuration.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "model/registry.h"
#include "model/resolve.h"

namespace plimsoll {
namespace {

// sum(p.numel() for p in model.parameters()) of the family's first class, built from the preset's configuration.
const std::map<std::string, int64_t> kParameters{
    {"gpt2", 124439808},
    {"gpt2-medium", 354823168},
    {"gpt2-large", 774030080},
    {"gpt2-xl", 1557611200},
    {"distilgpt2", 81912576},
    {"gpt-j-6b", 6050882784},
    {"gpt-neo-125m", 125198592},
    {"gpt-neo-1.3b", 1315575808},
    {"gpt-neo-2.7b", 2651307520},
    {"santacoder", 1124886528},
    {"starcoderbase-1b", 1137207296},
    {"starcoderbase-3b", 3043311104},
    {"starcoderbase-7b", 7327263232},
    {"starcoder", 15517456384},
    {"biogpt", 346763264},
    {"biogpt-large", 1571188800},
    {"bloom-560m", 559214592},
    {"bloom-1b1", 1065314304},
    {"bloom-1b7", 1722408960},
    {"bloom-3b", 3002557440},
    {"bloom-7b1", 7069016064},
    {"bloom", 176247271424},
    {"mpt-7b", 6649286656},
    {"mpt-30b", 29957200896},
    {"tinyllama-1.1b", 1100048384},
    {"llama-7b", 6738415616},
    {"llama-13b", 13015864320},
    {"llama-2-7b", 6738415616},
    {"llama-2-13b", 13015864320},
    {"llama-2-70b", 68976648192},
    {"llama-3-8b", 8030261248},
    {"llama-3-70b", 70553706496},
    {"llama-3.1-8b", 8030261248},
    {"llama-3.1-70b", 70553706496},
    {"llama-3.1-405b", 405853388800},
    {"llama-3.2-1b", 1235814400},
    {"llama-3.2-3b", 3212749824},
    {"llama-3.3-70b", 70553706496},
    {"smollm2-135m", 134515008},
    {"smollm2-360m", 361821120},
    {"smollm2-1.7b", 1711376384},
    {"mistral-7b", 7241732096},
    {"mistral-7b-v0.1", 7241732096},
    {"mistral-7b-v0.3", 7248023552},
    {"mistral-nemo-12b", 12247782400},
    {"granite-3.1-2b", 2533525504},
    {"granite-3.1-8b", 8170835968},
    {"powerlm-3b", 3510819072},
    {"olmo-2-1b", 1484916736},
    {"olmo-2-7b", 7298617344},
    {"olmo-2-13b", 13716198400},
    {"olmo-2-32b", 32234279936},
    {"aya-23-8b", 8028033024},
    {"command-r", 34980831232},
    {"command-r-plus", 103810674688},
    {"stablelm-2-1.6b", 1644515328},
    {"stablelm-3b-4e1t", 2795443200},
    {"stablelm-2-12b", 12143185920},
    {"qwen2-0.5b", 494032768},
    {"qwen2-1.5b", 1543714304},
    {"qwen2-7b", 7615616512},
    {"qwen2.5-0.5b", 494032768},
    {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-7b", 7615616512},
    {"qwen2.5-3b", 3085938688},
    {"qwen2.5-14b", 14770033664},
    {"qwen2.5-32b", 32763876352},
    {"qwen2.5-72b", 72706203648},
    {"qwen3-0.6b", 596049920},
    {"qwen3-1.7b", 1720574976},
    {"qwen3-4b", 4022468096},
    {"qwen3-8b", 8190735360},
    {"qwen3-14b", 14768307200},
    {"qwen3-32b", 32762123264},
    {"gemma-2b", 2506172416},
    {"gemma-7b", 8537680896},
    {"gemma-2-2b", 2614341888},
    {"gemma-2-9b", 9241705984},
    {"gemma-2-27b", 27227128320},
    {"phi-1", 1418270720},
    {"phi-1.5", 1418270720},
    {"phi-2", 2779683840},
    {"phi-3-mini", 3821079552},
    {"phi-3.5-mini", 3821079552},
    {"phi-3-medium", 13960238080},
    {"phi-4", 14659507200},
    {"pythia-70m", 70426624},
    {"pythia-160m", 162322944},
    {"pythia-410m", 405334016},
    {"pythia-1b", 1011781632},
    {"pythia-1.4b", 1414647808},
    {"pythia-2.8b", 2775208960},
    {"pythia-6.9b", 6857302016},
    {"pythia-12b", 11846072320},
    {"gpt-neox-20b", 20554567680},
    {"opt-125m", 125239296},
    {"opt-350m", 331196416},
    {"opt-1.3b", 1315758080},
    {"opt-2.7b", 2651596800},
    {"opt-6.7b", 6658473984},
    {"opt-13b", 12853473280},
    {"opt-30b", 29974540288},
    {"opt-66b", 65719701504},
    {"bert-base", 109514298},
    {"bert-base-uncased", 109514298},
    {"bert-base-cased", 108340804},
    {"bert-large", 335174458},
    {"electra-small-discriminator", 13549057},
    {"electra-base-discriminator", 109483009},
    {"electra-large-discriminator", 335142913},
    {"distilbert-base-uncased", 66985530},
    {"distilbert-base-cased", 65812036},
    {"distilbert-base-multilingual-cased", 135445755},
    {"albert-base-v2", 11221680},
    {"albert-large-v2", 16795824},
    {"albert-xlarge-v2", 54821040},
    {"albert-xxlarge-v2", 206368944},
    {"distilroberta-base", 82170201},
    {"roberta-base", 124697433},
    {"roberta-large", 355412057},
    {"xlm-roberta-base", 278295186},
    {"xlm-roberta-large", 560142482},
    {"t5-small", 60506624},
    {"t5-base", 222903552},
    {"t5-large", 737668096},
    {"t5-3b", 2851598336},
    {"t5-11b", 11307321344},
    {"flan-t5-small", 60511616},
    {"flan-t5-base", 222903552},
    {"flan-t5-large", 750251008},
    {"flan-t5-xl", 2783959040},
    {"flan-t5-xxl", 11003736064},
    {"vit-b16", 85800194},
    {"vit-s16", 21666434},
    {"vit-ti16", 5524802},
    {"vit-b32", 87456770},
    {"vit-l16", 303303682},
    {"vit-l32", 305512450},
    {"vit-h14", 630767362},
    {"dinov2-small", 22058114},
    {"dinov2-base", 86583554},
    {"dinov2-large", 304372738},
    {"dinov2-giant", 1136486914},
};

int64_t parameters_of(const Preset& preset) {
  Tape tape;
  Build build(tape);
  const auto model = find_model(preset.family)->make(build, Config(preset.name, nlohmann::json::parse(preset.config)));
  int64_t n = 0;
  for (const Parameter* p : model->parameters()) n += p->value.numel();
  return n;
}

TEST(Presets, HaveTheParametersOfTheirReference) {
  for (const Preset& p : presets()) {
    ASSERT_TRUE(kParameters.contains(p.name)) << p.name;
    EXPECT_EQ(parameters_of(p), kParameters.at(p.name)) << p.name;
  }
  EXPECT_EQ(presets().size(), kParameters.size());
}

}  // namespace
}  // namespace plimsoll
