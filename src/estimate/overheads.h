// What a process holds on its device outside the framework's allocator, row by row, each with a range and its source. Workspaces
// inside the allocator (cuBLAS, attention's backward) are not here: they are part of the trace (tensor/kernel_memory.h). What "OOM
// messages" say: memory in use by the process, less what PyTorch has allocated and what it holds unallocated (2.1 and later).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "estimate/byte_range.h"
#include "hardware/catalogue.h"
#include "job/platform.h"

namespace plimsoll {

// A line of data/overheads.csv.
struct OverheadRow {
  std::string name, vendor;
  std::string target;                // the beginning of the device's target; empty: any
  std::optional<double> largest_gb;  // only for devices up to this size
  std::string condition;             // lazy, eager: how kernels are loaded; convolutions, ranks: only with those
  ByteRange range;
  std::string source;
};
const std::vector<OverheadRow>& overhead_table();
// Throws an Error with the line for a row of another shape: fields, numbers, low <= typical <= high, a source.
std::vector<OverheadRow> parse_overheads(std::string_view csv, const std::string& file);

struct Overhead {
  std::string name;
  ByteRange range;
  std::string source;
};

struct DeviceFacts {
  std::optional<DeviceSpec> device;  // none: some NVIDIA card
  Version torch = Platform{}.torch;
  bool convolutions = false;  // the model uses cuDNN
  int64_t ranks = 1;          // processes that train together
};

// The rows of data/overheads.csv that apply.
std::vector<Overhead> overheads(const DeviceFacts& facts);

}  // namespace plimsoll
