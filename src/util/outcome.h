// An answer or the refusal of it, where a refusal is an answer as well: a value that a setting does not take, a text that is no
// configuration. Only an Error is a refusal; whatever else is thrown is a bug and goes on to whoever reports bugs.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "util/error.h"

namespace plimsoll {

template <class T>
struct Outcome {  // one of the two
  std::optional<T> value;
  std::optional<Error> refused;

  explicit operator bool() const { return value.has_value(); }
  const T& operator*() const { return *value; }
  T& operator*() { return *value; }
  const T* operator->() const { return &*value; }
  T* operator->() { return &*value; }
};

template <class F>
Outcome<std::invoke_result_t<F&>> outcome_of(F&& question) {
  try {
    return {question(), std::nullopt};
  } catch (const Error& e) {
    return {std::nullopt, e};
  }
}

}  // namespace plimsoll
