#include "optim/optimizers.h"
#include "util/text.h"

namespace plimsoll {

const std::vector<OptimizerEntry>& optimizer_registry() {
  static const std::vector<OptimizerEntry> kOptimizers{
      {"AdamW", "torch.optim", "2 states a parameter (3 with amsgrad)", make_adamw},
      {"Adam", "torch.optim", "2 states a parameter (3 with amsgrad)", make_adam},
      {"SGD", "torch.optim", "no state, 1 a parameter with momentum", make_sgd},
      {"Adafactor", "torch.optim", "a row and a column for matrices, 1 state for vectors", make_adafactor},
      {"Muon", "torch.optim", "1 state a parameter; takes matrices alone", make_muon},
      {"Muon+AdamW", "torch.optim", "1 state for matrices by Muon, 2 for the rest by AdamW", make_muon_and_adamw},
      {"RMSprop", "torch.optim", "1 state a parameter, 1 more each with momentum and centered", make_rmsprop},
      {"Adagrad", "torch.optim", "1 state a parameter", make_adagrad},
      {"Adadelta", "torch.optim", "2 states a parameter", make_adadelta},
      {"Adamax", "torch.optim", "2 states a parameter", make_adamax},
      {"NAdam", "torch.optim", "2 states a parameter", make_nadam},
      {"RAdam", "torch.optim", "2 states a parameter", make_radam},
      {"Rprop", "torch.optim", "2 states a parameter", make_rprop},
      {"ASGD", "torch.optim", "1 state a parameter", make_asgd},
      {"TransformersAdafactor", "transformers", "a row and a column for matrices, 1 state for vectors, in fp32",
       make_transformers_adafactor},
      {"AdamW8bit", "bitsandbytes", "2 bytes a parameter and 2 scales for every 256", make_adamw8bit},
      {"Adam8bit", "bitsandbytes", "2 bytes a parameter and 2 scales for every 256", make_adam8bit},
      {"AdamW32bit", "bitsandbytes", "2 fp32 states a parameter", make_adamw32bit},
      {"Lion", "bitsandbytes", "1 fp32 state a parameter", make_lion},
      {"Lion8bit", "bitsandbytes", "1 byte a parameter and 1 scale for every 256", make_lion8bit},
      {"PagedAdamW", "bitsandbytes", "as AdamW32bit, in managed memory", make_paged_adamw},
      {"PagedAdamW32bit", "bitsandbytes", "as AdamW32bit, in managed memory", make_paged_adamw32bit},
      {"PagedAdamW8bit", "bitsandbytes", "as AdamW8bit, in managed memory but for the scales", make_paged_adamw8bit},
      {"PagedLion", "bitsandbytes", "as Lion, in managed memory", make_paged_lion},
      {"PagedLion8bit", "bitsandbytes", "as Lion8bit, in managed memory but for the scales", make_paged_lion8bit},
      {"AdEMAMix", "bitsandbytes", "3 fp32 states a parameter", make_ademamix},
      {"AdEMAMix8bit", "bitsandbytes", "3 bytes a parameter and 3 scales for every 256", make_ademamix8bit},
      {"PagedAdEMAMix", "bitsandbytes", "as AdEMAMix, in managed memory", make_paged_ademamix},
      {"PagedAdEMAMix8bit", "bitsandbytes", "as AdEMAMix8bit, in managed memory but for the scales", make_paged_ademamix8bit},
      {"RMSprop32bit", "bitsandbytes", "1 fp32 state a parameter", make_rmsprop32bit},
      {"RMSprop8bit", "bitsandbytes", "1 byte a parameter and 1 scale for every 256", make_rmsprop8bit},
      {"torchao.AdamW", "torchao", "2 states a parameter", make_torchao_adamw},
      {"torchao.AdamW8bit", "torchao", "2 bytes a parameter and 2 scales for every 256", make_torchao_adamw8bit},
      {"torchao.AdamW4bit", "torchao", "2 half bytes a parameter and 2 scales for every 128", make_torchao_adamw4bit},
      {"torchao.AdamWFp8", "torchao", "2 bytes a parameter and 2 scales for every 256", make_torchao_adamwfp8},
      {"torchao.Adam8bit", "torchao", "2 bytes a parameter and 2 scales for every 256", make_torchao_adam8bit},
      {"torchao.Adam4bit", "torchao", "2 half bytes a parameter and 2 scales for every 128", make_torchao_adam4bit},
      {"torchao.AdamFp8", "torchao", "2 bytes a parameter and 2 scales for every 256", make_torchao_adamfp8},
      {"lion_pytorch.Lion", "lion-pytorch", "1 state a parameter", make_lion_pytorch},
      {"Prodigy", "prodigyopt", "4 states a parameter; slice_p makes 2 of them smaller", make_prodigy},
      {"SophiaG", "Liuhong99/Sophia", "2 states a parameter", make_sophia},
      {"SOAP", "nikhilvyas/SOAP", "2 states a parameter, 2 fp32 matrices for every side of it", make_soap},
      {"ScalableShampoo", "pytorch_optimizer", "2 states a parameter, 2 fp32 matrices for every side of every block of it",
       make_scalable_shampoo},
      {"AdamWScheduleFree", "schedulefree", "2 states a parameter, 1 more with inner_momentum", make_adamw_schedule_free},
      {"RAdamScheduleFree", "schedulefree", "2 states a parameter", make_radam_schedule_free},
      {"SGDScheduleFree", "schedulefree", "1 state a parameter", make_sgd_schedule_free},
      {"StableAdamW", "torch-optimi", "2 states a parameter, 3 of half-precision ones", make_stable_adamw},
      {"AnyPrecisionAdamW", "torchdistx", "2 states a parameter in fp32 and bf16, 1 more with use_kahan_summation",
       make_any_precision_adamw},
      {"GrokAdamW", "grokadamw", "3 states a parameter, in the host's memory", make_grok_adamw},
      {"GaLoreAdamW", "galore-torch", "2 states of rank 128 for linear layers, and what projects on it; 2 for the rest", make_galore_adamw},
      {"GaLoreAdamW8bit", "galore-torch",
       "2 bytes for each element of rank 128 of linear layers, and what projects on it; AdamW8bit's for the rest", make_galore_adamw8bit},
      {"GaLoreAdafactor", "galore-torch",
       "a row and a column of what is of rank 128 for linear layers, and what projects on it; Adafactor's for the rest",
       make_galore_adafactor},
      {"APOLLOAdamW", "apollo-torch", "2 states of rank 128 for linear layers, and what projects on it; 2 for the rest", make_apollo_adamw},
      {"Lomo", "lomo-optim", "no state: weights are updated in backward", make_lomo},
      {"AdaLomo", "lomo-optim", "a row and a column for matrices, 1 state for vectors, in fp32; updates in backward", make_adalomo},
      {"none", "", "nothing: forward and backward alone", make_no_update},
  };
  return kOptimizers;
}

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const Config& args) {
  std::vector<std::string> names;
  for (const OptimizerEntry& e : optimizer_registry()) {
    if (lower(e.name) == lower(name) || lower(std::string(e.library) + "." + e.name) == lower(name)) return e.make(args);
    names.emplace_back(e.name);
  }
  throw Error("[optimizer] '" + name + "' is not known", did_you_mean(name, names));
}

}  // namespace plimsoll
