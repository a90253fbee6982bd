// How many bytes an array takes on a device. GPUs store rows one after the other. A TPU stores arrays in tiles of 8 x 128 elements
// (written T(8,128); for 2-byte types T(8,128)(2,1), which packs two rows into one), so the last two dimensions are padded.
#pragma once

#include "job/jax_settings.h"
#include "tensor/dims.h"
#include "tensor/dtype.h"

namespace plimsoll {

// Tiles of packed types: 8 rows as XLA's dumps show for arrays in HBM, or all 32 bits of 8 sublanes filled (16 rows of 2-byte, 32 of
// 1-byte types) as kernels want it. They differ for arrays with an odd number of rows alone.
enum class TileRows : uint8_t { eight, packed };

// The two minor dimensions are the last two. Throws when the size overflows.
int64_t device_bytes(const Dims& sizes, DType dtype, DeviceKind device, TileRows rows = TileRows::eight);

}  // namespace plimsoll
