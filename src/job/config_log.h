// Which keys of a configuration were asked for. Threads that run ranks or stages of one job share its log, so it may be written to from any
// of them.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace plimsoll {

// A value that was asked for, and whether it was given or is the class's default.
struct ConfigLookup {
  std::string key;
  std::string value;
  bool given = false;
};

class ConfigLog {
 public:
  // The first time that a key is asked for; `value` gives its text.
  template <class Value>
  void add(const char* key, bool given, Value value) {
    const std::lock_guard lock(mutex_);
    if (keys_.insert(key).second) lookups_.push_back({key, value(), given});
  }

  // A key that may be there, or another name of one.
  void ask(const char* key) {
    const std::lock_guard lock(mutex_);
    asked_.insert(key);
  }

  // All keys that were asked for, by any of their names.
  std::set<std::string> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

  // Each key once, in the order in which they were first asked for.
  std::vector<ConfigLookup> lookups() const {
    const std::lock_guard lock(mutex_);
    return lookups_;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> keys_, asked_;
  std::vector<ConfigLookup> lookups_;
};

}  // namespace plimsoll
