// One builder per optimizer; registry.cpp lists them.
#pragma once

#include "optim/optimizer.h"

namespace plimsoll {

std::unique_ptr<Optimizer> make_adadelta(const Config& args);
std::unique_ptr<Optimizer> make_adafactor(const Config& args);
std::unique_ptr<Optimizer> make_adagrad(const Config& args);
std::unique_ptr<Optimizer> make_adalomo(const Config& args);
std::unique_ptr<Optimizer> make_adam(const Config& args);
std::unique_ptr<Optimizer> make_adam8bit(const Config& args);
std::unique_ptr<Optimizer> make_adamax(const Config& args);
std::unique_ptr<Optimizer> make_adamw(const Config& args);
std::unique_ptr<Optimizer> make_adamw32bit(const Config& args);
std::unique_ptr<Optimizer> make_adamw8bit(const Config& args);
std::unique_ptr<Optimizer> make_adamw_schedule_free(const Config& args);
std::unique_ptr<Optimizer> make_ademamix(const Config& args);
std::unique_ptr<Optimizer> make_ademamix8bit(const Config& args);
std::unique_ptr<Optimizer> make_any_precision_adamw(const Config& args);
std::unique_ptr<Optimizer> make_apollo_adamw(const Config& args);
std::unique_ptr<Optimizer> make_asgd(const Config& args);
std::unique_ptr<Optimizer> make_galore_adamw(const Config& args);
std::unique_ptr<Optimizer> make_galore_adamw8bit(const Config& args);
std::unique_ptr<Optimizer> make_galore_adafactor(const Config& args);
std::unique_ptr<Optimizer> make_grok_adamw(const Config& args);
std::unique_ptr<Optimizer> make_lion(const Config& args);
std::unique_ptr<Optimizer> make_lion8bit(const Config& args);
std::unique_ptr<Optimizer> make_lion_pytorch(const Config& args);
std::unique_ptr<Optimizer> make_lomo(const Config& args);
std::unique_ptr<Optimizer> make_muon(const Config& args);
std::unique_ptr<Optimizer> make_muon_and_adamw(const Config& args);
std::unique_ptr<Optimizer> make_nadam(const Config& args);
std::unique_ptr<Optimizer> make_no_update(const Config& args);
std::unique_ptr<Optimizer> make_paged_adamw(const Config& args);
std::unique_ptr<Optimizer> make_paged_adamw32bit(const Config& args);
std::unique_ptr<Optimizer> make_paged_adamw8bit(const Config& args);
std::unique_ptr<Optimizer> make_paged_ademamix(const Config& args);
std::unique_ptr<Optimizer> make_paged_ademamix8bit(const Config& args);
std::unique_ptr<Optimizer> make_paged_lion(const Config& args);
std::unique_ptr<Optimizer> make_paged_lion8bit(const Config& args);
std::unique_ptr<Optimizer> make_prodigy(const Config& args);
std::unique_ptr<Optimizer> make_radam(const Config& args);
std::unique_ptr<Optimizer> make_radam_schedule_free(const Config& args);
std::unique_ptr<Optimizer> make_rmsprop(const Config& args);
std::unique_ptr<Optimizer> make_rmsprop32bit(const Config& args);
std::unique_ptr<Optimizer> make_rmsprop8bit(const Config& args);
std::unique_ptr<Optimizer> make_rprop(const Config& args);
std::unique_ptr<Optimizer> make_scalable_shampoo(const Config& args);
std::unique_ptr<Optimizer> make_sgd(const Config& args);
std::unique_ptr<Optimizer> make_sgd_schedule_free(const Config& args);
std::unique_ptr<Optimizer> make_soap(const Config& args);
std::unique_ptr<Optimizer> make_sophia(const Config& args);
std::unique_ptr<Optimizer> make_stable_adamw(const Config& args);
std::unique_ptr<Optimizer> make_torchao_adam4bit(const Config& args);
std::unique_ptr<Optimizer> make_torchao_adam8bit(const Config& args);
std::unique_ptr<Optimizer> make_torchao_adamfp8(const Config& args);
std::unique_ptr<Optimizer> make_torchao_adamw(const Config& args);
std::unique_ptr<Optimizer> make_torchao_adamw4bit(const Config& args);
std::unique_ptr<Optimizer> make_torchao_adamw8bit(const Config& args);
std::unique_ptr<Optimizer> make_torchao_adamwfp8(const Config& args);
std::unique_ptr<Optimizer> make_transformers_adafactor(const Config& args);

}  // namespace plimsoll
