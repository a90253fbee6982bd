// The parts of job_settings(), group by group: settings.h. Those of ema, jax and the host are beside their structs.
#pragma once

#include <vector>

#include "job/settings.h"

namespace plimsoll {

std::vector<Setting> model_settings();
std::vector<Setting> batch_settings();
std::vector<Setting> precision_settings();
std::vector<Setting> adapter_settings();
std::vector<Setting> activation_settings();
std::vector<Setting> loss_settings();
std::vector<Setting> optimizer_settings();
std::vector<Setting> loop_settings();
std::vector<Setting> parallel_settings();

nlohmann::ordered_json to_json(const OptimizerOffload& o);  // checkpointing.cpp

}  // namespace plimsoll
