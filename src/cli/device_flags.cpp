#include "cli/device_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

namespace plimsoll {

namespace {

bool has_layout(const CLI::App& app) {
  constexpr const char* kLayouts[] = {"--ddp",      "--zero1",      "--fsdp",    "--fsdp1", "--zero", "--tensor-parallel",
                                      "--megatron", "--torchtitan", "--replicas"};
  return std::any_of(std::begin(kLayouts), std::end(kLayouts), [&](const char* name) {
    const CLI::Option* option = app.get_option_no_throw(name);
    return option && option->count() > 0;
  });
}

void tell(const DeviceFlags& flags, const CLI::App& app) {
  for (const std::string& note : flags.notes()) std::cerr << "note: " << note << "\n";
  const int64_t count = flags.count();
  if (count > 1 && !flags.counted && !has_layout(app))
    std::cerr << fmt::format(
        "note: {} devices: the answer is for one that holds everything; shared out: --fsdp world={}, or plimsoll plan --num-gpus {}\n",
        count, count, count);
}

}  // namespace

void DeviceFlags::add_to(CLI::App& app) {
  app.add_option("--gpu", names,
                 "devices to fit: names (4090, 8xh100-sxm, m3-max-64gb), sizes (24GB, 24GiB), or `this` for those of this machine")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->group("Devices");
  app.add_option("--gpus", group, "`all`: a table of every device of the catalogue")
      ->check(CLI::IsMember({"all"}))
      ->type_name("all")
      ->group("Devices");
  app.add_option("--in-use", in_use, "memory that other processes use on the device, e.g. 500MiB for a desktop")
      ->type_name("SIZE")
      ->group("Devices");
  app.final_callback([this, &app] { tell(*this, app); });
}

}  // namespace plimsoll
