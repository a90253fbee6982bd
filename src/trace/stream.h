// Streams, each of which has a pool of its own in the caching allocator: memory never goes from one pool to another.
#pragma once

#include <cstdint>

namespace plimsoll {

// The next three are fully_shard's: what is gathered, what a reduction gives, and what the sum over copies of the weights gives. The last
// is FullyShardedDataParallel's: shards that are cast, or come from the host, before they are gathered.
enum class Stream : uint8_t { compute, all_gather, reduce_scatter, all_reduce, pre_unshard };
inline constexpr int kStreams = 5;
const char* to_string(Stream s);

}  // namespace plimsoll
