// A number among the operands of an element-wise op. On a device it is an argument of the kernel; libtorch's CPU makes it a tensor of 8
// bytes and casts that to the type of the others. Both live as long as this does.
#pragma once

#include "tensor/tape.h"

namespace plimsoll {

class Number {
 public:
  Number(Tape& tape, DType dtype) {
    if (!tape.dialect.cpu) return;
    number_ = tape.allocate(8);
    if (size_of(dtype) < 8) cast_ = tape.allocate(size_of(dtype));
  }

 private:
  Ref<Storage> number_, cast_;
};

}  // namespace plimsoll
