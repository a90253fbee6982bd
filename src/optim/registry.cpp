#include "optim/optimizers.h"
#include "util/text.h"

namespace plimsoll {

const std::vector<OptimizerEntry>& optimizer_registry() {
  static const std::vector<OptimizerEntry> kOptimizers{
      {"AdamW", "2 states a parameter (3 with amsgrad)", make_adamw},
      {"Adam", "2 states a parameter (3 with amsgrad)", make_adam},
      {"SGD", "no state, 1 a parameter with momentum", make_sgd},
      {"Adafactor", "a row and a column for matrices, 1 state for vectors", make_adafactor},
      {"RMSprop", "1 state a parameter, 1 more each with momentum and centered", make_rmsprop},
      {"Adagrad", "1 state a parameter", make_adagrad},
      {"Adadelta", "2 states a parameter", make_adadelta},
      {"Adamax", "2 states a parameter", make_adamax},
      {"NAdam", "2 states a parameter", make_nadam},
      {"RAdam", "2 states a parameter", make_radam},
      {"Rprop", "2 states a parameter", make_rprop},
      {"ASGD", "1 state a parameter", make_asgd},
      {"TransformersAdafactor", "a row and a column for matrices, 1 state for vectors, in fp32 (transformers)",
       make_transformers_adafactor},
      {"AdamW8bit", "2 bytes a parameter and 2 scales for every 256 (bitsandbytes)", make_adamw8bit},
      {"Adam8bit", "2 bytes a parameter and 2 scales for every 256 (bitsandbytes)", make_adam8bit},
      {"AdamW32bit", "2 fp32 states a parameter (bitsandbytes)", make_adamw32bit},
      {"Lion", "1 fp32 state a parameter (bitsandbytes)", make_lion},
      {"Lion8bit", "1 byte a parameter and 1 scale for every 256 (bitsandbytes)", make_lion8bit},
      {"none", "nothing: forward and backward alone", make_no_update},
  };
  return kOptimizers;
}

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const Config& args) {
  std::vector<std::string> names;
  for (const OptimizerEntry& e : optimizer_registry()) {
    if (lower(e.name) == lower(name)) return e.make(args);
    names.emplace_back(e.name);
  }
  throw Error("[optimizer] '" + name + "' is not known", did_you_mean(name, names));
}

}  // namespace plimsoll
