// Enumerations as words: the place of a word among the known ones, or an error that names the nearest.
#pragma once

#include <array>
#include <string>

#include "job/config.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

template <class E, size_t N>
E one_of(const std::array<const char*, N>& names, const std::string& text, const char* key) {
  for (size_t i = 0; i < N; ++i)
    if (text == names[i]) return static_cast<E>(i);
  throw Error(std::string("[job] ") + key + " '" + text + "' is not known", did_you_mean(text, {names.begin(), names.end()}));
}

// The word under `key`; the first name when it is not given.
template <class E, size_t N>
E one_of(const std::array<const char*, N>& names, const Config& c, const char* key) {
  return one_of<E>(names, c.text({key}, names[0]), key);
}

}  // namespace plimsoll
