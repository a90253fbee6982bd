// Checkpoints that just fit: which blocks to run again in backward so that the peak meets the limit at the least extra time. Blocks are
// taken by what they keep for each second of their forward; how many are needed is found by executing the run.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/step_time.h"

namespace plimsoll {

class Placement {
 public:
  // Of blocks as the model runs them; empty when it is no sequence of blocks.
  explicit Placement(const std::vector<BlockCost>& blocks, bool reentrant = false);

  size_t blocks() const { return order_.size(); }
  // The setting `checkpointing` for the first `count` blocks of the order. `selective`: the products that cost time are kept.
  nlohmann::json level(size_t count, bool selective) const;

 private:
  std::vector<std::string> order_;  // names of modules, the best first
  bool reentrant_;
};

// Names with numbers at their end as ranges: layers.0, layers.1, layers.2 are "layers.0-2".
std::vector<std::string> as_ranges(std::vector<std::string> modules);

}  // namespace plimsoll
