// How Megatron-LM's pretrain_gpt.py is told its layout (megatron/training/arguments.py).
#pragma once

#include <string>
#include <vector>

#include "job/job.h"

namespace plimsoll {

// Words that belong together are one text: {"--bf16 --micro-batch-size 1 --global-batch-size 512", ...}. The job has `megatron`.
std::vector<std::string> megatron_layout_arguments(const Job& job);

}  // namespace plimsoll
