// Reading text as users have it, for tests of formats.
#pragma once

#include <gtest/gtest.h>

#include "formats/format.h"
#include "formats/input.h"

namespace plimsoll {

inline Job read_text(const std::string& text, const std::string& name) {
  const Document document = parse_document(text, name);
  const Format* format = format_of(document);
  if (!format) throw Error("[test] " + name + " is none of the configurations that can be read");
  Job job;
  Reader reader(job, document);
  format->read(reader);
  return job;
}

inline Job read_command(const std::string& command) {
  Job job;
  read_input(job, {command});
  return job;
}

// Whether there is such a finding, by words of its setting, what happens or why.
inline bool finds(const Job& job, Effect effect, const std::string& words) {
  for (const Finding& f : job.findings)
    if (f.effect == effect && (f.setting + "; " + f.what + "; " + f.why).find(words) != std::string::npos) return true;
  return false;
}

inline std::string findings_text(const Job& job) {
  std::string out;
  for (const Finding& f : job.findings) out += std::string(to_string(f.effect)) + " | " + f.setting + " | " + f.what + " | " + f.why + "\n";
  return out;
}

}  // namespace plimsoll
