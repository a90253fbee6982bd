#include "trace/stream.h"

namespace plimsoll {

const char* to_string(Stream s) {
  switch (s) {
    case Stream::compute: return "default";
    case Stream::all_gather: return "all-gather";
    case Stream::reduce_scatter: return "reduce-scatter";
    case Stream::all_reduce: return "all-reduce";
    case Stream::pre_unshard: return "pre-unshard";
  }
  return "";
}

}  // namespace plimsoll
