// Keys of a model's configuration that the user typed. One that nothing reads is said aloud: a slip must not give the answer to another
// question.
#pragma once

#include <string>
#include <vector>

#include "job/job.h"

namespace plimsoll {

// The job's model must be resolved. A key that no look-up of the model asks for is an Error when it is a slip of one that is, or when it
// names a size; else a finding. A job that cannot be executed is not judged here.
void check_typed_keys(Job& job, const std::vector<std::string>& typed, const std::string& given_by);

}  // namespace plimsoll
