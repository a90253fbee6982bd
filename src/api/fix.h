// The smallest change with which a run fits, in the words of its trainer: what `plimsoll fix` does between the question and the answer.
#pragma once

#include <string>
#include <vector>

#include "api/request.h"
#include "api/show.h"

namespace plimsoll {

struct FixRequest {
  JobRequest job;
  DeviceRequest devices;                 // none: that of this machine
  std::vector<std::string> keep, allow;  // knobs, as in a plan
  double leave_free = 0;                 // part of the device
  bool write = false;                    // into the user's file
};

constexpr const char* kFixExamples =
    "Examples:\n"
    "  plimsoll fix train.yaml --gpu rtx-4090           what to change in the file\n"
    "  plimsoll fix train.yaml --gpu rtx-4090 --write   the same, in place; train.yaml.orig is as it was\n"
    "  plimsoll fix --gpu rtx-4090 -- python train.py --per_device_train_batch_size 8\n"
    "  plimsoll fix gpt2-xl --batch 8 --gpu rtx-4060    flags to add\n"
    "The class that disturbs training least is tried first, in it the fewest changes; the global batch is kept. For the fastest run, ask\n"
    "plan.\n"
    "Exit codes: 0 it fits, as it is or with the changes; 3 nothing that the trainer can say makes it fit, 2 wrong usage, 5 input not\n"
    "understood, 6 no GPU here and none named, 1 a bug.";

std::vector<RequestKey> fix_request_keys();
FixRequest fix_request(const nlohmann::json& request);
// 3 when nothing that the trainer can say makes it fit, 4 when what is written is tight.
ExitCode answer(const FixRequest& request, const Show& show);

}  // namespace plimsoll
