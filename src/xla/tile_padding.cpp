#include "xla/tile_padding.h"
#include "util/checked.h"

namespace plimsoll {

namespace {

constexpr int64_t kLanes = 128;
constexpr int64_t kSublanes = 8;

// Fewer rows than a tile has are stored in a smaller tile: T(2,128), T(4,128). Of packed types none is smaller than T(4,128).
int64_t tile_rows(int64_t rows, DType dtype, TileRows kind) {
  const int64_t packing = size_of(dtype) >= 4 ? 1 : 4 / size_of(dtype);
  int64_t tile = packing == 1 ? 1 : 4;
  while (tile < kSublanes && tile < rows) tile *= 2;
  return kind == TileRows::packed && tile == kSublanes ? checked_mul(tile, packing) : tile;
}

// f32[]{:T(256)}, pred[67108864]{0:T(1024)}: arrays of one dimension are padded to a power of two from one row of lanes to a tile.
int64_t padded_vector(int64_t n) {
  int64_t tile = kLanes;
  while (tile < kLanes * kSublanes && tile < n) tile *= 2;
  return round_up(n, tile);
}

}  // namespace

int64_t device_bytes(const Dims& sizes, DType dtype, DeviceKind device, TileRows kind) {
  const int64_t elements = numel(sizes);
  if (device == DeviceKind::gpu || elements == 0) return checked_mul(elements, size_of(dtype));
  if (sizes.size() < 2) return checked_mul(padded_vector(elements), size_of(dtype));
  Dims padded = sizes;
  padded[-1] = round_up(sizes[-1], kLanes);
  padded[-2] = round_up(sizes[-2], tile_rows(sizes[-2], dtype, kind));
  return checked_mul(numel(padded), size_of(dtype));
}

}  // namespace plimsoll
