#include "cli/device_flags.h"

namespace plimsoll {

void DeviceFlags::add_to(CLI::App& app) {
  app.add_option("--gpu", names, "devices to fit: names of the catalogue, sizes like 24GiB, or `this` for those of this machine")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->group("Devices");
  app.add_option("--gpus", group, "`all`: a table of every device of the catalogue")
      ->check(CLI::IsMember({"all"}))
      ->type_name("all")
      ->group("Devices");
  app.add_option("--in-use", in_use, "memory that other processes use on the device, e.g. 500MiB for a desktop")
      ->type_name("BYTES")
      ->group("Devices");
}

}  // namespace plimsoll
