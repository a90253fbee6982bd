// A job as it is really trained here. What is otherwise than in its own trainer and still the same training is a note; what is only
// simulated is refused, with what to leave out, so that nothing of a job is left out in silence.
#pragma once

#include <functional>

#include "job/job.h"

namespace plimsoll::measure {

using Note = std::function<void(const std::string&)>;

// Throws an Error that names the setting.
Job as_trained_here(Job job, const Note& note);

}  // namespace plimsoll::measure
