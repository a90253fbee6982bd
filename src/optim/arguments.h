// The keyword arguments of an optimizer's constructor: which there are, and which form of the step they choose.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "job/config.h"

namespace plimsoll {

enum class Form { foreach, loop, fused };

class Arguments {
 public:
  // `known` are the optimizer's own arguments beside lr, which all have, and maximize, which all of torch.optim's older ones have;
  // a key outside them throws.
  Arguments(const char* optimizer, const Config& args, std::initializer_list<const char*> known, bool maximizes = true);

  bool flag(const char* key, bool fallback = false) const { return args_.flag({key}, fallback); }
  double number(const char* key, double fallback) const { return args_.number({key}, fallback); }
  int64_t integer(const char* key, int64_t fallback) const { return args_.integer({key}, fallback); }
  int64_t size(const char* key, int64_t fallback) const { return args_.size({key}, fallback); }  // 1 to 2^31
  bool nonzero(const char* key) const { return number(key, 0.0) != 0.0; }
  std::pair<double, double> pair(const char* key, std::pair<double, double> fallback) const;
  // foreach unless told otherwise. Adafactor is the loop unless told otherwise.
  Form form(Form fallback = Form::foreach) const;
  const Config& config() const { return args_; }
  [[noreturn]] void refuse(const std::string& message, const std::string& hint) const;

 private:
  [[noreturn]] void refuse_key(const std::string& key, const std::vector<std::string>& known) const;

  const char* optimizer_;
  const Config& args_;
};

}  // namespace plimsoll
