#include "util/gunzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

#include "util/error.h"

namespace plimsoll {

bool looks_like_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

std::string gunzip(std::string_view bytes, const std::string& name, size_t most) {
  constexpr size_t kChunk = 1 << 18;
  z_stream stream{};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw Error("[gzip] no memory to unpack " + name, "");
  std::string out;
  int state = Z_OK;
  while (state == Z_OK) {
    if (stream.avail_in == 0) {
      const size_t n = std::min<size_t>(bytes.size(), std::numeric_limits<uInt>::max());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      stream.avail_in = static_cast<uInt>(n);
      bytes.remove_prefix(n);
    }
    const size_t done = out.size();
    if (done + kChunk > most + kChunk) break;
    out.resize(done + kChunk);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream.avail_out = kChunk;
    state = inflate(&stream, bytes.empty() ? Z_SYNC_FLUSH : Z_NO_FLUSH);
    out.resize(done + kChunk - stream.avail_out);
    if (state == Z_BUF_ERROR && stream.avail_in == 0 && bytes.empty()) break;  // cut off
    if (state == Z_STREAM_END && (stream.avail_in > 0 || !bytes.empty())) state = inflateReset(&stream);
  }
  inflateEnd(&stream);
  if (out.size() > most) throw Error(fmt::format("[gzip] {} unpacks to more than {} bytes", name, most), "unpack it yourself and cut it");
  if (state != Z_STREAM_END) throw Error(fmt::format("[gzip] {} is damaged or cut off", name), "gzip -t FILE says the same");
  return out;
}

}  // namespace plimsoll
