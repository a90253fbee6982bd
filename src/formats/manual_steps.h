// How to have a setting in a training program of one's own, where a file or command has no word for it: a sentence with the lines to write.
#pragma once

#include <string>

#include "job/job.h"

namespace plimsoll {

std::string manual_step(const std::string& setting, const Job& job);

}  // namespace plimsoll
