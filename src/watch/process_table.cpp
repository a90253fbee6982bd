#include "watch/process_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "watch/judge.h"

namespace plimsoll {

std::string size_or_dash(const std::optional<Bytes>& b) { return b ? to_string(*b) : "-"; }

std::string time_of_day(double time) {
  const auto seconds = static_cast<std::time_t>(time);
  std::tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

double share_of(const std::optional<Bytes>& part, const std::optional<Bytes>& whole) {
  return part && whole && whole->count > 0 ? static_cast<double>(part->count) / static_cast<double>(whole->count) : 0;
}

std::string steps_text(const StepSample& s) {
  std::string out = fmt::format("step {}", s.step);
  if (s.total) out += fmt::format("/{}", *s.total);
  if (s.rate) out += fmt::format("  {:.2f} steps/s", *s.rate);
  if (s.rate && *s.rate > 0 && s.total && *s.total > s.step)
    out += "  " + duration_text(static_cast<double>(*s.total - s.step) / *s.rate) + " left";
  return out;
}

std::vector<const ProcessSample*> ordered_processes(const Sample& s, bool by_size) {
  std::vector<const ProcessSample*> out;
  for (const ProcessSample& p : s.processes) out.push_back(&p);
  std::stable_sort(out.begin(), out.end(), [&](const ProcessSample* a, const ProcessSample* b) {
    if (by_size) return a->weight().value_or(Bytes{0}) > b->weight().value_or(Bytes{0});
    return a->role < b->role;
  });
  return out;
}

std::string process_header(bool wide) {
  return fmt::format("{:>7} {:<6} {:>5} {:>10} {:>10} {:>10} {:>10} {}  {}", "pid", "role", "cpu", "RSS", "PSS", "shared", "device",
                     wide ? fmt::format("{:>10} {:>10} {:>10}", "own", "pinned", "swap") : "", "name");
}

std::string process_row(const ProcessSample& p, bool wide) {
  return fmt::format("{:>7} {:<6} {:>4.0f}% {:>10} {:>10} {:>10} {:>10} {}  {}{}", p.pid, to_string(p.role), p.cpu * 100,
                     size_or_dash(p.rss), size_or_dash(p.pss), size_or_dash(p.shared), size_or_dash(p.device),
                     wide ? fmt::format("{:>10} {:>10} {:>10}", size_or_dash(p.own), size_or_dash(p.pinned), size_or_dash(p.swap)) : "",
                     p.name,
                     p.state == 'D'   ? " (disk)"
                     : p.state == 'T' ? " (stopped)"
                     : p.state == 'X' ? " (ended)"
                                      : "");
}

}  // namespace plimsoll
