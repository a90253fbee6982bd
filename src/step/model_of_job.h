// The model that a job asks for, built on a tape, and the batches it is given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/registry.h"
#include "step/train.h"

namespace plimsoll {

// An Error names what is known when the family is not, and what the family takes.
const ModelEntry& entry_of(const Job& job);
std::unique_ptr<Model> build_model(Build& build, const Job& job);
Batch make_batch(Tape& tape, const Job& job, Model& model, int64_t samples, int64_t length);
ParameterRecord record_of(const Parameter& p, const Tape& tape);

// Paths of what the model runs as blocks, by a forward pass on a tape of its own.
std::vector<std::string> blocks_of(const Job& job);

}  // namespace plimsoll
