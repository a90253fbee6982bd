// The type that a published checkpoint keeps its weights in, which from_pretrained of transformers 5 takes when nothing else is asked for.
#pragma once

#include <optional>

#include "job/job.h"

namespace plimsoll {

// fp32, bf16 or fp16: by `dtype` (before: `torch_dtype`) of its config.json, else by the preset. None: not known. The model is resolved.
std::optional<Precision> checkpoint_type(const Job& job);

// Where the reader of a trainer left the type of the weights to the checkpoint (formats/trainer.h, kCheckpointsType), it is settled here,
// and what was taken is a finding.
void settle_weights(Job& job);

}  // namespace plimsoll
