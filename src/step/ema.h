// The moving average of the weights in a run: its copies on the device, what an update takes there, and what it takes on the host.
#pragma once

#include "job/ema.h"
#include "tensor/node.h"
#include "util/bytes.h"

namespace plimsoll {

class MovingAverage {
 public:
  // Copies `parameters` (of the AI Toolkit's those that are trained, else all), and with AveragedModel its buffers.
  MovingAverage(const EmaSettings& settings, Tape& tape, const std::vector<Parameter*>& parameters, const Tensors& buffers);
  void update();

  Bytes on_host() const { return on_host_; }
  Bytes host_transfer() const { return host_transfer_; }  // beside it on the host while it is updated

 private:
  DType type_of(const Tensor& value) const;
  Tensor copy(const char* op, const Tensor& value) const;
  void subtract();
  void subtract_foreach();
  void lerp();
  void average();
  void subtract_in_fp32();

  EmaSettings settings_;
  Tape& tape_;
  const std::vector<Parameter*>& parameters_;
  Tensors shadow_;   // by parameter; empty between updates when it lies on the host
  Tensors buffers_;  // AveragedModel's copies
  std::vector<DType> by_type_;
  Bytes on_host_, host_transfer_;
};

}  // namespace plimsoll
