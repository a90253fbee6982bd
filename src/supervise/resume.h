// How a command goes on from its last checkpoint: the words that its trainer has for that.
#pragma once

#include <string>
#include <vector>

namespace plimsoll {

struct Resume {
  std::string flag;         // "--resume {checkpoint}", "--resume"; empty: not at all
  std::string checkpoints;  // a pattern of files or folders, of which the newest counts; empty: the command finds them itself
  std::string how;          // for people: "--resume_from_checkpoint of transformers"
};

// Of a trainer that is known, else none.
Resume resume_of_trainer(const std::vector<std::string>& command);
// Its words for this checkpoint; none where one is needed and there is none yet.
std::vector<std::string> resume_words(const Resume& resume, const std::string& checkpoint);

}  // namespace plimsoll
