// A number among the operands of an element-wise op. On a device it is an argument of the kernel; by rule `numbers_are_tensors` it is a
// tensor of 8 bytes, and a cast of that to the type of the others. Both live as long as this does.
#pragma once

#include "tensor/tape.h"

namespace plimsoll {

class Number {
 public:
  Number(Tape& tape, DType dtype) {
    if (!tape.dialect.rules.numbers_are_tensors) return;
    number_ = tape.allocate(8);
    if (size_of(dtype) < 8) cast_ = tape.allocate(size_of(dtype));
  }

 private:
  Ref<Storage> number_, cast_;
};

}  // namespace plimsoll
