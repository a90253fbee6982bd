#include "step/zero1.h"

#include <algorithm>

#include "optim/foreach.h"

namespace plimsoll {

namespace {

// _build_param_buckets: the parameters of a rank become views of one flat tensor. A rank without any has a tensor of one element.
Tensor flatten(const std::vector<Parameter*>& share, Tape& tape) {
  if (share.empty()) return temporary("zeros", {1}, DType::float32, tape);
  int64_t elements = 0;
  for (const Parameter* p : share) elements += p->value.numel();
  Tensor flat = temporary("empty", {elements}, share[0]->value.dtype(), tape);
  for (Parameter* p : share) {  // param.data = view: the tensor stays, its memory goes
    p->value.body().storage = flat.body().storage;
    p->value.body().strides = contiguous_strides(p->value.sizes());
  }
  return flat;
}

class Zero1 final : public Optimizer {
 public:
  Zero1(std::unique_ptr<Optimizer> local, const Zero1Settings& settings) : local_(std::move(local)), settings_(settings) {}

  void attach(const std::vector<Parameter*>& all) override {
    for (const Parameter* p : all)
      if (p->value.dtype() != all[0]->value.dtype())
        throw Error("[zero1] the trained parameters are of different types, which ZeroRedundancyOptimizer refuses",
                    "train parameters of one type");
    const std::vector<std::vector<Parameter*>> shares = zero1_shares(all, settings_.world);
    share_ = shares[static_cast<size_t>(settings_.rank)];
    if (settings_.parameter_view && !all.empty())
      for (const std::vector<Parameter*>& share : shares) flat_.push_back(flatten(share, all[0]->value.tape()));
    local_->attach(share_);
  }

  void step(const std::vector<Parameter*>&) override { local_->step(share_); }
  Tensors states() const override { return local_->states(); }
  // The wrapper does not have the attribute, so a GradScaler unscales by itself.
  bool supports_amp_scaling() const override { return false; }

 private:
  std::unique_ptr<Optimizer> local_;
  Zero1Settings settings_;
  std::vector<Parameter*> share_;
  Tensors flat_;
};

}  // namespace

// _partition_parameters: the largest first, each to the rank that has least so far.
std::vector<std::vector<Parameter*>> zero1_shares(const std::vector<Parameter*>& parameters, int64_t world) {
  std::vector<Parameter*> sorted = parameters;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Parameter* a, const Parameter* b) { return a->value.numel() > b->value.numel(); });
  std::vector<std::vector<Parameter*>> shares(static_cast<size_t>(world));
  std::vector<int64_t> sizes(shares.size(), 0);
  for (Parameter* p : sorted) {
    const auto rank = std::min_element(sizes.begin(), sizes.end()) - sizes.begin();
    shares[static_cast<size_t>(rank)].push_back(p);
    sizes[static_cast<size_t>(rank)] += p->value.numel();
  }
  return shares;
}

std::unique_ptr<Optimizer> make_zero1(std::unique_ptr<Optimizer> local, const Zero1Settings& settings) {
  return std::make_unique<Zero1>(std::move(local), settings);
}

}  // namespace plimsoll
