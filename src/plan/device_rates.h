// What a device of the catalogue reaches in practice: peaks times the fraction that kernels of each kind are known to get, the links to
// the host and to other devices. Each constant names its source. Missing figures are replaced only by the rules written here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hardware/catalogue.h"
#include "job/jax_settings.h"
#include "tensor/work.h"

namespace plimsoll {

class DeviceRates {
 public:
  explicit DeviceRates(const DeviceSpec& device, Framework framework = Framework::pytorch);

  // Operations a second of a kernel of this kind; none: no figure stands for it.
  std::optional<double> flops(Unit unit, DType dtype) const;
  std::optional<double> peak(Unit unit, DType dtype) const;  // as the vendor states it
  std::optional<double> memory() const { return memory_; }   // bytes a second
  // Bytes a second to and from the host, in one direction.
  double host_link() const { return host_link_; }
  // Bytes a second that a ring of `world` devices moves through each of them.
  double ring() const { return ring_; }
  // What was put in place of a figure that the catalogue does not have, in the order it was needed.
  const std::vector<std::string>& assumptions() const { return assumptions_; }

 private:
  void assume(const std::string& text) const;

  DeviceSpec device_;
  Framework framework_;
  double matmul_, attention_;  // fractions of the peak
  std::optional<double> memory_;
  double host_link_ = 0, ring_ = 0;
  mutable std::vector<std::string> assumptions_;
};

}  // namespace plimsoll
