// What a captured program can be asked at the sizes of a job: whether it holds there, how sure the answer is, and what it rests on. The
// run itself is program/captured_program.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "allocator/cuda_timeline.h"
#include "job/job.h"
#include "trace/captured_trace.h"

namespace plimsoll {

enum class CaptureGrade : uint8_t {
  exact_here,  // at the sizes of the capture
  by_formula,  // at others, where every guard and pin holds
  checked,     // the same, and a fresh capture there was equal
  assumes,     // something of it was not known: values that were read, counts that follow from data
};
const char* to_string(CaptureGrade g);

// "sum" of "aten::sum" and of "aten.sum.dim_IntList".
std::string simulated_op_name(const std::string& captured);

// The sizes that the job gives its symbols, each named.
SymbolSizes sizes_of(const Job& job);
// Every job below is of a captured program that has no problems.
CaptureGrade grade_of(const Job& job);
// "train.py:47: a float32 was taken to be 1.0", one for each line that something unknown was read or counted in.
std::vector<std::string> assumptions_of(const Job& job);

// The trace of that run, with what kernels take for themselves on the job's device.
Trace captured_run(const Job& job, CountShare share);

// Where sizes follow from counts: the run with none of what they count, and with all of it.
struct CountRange {
  CudaTimeline none, all;
};
std::optional<CountRange> count_range(const Job& job);

// "plimsoll capture --size batch=8 --size seq=512 -o train.trace -- python train.py"
std::string capture_command(const Job& job);

}  // namespace plimsoll
