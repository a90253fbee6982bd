// What an optimizer is called, what it takes and what it keeps, before one is made. Each has one object of this kind in its own file;
// registry.cpp lists them.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <variant>
#include <vector>

namespace plimsoll {

class Arguments;
class Optimizer;

// How a step runs: on all parameters at once, on one after the other, or in a kernel that has no temporaries.
enum class Form { foreach, loop, fused };

// A keyword argument of the constructor with its default. Without one it is None, or its library decides.
struct Argument {
  using Value = std::variant<std::monostate, bool, double, const char*, std::vector<double>>;

  Argument(const char* name_) : name(name_) {}
  Argument(const char* name_, bool value) : name(name_), fallback(value) {}
  Argument(const char* name_, int value) : name(name_), fallback(static_cast<double>(value)) {}
  Argument(const char* name_, double value) : name(name_), fallback(value) {}
  Argument(const char* name_, const char* value) : name(name_), fallback(value) {}
  Argument(const char* name_, std::initializer_list<double> values) : name(name_), fallback(std::vector<double>(values)) {}

  const char* name;
  Value fallback;
};

// One of the Trainer's `optim` names, and the arguments with which it makes the optimizer.
struct TransformersName {
  const char* name;
  const char* args = "{}";
};

struct OptimizerEntry {
  const char* name;     // what a job calls it; "library.name" is understood, too
  const char* library;  // whose code it follows
  const char* keeps;    // for `plimsoll list optimizers`
  std::unique_ptr<Optimizer> (*make)(const Arguments&);
  std::vector<Form> forms{Form::loop};  // the default first
  std::vector<Argument> arguments{};    // in addition to lr
  std::vector<TransformersName> transformers{};
  const char* optim_args = "";  // keys of the Trainer's optim_args that memory depends on, beyond those that all optimizers share

  bool takes(const char* argument) const;
};

template <class T>
std::unique_ptr<Optimizer> make(const Arguments& args) {
  return std::make_unique<T>(args);
}

// In the order in which they are listed.
const std::vector<std::reference_wrapper<const OptimizerEntry>>& optimizer_registry();

}  // namespace plimsoll
