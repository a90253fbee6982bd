// Figures of a watched run as words: rows of the table of processes, sizes, steps. The screen and the page of text share them.
#pragma once

#include <string>
#include <vector>

#include "watch/sample.h"

namespace plimsoll {

std::string size_or_dash(const std::optional<Bytes>& b);
std::string time_of_day(double time);                                                  // "14:03:07"
std::string steps_text(const StepSample& s);                                           // "step 12/400  0.50 steps/s  12 min 56 s left"
double share_of(const std::optional<Bytes>& part, const std::optional<Bytes>& whole);  // 0 where one is not known

// The processes in the order of the table.
std::vector<const ProcessSample*> ordered_processes(const Sample& s, bool by_size);
// The narrow table leaves out what is nothing most of the time.
std::string process_header(bool wide);
std::string process_row(const ProcessSample& p, bool wide);

}  // namespace plimsoll
