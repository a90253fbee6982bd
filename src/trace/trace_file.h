// A Trace as a text file: JSON lines, one event a line (docs/trace-format.md). Writing and reading gives the same trace.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "trace/trace.h"

namespace plimsoll {

void write_trace(const Trace& trace, std::ostream& out);
void write_trace(const Trace& trace, const std::string& path);

// Throw Error naming the file and line.
Trace read_trace(const std::string& path);
Trace read_trace_text(std::string_view text, const std::string& name);

}  // namespace plimsoll
