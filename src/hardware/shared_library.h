// A library opened at run time, for drivers that may not be installed.
#pragma once

#include <string>
#include <vector>

namespace plimsoll {

class SharedLibrary {
 public:
  // Opens the first of `names` that can be; `error()` says why none could.
  explicit SharedLibrary(const std::vector<std::string>& names);
  ~SharedLibrary();
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& name() const { return name_; }
  const std::string& error() const { return error_; }

  // The function called `name`, or null in a library that lacks it: `auto f = lib.get<int(unsigned*)>("name")`.
  template <class Function>
  Function* get(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;
  void* handle_ = nullptr;
  std::string name_, error_;
};

}  // namespace plimsoll
