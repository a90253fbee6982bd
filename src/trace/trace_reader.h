// Reads the lines of a trace file one after another (docs/trace-format.md), versions 1 and 2. Of version 2 every key must be known, and
// everything that a line names must have come before it.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/captured_trace.h"
#include "trace/trace_line.h"

namespace plimsoll {

// The sizes of a line {"checked": {"batch": 4}}: of symbols that `trace` has.
SymbolSizes checked_sizes(const TraceLine& l, const CapturedTrace& trace);

class TraceReader {
 public:
  explicit TraceReader(std::string file) : file_(std::move(file)) {}

  void feed(std::string_view text);  // throws an Error that names file and line
  CapturedTrace finish();

 private:
  // Lines of both versions.
  void start(const TraceLine& l);
  void scope(const TraceLine& l);
  void alloc(const TraceLine& l);
  void free(const TraceLine& l);
  // Of version 2 alone.
  void symbol(const TraceLine& l);
  void formula(const TraceLine& l);
  void condition(const TraceLine& l, const char* key);
  void count(const TraceLine& l);
  void read(const TraceLine& l);
  void note(const TraceLine& l, const char* key);
  void work(const TraceLine& l);
  bool feed_event(const TraceLine& l);
  bool feed_of_version_2(const TraceLine& l);

  std::vector<std::string> command_of(const TraceLine& l) const;
  CapturedAmount amount(const TraceLine& l, const char* key, int64_t most) const;
  Formula parse(const TraceLine& l, const char* key) const;
  void name(const TraceLine& l, const std::string& name, bool is_count);
  uint8_t category(const TraceLine& l) const;
  uint8_t phase(const TraceLine& l) const;
  StorageId living(const TraceLine& l, const char* key) const;
  void add(Event::Kind kind, uint8_t value, StorageId storage) { out_.program.events.push_back({kind, value, storage}); }
  bool strict() const { return out_.version >= 2; }
  void settle_sizes();
  void settle_conditions();
  void check_at_base() const;

  std::string file_;
  int64_t line_ = 0;
  bool started_ = false;
  int64_t steps_ = -1;  // that the header says; below 0: nothing
  std::vector<bool> alive_;
  struct Written {
    std::string text, where;
    bool pin = false;
    int64_t line = 0;
  };
  std::vector<Written> conditions_;                      // may name what comes after them
  std::unordered_map<int64_t, int32_t> formula_places_;  // number in the file -> index
  CapturedTrace out_;
};

}  // namespace plimsoll
