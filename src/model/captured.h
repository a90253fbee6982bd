// The model of a job that is a captured program: read from its trace file, with the sizes, steps and versions it was captured with. What of
// the job's settings can differ from the capture is decided in program/captured_program.cpp.
#pragma once

#include "job/job.h"

namespace plimsoll {

// Of a job whose model is one. Throws an Error naming file and line.
void resolve_captured(Job& job);

}  // namespace plimsoll
