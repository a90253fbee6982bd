#include "watch/listener.h"

#include <fmt/format.h>
#include <httplib.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "hardware/surroundings.h"
#include "util/error.h"
#include "watch/prometheus.h"

namespace plimsoll {

namespace {

struct Place {
  std::string host = "127.0.0.1";
  int port = 0;
};

Place place_of(const std::string& address) {
  const auto wrong = [&](const std::string& why) {
    return Error("[watch] --listen '" + printable(address) + "' " + why, "e.g. --listen 127.0.0.1:9400", ExitCode::usage);
  };
  Place place;
  const size_t colon = address.rfind(':');
  std::string host = colon == std::string::npos ? "" : address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const auto port = whole_number(colon == std::string::npos ? address : address.substr(colon + 1));
  if (!port) throw wrong("has no port");
  if (*port < 0 || *port > 65535) throw wrong(fmt::format("has a port that is not from 0 to 65535: {}", *port));
  if (!host.empty()) place.host = host;
  place.port = static_cast<int>(*port);
  return place;
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

}  // namespace

struct Listener::Server {
  httplib::Server http;
  std::thread thread;
  std::mutex mutex;
  std::string metrics;
};

Listener::Listener(const std::string& address, bool anywhere) : server_(std::make_unique<Server>()) {
  const Place place = place_of(address);
  if (!is_loopback(place.host) && !anywhere)
    throw Error("[watch] --listen " + place.host + " would answer other machines", "add --listen-anywhere if that is what you want",
                ExitCode::usage);
  httplib::Server& http = server_->http;
  http.new_task_queue = [] { return new httplib::ThreadPool(2); };
  http.set_payload_max_length(4096);
  http.set_read_timeout(5);
  http.set_write_timeout(5);
  http.Get("/metrics", [this](const httplib::Request&, httplib::Response& answer) {
    const std::lock_guard lock(server_->mutex);
    answer.set_content(server_->metrics, kPrometheusType);
  });
  http.Get("/",
           [](const httplib::Request&, httplib::Response& answer) { answer.set_content("plimsoll watch: see /metrics\n", "text/plain"); });
  // Without this a second server would share the port and answer every other request.
  http.set_socket_options([](socket_t sock) {
    const int yes = 1;
    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const int port = place.port == 0                                     ? http.bind_to_any_port(place.host.c_str())
                   : http.bind_to_port(place.host.c_str(), place.port) ? place.port
                                                                       : -1;
  if (port < 0)
    throw Error(fmt::format("[watch] cannot listen on {}:{}", place.host, place.port),
                "another program may have this port; choose another one, or 0 for any", ExitCode::usage);
  url_ = fmt::format("http://{}:{}/metrics", place.host.find(':') == std::string::npos ? place.host : "[" + place.host + "]", port);
  server_->thread = std::thread([this] { server_->http.listen_after_bind(); });
  while (!server_->http.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // or stop() would come too early
}

Listener::~Listener() {
  server_->http.stop();
  if (server_->thread.joinable()) server_->thread.join();
}

void Listener::show(std::string metrics) {
  const std::lock_guard lock(server_->mutex);
  server_->metrics = std::move(metrics);
}

}  // namespace plimsoll
