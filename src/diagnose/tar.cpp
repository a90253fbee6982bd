#include "diagnose/tar.h"

#include <fmt/format.h>

#include <cassert>
#include <numeric>

namespace plimsoll {

namespace {

constexpr size_t kBlock = 512;

// POSIX.1-1988: fields of octal digits, and a checksum over the header with spaces in the checksum's place.
std::string header(const std::string& name, size_t size) {
  assert(name.size() <= 100 && size < (size_t{1} << 33));
  std::string h(kBlock, '\0');
  const auto put = [&](size_t at, const std::string& text) { h.replace(at, text.size(), text); };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", size));
  put(136, fmt::format("{:011o}", 0));  // no time: the same content, the same archive
  put(148, "        ");
  h[156] = '0';
  put(257, std::string("ustar\0", 6) + "00");
  const unsigned sum = std::accumulate(h.begin(), h.end(), 0u, [](unsigned n, char c) { return n + static_cast<unsigned char>(c); });
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return h;
}

}  // namespace

std::string tar_archive(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out;
  for (const auto& [name, content] : files) {
    out += header(name, content.size());
    out += content;
    out.append((kBlock - content.size() % kBlock) % kBlock, '\0');
  }
  out.append(2 * kBlock, '\0');
  return out;
}

}  // namespace plimsoll
