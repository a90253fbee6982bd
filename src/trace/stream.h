// Streams, each of which has a pool of its own in the caching allocator: memory never goes from one pool to another.
#pragma once

#include <cstdint>

namespace plimsoll {

// The last three are fully_shard's: what is gathered, what a reduction gives, and what the sum over copies of the weights gives.
enum class Stream : uint8_t { compute, all_gather, reduce_scatter, all_reduce };
inline constexpr int kStreams = 4;
const char* to_string(Stream s);

}  // namespace plimsoll
