// The answer in one line: whether a run fits a device, and by how much; without a device, what it needs.
#pragma once

#include <string>

#include "estimate/estimate.h"
#include "estimate/fit.h"
#include "report/document.h"

namespace plimsoll {

// "does not fit RTX 4090: needs 51.4 GiB of 23.6 (48.8 to 56.1)".
std::string headline_text(const Fit& fit);
// "needs 34.1 GiB on an NVIDIA card (32.9 to 36.0)".
std::string headline_text(const Estimate& e);
// The same with a mark before it, in the verdict's colour.
doc::Text headline(const Fit& fit);
doc::Text headline(const Estimate& e);
// ✓, !, ✗ or ?.
doc::Text verdict_mark(Verdict verdict);

// As people say it: "RTX 4090" of "GeForce RTX 4090", "A100 80 GB" of "a100-80gb".
std::string device_name(const std::string& name);
// One decimal from 10 GiB on, two below.
std::string gib_text(Bytes bytes);

}  // namespace plimsoll
