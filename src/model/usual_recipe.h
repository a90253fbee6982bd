// What people run where a model alone is named and adapters are trained on it: the rest of the recipe, as PEFT's users have it. Files and
// commands of trainers say their own recipe, job files too; nothing that was given is replaced.
#pragma once

#include "job/job.h"
#include "job/patch.h"

namespace plimsoll {

// Those of precision, autocast, checkpointing and seq that nobody gave, for a job whose model is resolved and that has an adapter. Empty
// where PEFT does not train the model.
Patch usual_recipe(const Job& job);

// Sets them, each with a finding of what was assumed.
void take_usual_recipe(Job& job);

// The length alone, where a trainer has none of its own.
void take_usual_length(Job& job);

}  // namespace plimsoll
