#include "util/png.h"

#include <zlib.h>

#include "util/error.h"

namespace plimsoll {

namespace {

void put_number(std::string& out, size_t n) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(n >> shift & 0xff);
}

// Length, name, data, and the checksum of the last two.
void put_chunk(std::string& out, const std::string& name, const std::string& data) {
  put_number(out, data.size());
  const std::string checked = name + data;
  out += checked;
  put_number(out, crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size())));
}

// Each row after a byte that names its filter: 0, none.
std::string rows_of(const Picture& p) {
  std::string out;
  for (int y = 0; y < p.height; ++y) {
    out += '\0';
    for (int x = 0; x < p.width; ++x) {
      const Pixel& pixel = p.pixels[static_cast<size_t>(y) * static_cast<size_t>(p.width) + static_cast<size_t>(x)];
      for (const uint8_t channel : {pixel.red, pixel.green, pixel.blue}) out += static_cast<char>(channel);
    }
  }
  return out;
}

std::string deflated(const std::string& data) {
  uLongf size = compressBound(data.size());
  std::string out(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(data.data()), data.size(),
                Z_BEST_COMPRESSION) != Z_OK)
    throw Error("[png] no memory to pack the picture", "write it as .svg");
  out.resize(size);
  return out;
}

}  // namespace

std::string png(const Picture& p) {
  std::string head, out = "\x89PNG\r\n\x1a\n";
  put_number(head, static_cast<size_t>(p.width));
  put_number(head, static_cast<size_t>(p.height));
  head += std::string("\x08\x02\0\0\0", 5);  // eight bits, true colour; the only packing and filters there are; not interlaced
  put_chunk(out, "IHDR", head);
  put_chunk(out, "IDAT", deflated(rows_of(p)));
  put_chunk(out, "IEND", "");
  return out;
}

std::string data_address(const std::string& png) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out = "data:image/png;base64,";
  for (size_t i = 0; i < png.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (i + k < png.size() ? static_cast<uint8_t>(png[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k) out += i + k <= png.size() ? kDigits[three >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace plimsoll
