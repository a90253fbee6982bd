// Settings that fit their trainer but not each other, or not the device: what no reader of one format can see.
#pragma once

#include <string>

#include "job/job.h"

namespace plimsoll {

// What is known about the device; empty where nothing is.
struct GpuFacts {
  std::string name;
  std::string target;  // CUDA capability "7.5", or AMD's "gfx90a"
};

void lint(Job& job, const GpuFacts& gpu = {});

}  // namespace plimsoll
