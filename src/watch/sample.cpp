#include "watch/sample.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "util/error.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

constexpr Role kRoles[] = {Role::main, Role::rank, Role::worker, Role::other};

// One list of fields for both directions: `f(name, field)`.
template <class P, class F>
void process_fields(P& p, F f) {
  f("pid", p.pid), f("parent", p.parent), f("started", p.started), f("name", p.name), f("cpu", p.cpu), f("blocked", p.blocked),
      f("queued", p.queued);
  f("rss_bytes", p.rss), f("anonymous_bytes", p.anonymous), f("shmem_bytes", p.shmem), f("pss_bytes", p.pss);
  f("shared_bytes", p.shared), f("own_bytes", p.own), f("swap_bytes", p.swap), f("pinned_bytes", p.pinned), f("device_bytes", p.device);
}

template <class D, class F>
void device_fields(D& d, F f) {
  f("index", d.index), f("name", d.name), f("unified", d.unified), f("answers", d.answers);
  f("total_bytes", d.total), f("used_bytes", d.used), f("ours_bytes", d.ours), f("busy", d.busy);
}

template <class O, class F>
void other_fields(O& o, F f) {
  f("pid", o.pid), f("name", o.name), f("used_bytes", o.used);
}

template <class H, class F>
void host_fields(H& h, F f) {
  f("total_bytes", h.total), f("available_bytes", h.available), f("swap_total_bytes", h.swap_total), f("swap_used_bytes", h.swap_used);
  f("shm_total_bytes", h.shm_total), f("shm_used_bytes", h.shm_used), f("limit_bytes", h.limit), f("limit_used_bytes", h.limit_used);
  f("limit_source", h.limit_source), f("pressure_some", h.pressure_some), f("pressure_full", h.pressure_full);
  f("swap_in", h.swap_in), f("swap_out", h.swap_out), f("refaults", h.refaults), f("oom_kills", h.oom_kills);
  f("idle_cpus", h.idle_cpus), f("cpus", h.cpus);
}

template <class S, class F>
void step_fields(S& s, F f) {
  f("step", s.step), f("total", s.total), f("seen", s.seen), f("rate", s.rate), f("rounds", s.rounds);
}

struct FieldWriter {
  Json& json;
  void operator()(const char* name, const std::optional<Bytes>& b) const { json[name] = b ? Json(b->count) : Json(); }
  void operator()(const char* name, const std::optional<double>& v) const { json[name] = v ? Json(*v) : Json(); }
  void operator()(const char* name, const std::optional<int64_t>& v) const { json[name] = v ? Json(*v) : Json(); }
  template <class T>
  void operator()(const char* name, const T& value) const {
    json[name] = value;
  }
};

// What is not there stays as it is: a sample of an earlier version has fewer fields.
struct Reader {
  const nlohmann::json& json;
  void operator()(const char* name, std::optional<Bytes>& b) const {
    int64_t count = 0;
    if (get(name, count)) b = Bytes{count};
  }
  template <class T>
  void operator()(const char* name, std::optional<T>& v) const {
    T value{};
    if (get(name, value)) v = value;
  }
  template <class T>
  void operator()(const char* name, T& value) const {
    get(name, value);
  }

 private:
  template <class T>
  bool get(const char* name, T& value) const {
    const auto found = json.find(name);
    if (found == json.end() || found->is_null()) return false;
    if constexpr (std::is_same_v<T, std::string>) {
      if (!found->is_string()) wrong(name);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!found->is_boolean()) wrong(name);
    } else if constexpr (std::is_integral_v<T>) {
      if (!found->is_number_integer()) wrong(name);
    } else {
      if (!found->is_number()) wrong(name);
    }
    value = found->template get<T>();
    return true;
  }
  [[noreturn]] static void wrong(const char* name) {
    throw Error(std::string("[watch] '") + name + "' of a sample has another type", "samples are written by --jsonl and --history");
  }
};

