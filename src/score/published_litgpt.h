// Published rows of litgpt: their sizes in litgpt's words, and what its scripts do that a row does not say.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "job/job.h"

namespace plimsoll {

bool is_litgpt_row(const nlohmann::json& row);
// Fills litgpt's own keys; what is not known, else empty.
std::string litgpt_config(const nlohmann::json& row, nlohmann::json& config);
// litgpt's names of what gets LoRA: "mlp.*" stands for the linear layers of its kind of feed-forward.
nlohmann::json litgpt_targets(const nlohmann::json& row);
// After the rest was read: types, versions and the optimizer of litgpt's fine-tuning script.
void finish_litgpt_job(const nlohmann::json& row, Job& job);

}  // namespace plimsoll
