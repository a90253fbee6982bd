// Finds any of many words in a text in one pass (Aho and Corasick), so that a log of any size is read once however many wordings are known.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace plimsoll {

class Needles {
 public:
  explicit Needles(const std::vector<std::string_view>& words);

  // Calls found(word, end): the index of the word and the offset behind it, in the order of their ends.
  template <class F>
  void search(std::string_view text, F found) const {
    uint32_t state = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      state = next_[state][static_cast<unsigned char>(text[i])];
      for (uint32_t s = ends_[state]; s != 0; s = ends_[fail_[s]]) found(static_cast<size_t>(word_[s]), i + 1);
    }
  }

 private:
  std::vector<std::array<uint16_t, 256>> next_;
  std::vector<uint16_t> fail_, ends_;  // ends_: the nearest state at which a word ends, itself or by failure; 0: none
  std::vector<int> word_;              // that ends at a state, or -1
};

}  // namespace plimsoll
