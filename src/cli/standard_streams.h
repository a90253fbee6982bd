// Standard output as a thing that can fail: a full disk, a closed stream.
#pragma once

namespace plimsoll {

// A stream that is closed is opened so that writing to it fails: the next file would otherwise take its place.
void keep_standard_streams();
// Whether all that was printed has arrived; says on stderr when not.
bool output_was_written();

}  // namespace plimsoll
