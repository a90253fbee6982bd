// Answers Prometheus: GET /metrics gives the last look. Only this machine is answered unless the user says otherwise.
#pragma once

#include <memory>
#include <string>

namespace plimsoll {

class Listener {
 public:
  // `address`: "9400", "127.0.0.1:9400" or "[::1]:9400"; port 0: any. Throws an Error for an address that is none, is not of this
  // machine alone without `anywhere`, or cannot be had.
  Listener(const std::string& address, bool anywhere);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void show(std::string metrics);  // what is answered from now on
  const std::string& url() const { return url_; }

 private:
  struct Server;
  std::unique_ptr<Server> server_;
  std::string url_;
};

}  // namespace plimsoll
