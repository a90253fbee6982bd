// How far a run was, from the line that last said so: tqdm's bars, "step 12", "Epoch: [0][511/1736]", the Trainer's {'loss': ...}.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct Progress {
  std::optional<int64_t> done, total;  // steps, of the epoch or the run
  bool training = true;                // false: loading of weights, preparation of data
  std::string text;                    // the bar's title or the words, for people
};

// Words that such lines have.
const std::vector<std::string_view>& progress_words();
std::optional<Progress> read_progress(std::string_view line);

}  // namespace plimsoll
