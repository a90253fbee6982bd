#include "cli/host_flags.h"
#include "cli/number_between.h"

namespace plimsoll {

void HostFlags::add_to(CLI::App& app) {
  constexpr const char* kGroup = "Host and unified memory";
  app.add_flag("--host", host, "also the host's RAM: process, workers, batches on their way, caches, checkpoints")->group(kGroup);
  app.add_option("--host-memory", memory, "RAM to fit into: a size, or 'this' for this machine (implies --host)")
      ->type_name("SIZE|this")
      ->group(kGroup);
  app.add_option("--shm", shm, "size of /dev/shm (default: half of the RAM; Docker gives 64MiB)")->type_name("SIZE")->group(kGroup);
  app.add_option("--os-reserve", system, "RAM that the system and others use (default 4 GiB, 1.5 to 8.6)")
      ->type_name("SIZE")
      ->group(kGroup);
  app.add_option("--unified", unified, "one pool for device and host, step by step: a size, a device such as gb10, or 'this'")
      ->type_name("SIZE|DEVICE|this")
      ->group(kGroup);
  app.add_option("--margin", margin, "part of the pool that --unified leaves free (default 0.1)")
      ->check(number_between(0, 0.9))
      ->type_name("PART")
      ->group(kGroup);
  app.add_flag("--rule-of-thumb", rule, "with --unified: a widespread rule of thumb beside the simulation")->group(kGroup);
}

}  // namespace plimsoll
