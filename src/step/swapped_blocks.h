// Blocks whose frozen weights are on the host and take turns on the device, as kohya's sd-scripts and musubi-tuner do it
// (blocks_to_swap): a block's weights are exchanged with those of another just before it runs, so that the device never has those of more
// than the other blocks. The weights are the same tensors all the time; only where they lie changes.
#pragma once

#include "job/job.h"
#include "tensor/tape.h"
#include "util/bytes.h"

namespace plimsoll {

// The model is loaded on the host, and these do not reach the device before their turn; returns their bytes.
Bytes take_off_device(Tape& tape, const std::vector<Parameter*>& weights);

// Takes the frozen weights of `blocks` blocks off the device, of the model's longest list or of both lists of Flux as sd-scripts shares
// them out; returns their bytes. Throws when the model has not so many blocks, or when nothing in them is frozen.
Bytes swap_blocks(Tape& tape, const std::vector<Parameter*>& parameters, int64_t blocks);

}  // namespace plimsoll
