// What people type for a device beside its name: how many ("8xh100", "4090x2"), a card by its size ("24", "24GB"), a place that lends
// one ("colab"). Finding the name itself is in lookup.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plimsoll {

struct DeviceWords {
  int64_t count = 1;
  std::string name;               // what is left to look up: "h100"
  std::optional<double> card_gb;  // a card that is sold with this much memory, and nothing else is said of it
  std::string note;               // what was taken for it, where that is not what was typed
};

// Throws an Error for a count of 0, a place that lends several kinds of devices, and the words of a program ("cuda:0").
DeviceWords read_device_words(std::string_view text);

}  // namespace plimsoll
