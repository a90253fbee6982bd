// What a torch.utils.data.DataLoader holds in host memory at most: how many batches it is ahead, where they are, and how large
// they are there. The rules are dataloader.py's and were measured with tools/measure_loader.py; docs/host-memory.md has the figures.
#pragma once

#include <vector>

#include "estimate/byte_range.h"
#include "job/job.h"

namespace plimsoll {

// The tensors of one batch as the loader returns it, in bytes. Tokens: input_ids, attention_mask and labels in int64, as
// transformers' collators make them. Images: float32 pixels, as ToTensor and image processors make them, and an int64 label. A model that
// makes its inputs itself: those.
std::vector<Bytes> batch_tensors(const Job& job);

struct LoaderMemory {
  int64_t ahead = 0;   // batches asked for and not yet returned: prefetch_factor x workers, or what is left of a short epoch
  Bytes batch;         // one batch, as it is
  Bytes shm_batch;     // in /dev/shm: each tensor takes whole pages
  Bytes pinned_batch;  // in page-locked memory: each tensor takes a power of two
  // Of one training process:
  ByteRange building;  // private to the workers: the items of batches that are being put together
  ByteRange shm;       // batches on their way, and the queues' semaphores
  ByteRange pinned;    // never given back while the process lives
  ByteRange held;      // without workers: what the process itself has while it makes the next batch
};

LoaderMemory loader_memory(const Job& job);

}  // namespace plimsoll
