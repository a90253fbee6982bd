// What a job says about the host side of a run: the DataLoader, the dataset and its cache, how the model is loaded and saved,
// how many processes share the machine. Names and defaults are PyTorch's where PyTorch has them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "job/problem.h"
#include "util/bytes.h"

namespace plimsoll {

struct Setting;

// How worker processes come to be. Python's default on Linux is fork up to 3.13 and forkserver from 3.14 on.
enum class StartMethod : uint8_t { fork, spawn, forkserver };

// Where prepared items (latents, text embeddings, decoded images) are kept.
enum class CacheKind : uint8_t {
  none,
  ram,     // made before the workers start, in the process that trains
  worker,  // filled by each worker with the items it is asked for
  disk,
};

// How the weights come to the device.
enum class LoadPlan : uint8_t {
  cpu,         // the model is built or loaded on the CPU, then .to(device)
  state_dict,  // built on the CPU, and a state dict loaded beside it
  resume,      // torch.load of a whole checkpoint (weights, optimizer, EMA) on the CPU
  mmap,        // mapped from the file, tensor by tensor: from_pretrained, torch.load(mmap=True)
};

// How a checkpoint leaves the device.
enum class SavePlan : uint8_t {
  stream,  // torch.save of tensors on the device
  cpu,     // a full copy of the state on the CPU first: FSDP's full state dict, asynchronous checkpoints
};

struct HostSettings {
  int64_t workers = 0;
  std::optional<int64_t> prefetch_factor;  // 2 with workers, none without
  bool persistent_workers = false;
  bool pin_memory = false;
  StartMethod start_method = StartMethod::fork;
  std::optional<Bytes> item_bytes;  // one item as the loader returns it; else from the model's inputs
  int64_t dataset_size = 0;         // items; 0: not said
  Bytes dataset_bytes;              // what the dataset object itself holds
  CacheKind cache = CacheKind::none;
  std::optional<Bytes> cache_item_bytes;  // else as large as an item
  LoadPlan load = LoadPlan::cpu;
  SavePlan save = SavePlan::stream;
  int64_t ranks_per_host = 1;

  int64_t prefetch() const { return workers == 0 ? 0 : prefetch_factor.value_or(2); }
};

const char* to_string(StartMethod m);
const char* to_string(CacheKind c);
const char* to_string(LoadPlan l);
const char* to_string(SavePlan s);

// The entries of job_settings() for them.
std::vector<Setting> host_setting_entries();

// What PyTorch itself refuses (a prefetch factor without workers, ...) and what cannot be answered (a cache of how many items?). Separate
// from reading, because settings come in any order.
void check(const HostSettings& host, Problems& out);

}  // namespace plimsoll
