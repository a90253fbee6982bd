// Layers whose frozen weights stay in pinned memory of the host and pass through the device, as the AI Toolkit's MemoryManager does it
// (toolkit/memory_management): forward and backward each have a ring of buffers, through which one layer's weight after the other
// comes, unpacked. How full the rings are at the peak is not followed: they are taken at their fullest.
#pragma once

#include "job/job.h"
#include "nn/module.h"
#include "util/bytes.h"

namespace plimsoll {

struct OffloadedLayers {
  Bytes on_host;
  Tensors rings;  // alive as long as the run
};

// Reads layer_offloading from the job's configuration: a share of the denoiser's and of the text encoders' linear layers. Takes their
// weights off the device and makes the rings. Nothing when the job does not say it.
OffloadedLayers offload_layers(const Job& job, const Module& model, Tape& tape);

}  // namespace plimsoll