const nlohmann::json& list_of(const nlohmann::json& json, const char* name) {
  static const nlohmann::json kNone = nlohmann::json::array();
  const auto found = json.find(name);
  if (found == json.end()) return kNone;
  if (!found->is_array())
    throw Error(std::string("[watch] '") + name + "' of a sample is no list", "samples are written by --jsonl and --history");
  for (const auto& item : *found)
    if (!item.is_object() && std::string(name) != "events")
      throw Error(std::string("[watch] '") + name + "' of a sample holds something else", "samples are written by --jsonl and --history");
  return *found;
}

}  // namespace

const char* to_string(Role role) {
  switch (role) {
    case Role::main: return "main";
    case Role::rank: return "rank";
    case Role::worker: return "worker";
    default: return "other";
  }
}

std::optional<Bytes> HostSample::capacity() const {
  if (total && limit) return std::min(*total, *limit);
  return total ? total : limit;
}

std::optional<Bytes> HostSample::left() const {
  std::optional<Bytes> machine = available;
  if (machine && swap_total && swap_used) *machine += *swap_total - *swap_used;
  std::optional<Bytes> group;
  if (limit && limit_used) group = std::max(Bytes{0}, *limit - *limit_used);
  if (machine && group) return std::min(*machine, *group);
  return machine ? machine : group;
}

Json sample_json(const Sample& s) {
  Json j{{"time", s.time}, {"processes", Json::array()}, {"devices", Json::array()}};
  for (const ProcessSample& p : s.processes) {
    Json row{{"role", to_string(p.role)}, {"state", std::string(1, p.state)}};
    process_fields(p, FieldWriter{row});
    j["processes"].push_back(std::move(row));
  }
  for (const DeviceSample& d : s.devices) {
    Json row = Json::object();
    device_fields(d, FieldWriter{row});
    row["others"] = Json::array();
    for (const OtherProcess& o : d.others) {
      Json other = Json::object();
      other_fields(o, FieldWriter{other});
      row["others"].push_back(std::move(other));
    }
    j["devices"].push_back(std::move(row));
  }
  Json host = Json::object();
  host_fields(s.host, FieldWriter{host});
  j["host"] = std::move(host);
  j["steps"] = nullptr;
  if (s.steps) {
    Json steps = Json::object();
    step_fields(*s.steps, FieldWriter{steps});
    j["steps"] = std::move(steps);
  }
  j["events"] = s.events;
  return j;
}

Sample sample_of(const nlohmann::json& json) {
  if (!json.is_object() || !json.contains("time"))
    throw Error("[watch] a line is no sample", "give what `plimsoll watch --jsonl` wrote, or a --history file");
  Sample s;
  Reader{json}("time", s.time);
  for (const auto& row : list_of(json, "processes")) {
    ProcessSample p;
    process_fields(p, Reader{row});
    std::string role, state;
    Reader{row}("role", role);
    Reader{row}("state", state);
    for (const Role r : kRoles)
      if (role == to_string(r)) p.role = r;
    if (!state.empty()) p.state = state[0];
    s.processes.push_back(std::move(p));
  }
  for (const auto& row : list_of(json, "devices")) {
    DeviceSample d;
    device_fields(d, Reader{row});
    for (const auto& other : list_of(row, "others")) {
      OtherProcess o;
      other_fields(o, Reader{other});
      d.others.push_back(std::move(o));
    }
    s.devices.push_back(std::move(d));
  }
  if (const auto host = json.find("host"); host != json.end() && host->is_object()) host_fields(s.host, Reader{*host});
  if (const auto steps = json.find("steps"); steps != json.end() && steps->is_object()) step_fields(s.steps.emplace(), Reader{*steps});
  for (const auto& event : list_of(json, "events"))
    if (event.is_string()) s.events.push_back(event.get<std::string>());
  return s;
}

}  // namespace plimsoll
