// How a trainer learns, and on what: its own file, flags or presets say it. Memory does not depend on it, so that a Job does not hold it.
#pragma once

#include <string>
#include <vector>

namespace plimsoll::measure {

// Of AdamW. The rate is constant here: a warm-up of thousands of steps would leave nothing to see.
struct Recipe {
  double learning_rate = 1e-3, weight_decay = 0.01, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

// What `input` (a model, a file, a script, the words of a command) says, over what the trainer of this family does when nothing is said.
Recipe recipe_of(const std::string& family, const std::vector<std::string>& input);

// The folder that a command's own --data_dir names; empty: none.
std::string data_dir_of(const std::vector<std::string>& input);

}  // namespace plimsoll::measure
