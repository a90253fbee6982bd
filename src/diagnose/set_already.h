// Settings that a log, a command or an environment shows to be on already, so that nobody is told to turn them on.
#pragma once

#include <string_view>
#include <vector>

namespace plimsoll {

struct SetAlready {
  bool expandable_segments = false;  // of PyTorch's allocator
  bool checkpointing = false;        // of activations
  bool autocast = false;             // or 16-bit weights
  bool batch_of_one = false;
  bool four_bit = false;  // weights

  // Takes what a line says: "bf16=True", "--gradient_checkpointing", "'per_device_train_batch_size': 1".
  void read(std::string_view line);
};

// Words that such lines have.
const std::vector<std::string_view>& setting_words();

}  // namespace plimsoll
