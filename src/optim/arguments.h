// The keyword arguments that a job gives to an optimizer's constructor: checked against those it takes, with its defaults for the rest.
#pragma once

#include <string>
#include <utility>

#include "job/config.h"
#include "optim/entry.h"

namespace plimsoll {

class Arguments {
 public:
  // An argument that the optimizer does not have throws.
  Arguments(const OptimizerEntry& optimizer, const Config& args);

  // What was given, else the default of the entry; false, 0 or "" where it has none.
  bool flag(const char* key) const;
  double number(const char* key) const;
  int64_t integer(const char* key) const;
  int64_t size(const char* key) const;  // 1 to 2^31
  std::string text(const char* key) const;
  std::pair<double, double> pair(const char* key) const;
  bool nonzero(const char* key) const { return number(key) != 0.0; }
  bool given(const char* key) const { return args_.find({key}) != nullptr; }
  // The entry's first form unless told otherwise.
  Form form() const;
  const Config& config() const { return args_; }
  [[noreturn]] void refuse(const std::string& message, const std::string& hint) const;

 private:
  const Argument::Value& fallback(const char* key) const;
  [[noreturn]] void refuse_key(const std::string& key) const;

  const OptimizerEntry& optimizer_;
  const Config& args_;
};

}  // namespace plimsoll
