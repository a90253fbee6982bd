// A run between two steps, as a file that a run can go on from: weights, optimizer state, average, and the numbers that say where it was.
// The file is safetensors. It is written under another name first, so that the one before it is there until the new one is whole.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "measure/layers.h"

namespace plimsoll::measure {

using Notes = std::map<std::string, std::string>;

// Throws an Error when no file can be written there: better before the first step than after the last one.
void check_writable(const std::string& path, const char* flag = "checkpoint");
// Throws an Error when the disk is full or the folder is not writable; what was there before is untouched then.
void save_state(const std::string& path, const Notes& notes, const std::vector<NamedParameter>& tensors);
// Fills the tensors, which have their sizes already. Throws an Error for a file that is not of this model.
Notes load_state(const std::string& path, const std::vector<NamedParameter>& tensors);
Notes read_notes(const std::string& path);

}  // namespace plimsoll::measure
