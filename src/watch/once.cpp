// A watched run as text: one look, and a line for each alert.
#include <fmt/format.h>

#include <algorithm>

#include "watch/process_table.h"
#include "watch/view.h"

namespace plimsoll {

std::string change_text(const AlertChange& c, double time) {
  std::string out = fmt::format("{} {:<8} {}\n", time_of_day(time), c.raised ? to_string(c.alert.level) : "over", c.alert.text);
  if (c.raised)
    for (const std::string& advice : c.alert.advice) out += "                    " + advice + "\n";
  return out;
}

std::string once_text(const Judge& judge, const std::string& title, const Style& style) {
  const Sample& s = judge.now();
  std::string out = style.bold("plimsoll watch") + "  " + title + (s.steps ? "  " + steps_text(*s.steps) : "") + "\n\n";
  const auto row = [&](const std::string& name, const std::optional<Bytes>& used, const std::optional<Bytes>& total,
                       const std::string& note) {
    if (used)
      out += fmt::format("  {:<12} {:>11}{}{}\n", name, to_string(*used),
                         total ? fmt::format(" of {:>11}  {:>4.0f} %", to_string(*total), share_of(used, total) * 100) : "",
                         note.empty() ? "" : "  " + style.dim(note));
  };
  for (const DeviceSample& d : s.devices) {
    std::string note = d.name;
    if (d.busy) note += fmt::format(", busy {:.0f} %", *d.busy * 100);
    row(fmt::format("device {}", d.index), d.used, d.total, note);
    if (!d.used) out += fmt::format("  device {:<5} {}\n", d.index, d.name + (d.answers ? "" : ": does not answer"));
    row("  this run", d.ours, {}, "");
    for (const OtherProcess& o : d.others) out += fmt::format("    {:<10} {:>11}  {}\n", o.pid, size_or_dash(o.used), o.name);
  }
  const HostSample& h = s.host;
  if (h.total && h.available) row("host", *h.total - *h.available, h.total, "");
  if (h.limit) row("limit", h.limit_used, h.limit, h.limit_source + ", without page cache");
  if (h.swap_total && h.swap_total->count > 0) row("swap", h.swap_used, h.swap_total, "");
  row("/dev/shm", h.shm_used, h.shm_total, "");
  if (h.pressure_some)
    out += fmt::format(
        "  {:<12} {:>10.1f} %  {}\n", "pressure", *h.pressure_some * 100,
        style.dim(fmt::format("of the last 10 s something waited for memory, everything {:.1f} %", h.pressure_full.value_or(0) * 100)));
  if (!s.processes.empty()) {
    out += "\n" + style.dim(process_header(true)) + "\n";
    for (const ProcessSample* p : ordered_processes(s, false)) out += process_row(*p, true) + "\n";
    if (judge.peaks().tree)
      out += fmt::format("{:>7} {:<6} {:>5} {:>10} {:>10}  shares (PSS) of all, the most that was seen\n", "", "run", "", "",
                         to_string(*judge.peaks().tree));
  }
  if (const auto& p = judge.prediction()) {
    out += "\n" + style.bold("Predicted") + fmt::format("  {}, batch {} (from {})\n", p->model, p->batch, p->source);
    const auto beside = [&](const char* name, const std::optional<ByteRange>& r, const std::optional<Bytes>& measured) {
      if (r)
        out += fmt::format("  {:<12} {:>11}  {}  {}\n", name, to_string(r->bytes),
                           fmt::format("{} to {}", to_string(r->low), to_string(r->high)),
                           measured ? "measured at most " + to_string(*measured) : "");
    };
    std::optional<Bytes> device;
    for (const auto& [index, peak] : judge.peaks().devices) device = std::max(device.value_or(Bytes{0}), peak);
    beside("device", p->device, device);
    beside("host", p->host, judge.peaks().tree);
    beside("/dev/shm", p->shm, judge.peaks().shm);
    if (p->corrected) out += style.dim("  corrected by earlier runs on this machine (--no-calibration)\n");
  }
  if (!judge.alerts().empty()) out += "\n" + style.bold("What stands out") + "\n";
  for (const Alert& a : judge.alerts()) {
    const std::string line = fmt::format("  {}: {}", to_string(a.level), a.text);
    out += (a.level == Level::note ? line : style.red(line)) + "\n";
    for (const std::string& advice : a.advice) out += "    " + advice + "\n";
  }
  for (const std::string& e : s.events) out += "  " + e + "\n";
  return out;
}

}  // namespace plimsoll
