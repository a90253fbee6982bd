#include "diagnose/needles.h"

#include <cassert>
#include <deque>

namespace plimsoll {

Needles::Needles(const std::vector<std::string_view>& words) {
  const auto add_state = [&] {
    next_.emplace_back().fill(0);
    fail_.push_back(0);
    ends_.push_back(0);
    word_.push_back(-1);
    assert(next_.size() < UINT16_MAX);
    return static_cast<uint16_t>(next_.size() - 1);
  };
  add_state();
  for (size_t w = 0; w < words.size(); ++w) {
    uint16_t state = 0;
    for (const char c : words[w]) {
      const auto byte = static_cast<unsigned char>(c);
      if (next_[state][byte] == 0) {
        const uint16_t made = add_state();
        next_[state][byte] = made;
      }
      state = next_[state][byte];
    }
    assert(state != 0 && word_[state] == -1);  // no word is empty or there twice
    word_[state] = static_cast<int>(w);
  }
  std::deque<uint16_t> open;
  for (const uint16_t s : next_[0])
    if (s != 0) open.push_back(s);
  while (!open.empty()) {
    const uint16_t state = open.front();
    open.pop_front();
    ends_[state] = word_[state] >= 0 ? state : ends_[fail_[state]];
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint16_t child = next_[state][byte], by_failure = next_[fail_[state]][byte];
      if (child == 0) {
        next_[state][byte] = by_failure;
      } else {
        fail_[child] = by_failure;
        open.push_back(child);
      }
    }
  }
}

}  // namespace plimsoll
