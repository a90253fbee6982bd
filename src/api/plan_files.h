// A plan as something to use: flags for a command, a difference of the user's file, that file itself, or a fresh one.
#pragma once

#include "api/plan.h"
#include "api/trainer_words.h"
#include "plan/layouts.h"
#include "plan/plan.h"

namespace plimsoll {

bool wants_file(const SearchRequest& request);
// Settings of the plan that the user's file or command has no word for; empty when everything can be said.
std::vector<std::string> unwritten_settings(const SearchRequest& request, const TrainerWords& words, const Plan& plan);
// The plan becomes what the trainer makes of its file: one key may say more than was asked for (use_liger_kernel: the loss, and layers as
// well).
void take_consequences(Plan& plan, const TrainerWords& words);
// How the plan is started: the user's own training command with its flags, or where these do not say all of it, `plimsoll estimate`.
std::string command_for(const SearchRequest& request, const TrainerWords& words, const PlannedRun& run);
// Throws an Error when there is no plan, several devices, nothing to write into, or a file of that name already.
ExitCode answer_with_file(const SearchRequest& request, const TrainerWords& words, const std::vector<Plan>& plans, const Show& show);
// The fastest layout that such a file can say. Throws an Error when none fits, or none of them can be said.
ExitCode answer_with_launch_file(const SearchRequest& request, const LayoutPlan& plan, const Show& show);

}  // namespace plimsoll
