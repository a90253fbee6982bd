// A model that is really trained: the same job that is simulated, as libtorch executes it. live_model.cpp lists them.
#pragma once

#include "job/job.h"
#include "measure/data.h"
#include "measure/layers.h"

namespace plimsoll::measure {

class LiveModel {
 public:
  virtual ~LiveModel() = default;
  virtual Tensors make_inputs(int64_t samples) = 0;  // the tensors of a micro-batch
  // One sample into one row. Threads fill tensors of their own at the same time: it only writes numbers.
  virtual void fill(const Tensors& inputs, int64_t row, const Data& data, int64_t sample) const = 0;
  // The micro-batch that runs next begins with this sample: what is drawn for each and is no tensor.
  virtual void begin(const Data&, int64_t, int64_t) {}
  virtual Tensor loss(const Tensors& inputs) = 0;  // the mean over samples
  virtual void forget() {}                         // what it kept of the last forward
};

// A language model: tokens (B, T) that are their own labels.
class LiveLanguageModel : public LiveModel {
 public:
  LiveLanguageModel(int64_t tokens, int64_t vocabulary) : tokens_(tokens), vocabulary_(vocabulary) {}
  Tensors make_inputs(int64_t samples) override;
  void fill(const Tensors& inputs, int64_t row, const Data& data, int64_t sample) const override;

 protected:
  int64_t tokens_, vocabulary_;
};

struct LiveEntry {
  const char* family;  // as in the model registry
  std::unique_ptr<LiveModel> (*make)(Build& build, const Job& job);
};

const std::vector<LiveEntry>& live_models();
// Both throw an Error that lists what can be trained.
void require_live(const std::string& family);
std::unique_ptr<LiveModel> make_live_model(Build& build, const Job& job);

std::unique_ptr<LiveModel> make_live_mamba(Build& build, const Job& job);
std::unique_ptr<LiveModel> make_live_gsa(Build& build, const Job& job);
std::unique_ptr<LiveModel> make_live_fsdm(Build& build, const Job& job);
std::unique_ptr<LiveModel> make_live_stdiff(Build& build, const Job& job);
std::unique_ptr<LiveModel> make_live_unet(Build& build, const Job& job);

}  // namespace plimsoll::measure
