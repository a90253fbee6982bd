#include "watch/prometheus.h"

#include <fmt/format.h>

#include <functional>

namespace plimsoll {

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string(1, c);
  return out + "\"";
}

using Labels = std::initializer_list<std::pair<const char*, std::string>>;

class MetricsWriter {
 public:
  // Announces a metric; it is written only when a value follows.
  void metric(const char* name, const char* help, const char* type = "gauge") {
    name_ = std::string("plimsoll_watch_") + name;
    head_ = fmt::format("# HELP {} {}\n# TYPE {} {}\n", name_, help, name_, type);
  }
  void value(Labels labels, double number) {
    out_ += head_ + name_;
    head_.clear();
    std::string inside;
    for (const auto& [key, text] : labels) inside += fmt::format("{}{}={}", inside.empty() ? "" : ",", key, quoted(text));
    if (!inside.empty()) out_ += "{" + inside + "}";
    out_ += fmt::format(" {}\n", number);
  }
  void value(Labels labels, const std::optional<Bytes>& b) {
    if (!b) return;
    value(labels, 0);
    out_.replace(out_.size() - 3, 2, fmt::format(" {}", b->count));  // whole, never as 1.2e+10
  }
  void value(Labels labels, const std::optional<double>& v) {
    if (v) value(labels, *v);
  }
  const std::string& text() const { return out_; }

 private:
  std::string name_, head_, out_;
};

void write_processes(MetricsWriter& w, const Sample& s) {
  const auto each = [&](const char* name, const char* help, std::optional<Bytes> ProcessSample::*field) {
    w.metric(name, help);
    for (const ProcessSample& p : s.processes)
      w.value({{"pid", std::to_string(p.pid)}, {"role", to_string(p.role)}, {"name", p.name}}, p.*field);
  };
  each("process_resident_bytes", "Resident set size.", &ProcessSample::rss);
  each("process_proportional_bytes", "Proportional set size: shared pages divided by those who share them.", &ProcessSample::pss);
  each("process_shared_bytes", "Resident pages that other processes map too.", &ProcessSample::shared);
  each("process_own_bytes", "Resident pages of this process alone.", &ProcessSample::own);
  each("process_swap_bytes", "Pages in swap.", &ProcessSample::swap);
  each("process_pinned_bytes", "Pages that are locked or pinned.", &ProcessSample::pinned);
  each("process_device_bytes", "Memory on all devices.", &ProcessSample::device);
  w.metric("process_cpu_cores", "Cores in use.");
  for (const ProcessSample& p : s.processes)
    w.value({{"pid", std::to_string(p.pid)}, {"role", to_string(p.role)}, {"name", p.name}}, p.cpu);
}

void write_devices(MetricsWriter& w, const Sample& s) {
  const auto each = [&](const char* name, const char* help, const std::function<void(const DeviceSample&, Labels)>& write) {
    w.metric(name, help);
    for (const DeviceSample& d : s.devices) write(d, {{"device", std::to_string(d.index)}, {"name", d.name}});
  };
  each("device_total_bytes", "What a framework can have of the device.", [&](const auto& d, Labels l) { w.value(l, d.total); });
  each("device_used_bytes", "In use by all processes.", [&](const auto& d, Labels l) { w.value(l, d.used); });
  each("device_run_bytes", "In use by the run that is watched.", [&](const auto& d, Labels l) { w.value(l, d.ours); });
  each("device_busy_ratio", "Share of the time in which something ran on it.", [&](const auto& d, Labels l) { w.value(l, d.busy); });
  w.metric("device_other_bytes", "In use by a process that is not of the run.");
  for (const DeviceSample& d : s.devices)
    for (const OtherProcess& o : d.others)
      w.value({{"device", std::to_string(d.index)}, {"pid", std::to_string(o.pid)}, {"name", o.name}}, o.used);
}

void write_host(MetricsWriter& w, const HostSample& h) {
  const auto one = [&](const char* name, const char* help, const auto& value) {
    w.metric(name, help);
    w.value({}, value);
  };
  one("host_total_bytes", "Memory of the machine.", h.total);
  one("host_available_bytes", "What could be had without swapping.", h.available);
  one("host_swap_used_bytes", "Swap in use.", h.swap_used);
  one("host_shm_total_bytes", "Size of /dev/shm.", h.shm_total);
  one("host_shm_used_bytes", "In use of /dev/shm.", h.shm_used);
  one("host_limit_bytes", "Limit of the tightest control group.", h.limit);
  one("host_limit_used_bytes", "In use of it, without page cache.", h.limit_used);
  one("host_pressure_some_ratio", "Share of the last 10 s in which something waited for memory.", h.pressure_some);
  one("host_pressure_full_ratio", "Share of the last 10 s in which everything waited for memory.", h.pressure_full);
  one("host_swap_in_bytes_per_second", "Read from swap.", h.swap_in);
  one("host_swap_out_bytes_per_second", "Written to swap.", h.swap_out);
  one("host_idle_cores", "Cores with nothing to do.", h.idle_cpus);
}

void write_prediction(MetricsWriter& w, const Prediction& p) {
  w.metric("predicted_bytes", "What was predicted: the value and the ends of its interval.");
  const auto range = [&](const char* what, const std::optional<ByteRange>& r) {
    if (!r) return;
    w.value({{"what", what}, {"end", "low"}}, std::optional(r->low));
    w.value({{"what", what}, {"end", "expected"}}, std::optional(r->bytes));
    w.value({{"what", what}, {"end", "high"}}, std::optional(r->high));
  };
  range("device", p.device);
  range("host", p.host);
  range("shm", p.shm);
}

}  // namespace

std::string prometheus_text(const Judge& judge) {
  const Sample& s = judge.now();
  MetricsWriter w;
  w.metric("look_time_seconds", "When this was seen, since 1970.");
  w.value({}, s.time);
  write_processes(w, s);
  write_devices(w, s);
  write_host(w, s.host);
  if (s.steps) {
    w.metric("step", "The step that the log told last.");
    w.value({}, static_cast<double>(s.steps->step));
    w.metric("steps_per_second", "How fast the log's steps come.");
    w.value({}, s.steps->rate);
  }
  if (judge.prediction()) write_prediction(w, *judge.prediction());
  w.metric("peak_bytes", "The most that was seen.");
  w.value({{"what", "run"}}, judge.peaks().tree);
  for (const auto& [index, peak] : judge.peaks().devices)
    w.value({{"what", "device"}, {"device", std::to_string(index)}}, std::optional(peak));
  w.metric("alert", "1 while an alert is on.");
  for (const Alert& a : judge.alerts()) w.value({{"id", a.id}, {"level", to_string(a.level)}}, 1.0);
  return w.text();
}

}  // namespace plimsoll
