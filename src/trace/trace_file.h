// A Trace as a text file: JSON lines, one event a line (docs/trace-format.md). Writing and reading gives the same trace. Version 2 holds a
// CapturedTrace, whose sizes may be formulas.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "trace/captured_trace.h"
#include "trace/trace.h"

namespace plimsoll {

inline constexpr int64_t kLargestStorage = (int64_t{1} << 60) - 1;  // bytes: PyTorch's own limit for one allocation

bool looks_like_trace(std::string_view text);  // by its beginning
// Whether it is one of version 2, whose sizes may be asked for.
bool looks_like_captured_trace(std::string_view text);
bool is_trace_file(const std::string& path);  // whatever its name ends in

void write_trace(const Trace& trace, std::ostream& out);
void write_trace(const Trace& trace, const std::string& path);
void write_trace(const CapturedTrace& trace, std::ostream& out);  // of version 2

// Throw Error naming the file and line. Of version 2: at the sizes at which it was captured.
Trace read_trace(const std::string& path);
Trace read_trace_text(std::string_view text, const std::string& name);

// Of either version; one of version 1 has no symbols.
CapturedTrace read_captured_trace_text(std::string_view text, const std::string& name);
// With the sizes of PATH.checks, where that file is: lines {"checked": {"batch": 4}}.
CapturedTrace read_captured_trace(const std::string& path);

}  // namespace plimsoll
