// What the memory of a device is counted by, in the words of its own framework and tools: the one table of both.
#pragma once

#include <string>

#include "estimate/estimate.h"

namespace plimsoll {

struct Counters {
  const char* vendor;  // as in the device catalogue
  const char *allocated, *reserved, *device;
  const char* card;    // "an NVIDIA card": whatever is of that vendor
  const char* caveat;  // what was not simulated for it; empty: nothing
};

// Of the device the estimate is about; without one, of NVIDIA's cards. JAX has counters of its own.
const Counters& counters_of(const Estimate& e);
const Counters& counters_of(const std::string& vendor, bool jax);

}  // namespace plimsoll
