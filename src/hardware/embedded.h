// Files of data/ that are part of the binary; embedded.cpp.in becomes their source at build time.
#pragma once

#include <string_view>

namespace plimsoll {

std::string_view embedded_gpus_csv();
std::string_view embedded_gpu_sources_csv();
std::string_view embedded_overheads_csv();

}  // namespace plimsoll
