// Programs that start another one in changed circumstances and are no part of the training: `nohup`, `env -u NAME`, `conda run -n x`,
// `numactl -N 0`, `timeout 2h`, `apptainer exec --nv image.sif`.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace plimsoll {

// How many words from `at` on are a wrapper and its own flags; 0: none stands there. What follows is the wrapped command, or another
// wrapper.
size_t wrapper_words(const std::vector<std::string>& words, size_t at);

}  // namespace plimsoll
