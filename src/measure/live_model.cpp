#include "measure/live_model.h"

#include "util/text.h"

namespace plimsoll::measure {

const std::vector<LiveEntry>& live_models() {
  static const std::vector<LiveEntry> kModels{
      {"mamba-trainer", make_live_mamba},   {"gsa", make_live_gsa}, {"fsdm", make_live_fsdm}, {"stdiff", make_live_stdiff},
      {"unet2d-condition", make_live_unet},
  };
  return kModels;
}

namespace {

const LiveEntry& entry_of(const std::string& family) {
  std::vector<std::string> known;
  for (const LiveEntry& entry : live_models()) {
    if (family == entry.family) return entry;
    known.emplace_back(entry.family);
  }
  throw Error("[measure] " + family + " is simulated, but not one of the models that are really trained",
              "those are: " + join(known, ", ") + "; `plimsoll estimate` answers for all others");
}

}  // namespace

void require_live(const std::string& family) { entry_of(family); }

std::unique_ptr<LiveModel> make_live_model(Build& build, const Job& job) { return entry_of(job.family).make(build, job); }

Tensors LiveLanguageModel::make_inputs(int64_t samples) { return {torch::empty({samples, tokens_}, torch::kInt64)}; }

void LiveLanguageModel::fill(const Tensors& inputs, int64_t row, const Data& data, int64_t sample) const {
  data.tokens(sample, tokens_, vocabulary_, inputs[0].data_ptr<int64_t>() + row * tokens_);
}

}  // namespace plimsoll::measure
