// What an answer says about a captured program beside its figures: where it comes from, at which sizes it is asked, how sure that is, and
// what it rests on. Every job here is of one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "job/job.h"
#include "report/document.h"

namespace plimsoll {

// "captured from train.py, batch 8, seq 512, expandable_segments:True"
std::string captured_text(const Job& job);
// "by formula"; of what rests on assumptions "assumes 2 things".
std::string grade_text(const Job& job);
// How sure the answer is, in a sentence.
std::string captured_certainty(const Job& job);
// What was assumed, one line each; none: nothing was.
doc::Blocks assumption_blocks(const Job& job);
// What the program is: symbols, conditions, reads, counts.
doc::Blocks captured_blocks(const Job& job);
// Every word that "grade" can be.
std::vector<std::string> capture_grades();
nlohmann::ordered_json captured_json(const Job& job);

}  // namespace plimsoll
