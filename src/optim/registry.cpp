#include "optim/arguments.h"
#include "optim/optimizer.h"
#include "util/text.h"

namespace plimsoll {

// The objects of all optimizers' files, in the order in which they are listed.
// clang-format off
#define PLIMSOLL_OPTIMIZERS(ENTRY) \
  ENTRY(kAdamW) \
  ENTRY(kAdam) \
  ENTRY(kSgd) \
  ENTRY(kAdafactor) \
  ENTRY(kMuon) \
  ENTRY(kMuonAndAdamW) \
  ENTRY(kRmsProp) \
  ENTRY(kAdagrad) \
  ENTRY(kAdadelta) \
  ENTRY(kAdamax) \
  ENTRY(kNAdam) \
  ENTRY(kRAdam) \
  ENTRY(kRprop) \
  ENTRY(kAsgd) \
  ENTRY(kTransformersAdafactor) \
  ENTRY(kAdamW8bit) \
  ENTRY(kAdam8bit) \
  ENTRY(kAdamW32bit) \
  ENTRY(kLion) \
  ENTRY(kLion8bit) \
  ENTRY(kPagedAdamW) \
  ENTRY(kPagedAdamW32bit) \
  ENTRY(kPagedAdamW8bit) \
  ENTRY(kPagedLion) \
  ENTRY(kPagedLion8bit) \
  ENTRY(kAdEMAMix) \
  ENTRY(kAdEMAMix8bit) \
  ENTRY(kPagedAdEMAMix) \
  ENTRY(kPagedAdEMAMix8bit) \
  ENTRY(kRmsProp32bit) \
  ENTRY(kRmsProp8bit) \
  ENTRY(kTorchAoAdamW) \
  ENTRY(kTorchAoAdamW8bit) \
  ENTRY(kTorchAoAdamW4bit) \
  ENTRY(kTorchAoAdamWFp8) \
  ENTRY(kTorchAoAdam8bit) \
  ENTRY(kTorchAoAdam4bit) \
  ENTRY(kTorchAoAdamFp8) \
  ENTRY(kLionPytorch) \
  ENTRY(kProdigy) \
  ENTRY(kSophiaG) \
  ENTRY(kSoap) \
  ENTRY(kScalableShampoo) \
  ENTRY(kCame) \
  ENTRY(kAdamWScheduleFree) \
  ENTRY(kRAdamScheduleFree) \
  ENTRY(kSgdScheduleFree) \
  ENTRY(kStableAdamW) \
  ENTRY(kAnyPrecisionAdamW) \
  ENTRY(kGrokAdamW) \
  ENTRY(kGaLoreAdamW) \
  ENTRY(kGaLoreAdamW8bit) \
  ENTRY(kGaLoreAdafactor) \
  ENTRY(kApolloAdamW) \
  ENTRY(kLomo) \
  ENTRY(kAdaLomo) \
  ENTRY(kNoUpdate)
// clang-format on

#define PLIMSOLL_DECLARE(entry) extern const OptimizerEntry entry;
PLIMSOLL_OPTIMIZERS(PLIMSOLL_DECLARE)
#undef PLIMSOLL_DECLARE

const std::vector<std::reference_wrapper<const OptimizerEntry>>& optimizer_registry() {
#define PLIMSOLL_LIST(entry) entry,
  static const std::vector<std::reference_wrapper<const OptimizerEntry>> kOptimizers{PLIMSOLL_OPTIMIZERS(PLIMSOLL_LIST)};
#undef PLIMSOLL_LIST
  return kOptimizers;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerEntry& entry, const Config& args) { return entry.make(Arguments(entry, args)); }

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const Config& args) {
  std::vector<std::string> names;
  for (const OptimizerEntry& e : optimizer_registry()) {
    if (lower(e.name) == lower(name) || lower(std::string(e.library) + "." + e.name) == lower(name)) return make_optimizer(e, args);
    names.emplace_back(e.name);
  }
  throw Error("[optimizer] '" + name + "' is not known", did_you_mean(name, names));
}

}  // namespace plimsoll
