#include "watch/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "util/text.h"

namespace plimsoll {

namespace {

std::string size_text(const std::optional<Bytes>& b) { return b ? to_string(*b) : "-"; }

std::string clock_text(double time) {
  const auto seconds = static_cast<std::time_t>(time);
  std::tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

Tone tone_of(Level level) { return level == Level::critical ? Tone::bad : level == Level::warning ? Tone::warning : Tone::dim; }

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

std::string range_text(const ByteRange& r) { return fmt::format("{} ({} to {})", to_string(r.bytes), to_string(r.low), to_string(r.high)); }

std::string cut(const std::string& text, int width) {
  return static_cast<int>(text.size()) <= width ? text : text.substr(0, static_cast<size_t>(std::max(0, width - 1))) + "~";
}

// The processes in the order of the table.
std::vector<const ProcessSample*> ordered(const Sample& s, bool by_size) {
  std::vector<const ProcessSample*> out;
  for (const ProcessSample& p : s.processes) out.push_back(&p);
  std::stable_sort(out.begin(), out.end(), [&](const ProcessSample* a, const ProcessSample* b) {
    if (by_size) return a->weight().value_or(Bytes{0}) > b->weight().value_or(Bytes{0});
    return a->role < b->role;
  });
  return out;
}

// What fits: the narrow table leaves out what is nothing most of the time.
std::string process_header(bool wide) {
  return fmt::format("{:>7} {:<6} {:>5} {:>10} {:>10} {:>10} {:>10} {}  {}", "pid", "role", "cpu", "RSS", "PSS", "shared", "device",
                     wide ? fmt::format("{:>10} {:>10} {:>10}", "own", "pinned", "swap") : "", "name");
}

std::string process_row(const ProcessSample& p, bool wide) {
  return fmt::format("{:>7} {:<6} {:>4.0f}% {:>10} {:>10} {:>10} {:>10} {}  {}{}", p.pid, to_string(p.role), p.cpu * 100, size_text(p.rss),
                     size_text(p.pss), size_text(p.shared), size_text(p.device),
                     wide ? fmt::format("{:>10} {:>10} {:>10}", size_text(p.own), size_text(p.pinned), size_text(p.swap)) : "", p.name,
                     p.state == 'D'   ? " (disk)"
                     : p.state == 'T' ? " (stopped)"
                     : p.state == 'X' ? " (ended)"
                                      : "");
}

// Draws from the top; each part takes the rows it needs and leaves the rest.
class View {
 public:
  View(Canvas& canvas, const Judge& judge, const ViewOptions& options) : c_(canvas), judge_(judge), s_(judge.now()), o_(options) {}

  void draw() {
    if (c_.width() < 40 || c_.height() < 10) {
      c_.put(0, 0, "the terminal is too small: 40 x 10 at least");
      return;
    }
    header();
    if (o_.help) {
      help();
      return footer();
    }
    gauges();
    const int alert_rows = alerts_height(), left = c_.height() - y_ - 1 - alert_rows;
    // Half of what is left shows processes, as many as there are.
    const int table = s_.processes.empty() ? 0 : std::min<int>(static_cast<int>(s_.processes.size()) + 1, std::max(3, left / 2));
    plots(left - table);
    processes(table);
    alerts();
    footer();
  }

 private:
  const char* glyph(const char* unicode, const char* ascii) const { return o_.unicode ? unicode : ascii; }

  void header() {
    c_.put(0, 0, "plimsoll watch", Tone::bold);
    int x = c_.put(16, 0, cut(o_.title, c_.width() - 30));
    const std::string time = clock_text(s_.time) + (o_.paused ? " paused" : "");
    c_.put(c_.width() - static_cast<int>(time.size()), 0, time, o_.paused ? Tone::warning : Tone::dim);
    if (s_.steps) {
      const std::string steps = steps_text(*s_.steps);
      if (x + 2 + static_cast<int>(steps.size()) + 10 < c_.width())
        c_.put(x + 2, 0, steps, Tone::good);
      else
        c_.put(0, ++y_, steps, Tone::good);
    }
    ++y_;
  }

  // "name [#####   ] 12.00 GiB of 24.00 GiB  note"
  void gauge(const std::string& name, const std::optional<Bytes>& used, const std::optional<Bytes>& total, const std::string& note) {
    if (!used) return;
    const double share = share_of(used, total);
    const Tone tone = share >= judge_.thresholds().critical ? Tone::bad : share >= judge_.thresholds().warning ? Tone::warning : Tone::good;
    int x = c_.put(0, y_, fmt::format("{:<9}", cut(name, 9)));
    const int width = std::clamp(c_.width() / 5, 8, 40);
    x = c_.put(x, y_, "[", Tone::dim);
    for (int i = 0; i < width; ++i) c_.put(x + i, y_, i + 0.5 < share * width ? glyph("■", "|") : " ", tone);
    x = c_.put(x + width, y_, "]", Tone::dim);
    x = c_.put(x + 1, y_, fmt::format("{:>10}", to_string(*used)), Tone::bold);
    if (total) x = c_.put(x, y_, fmt::format(" of {:>10} {:>4.0f}%", to_string(*total), share * 100));
    c_.put(x + 2, y_, cut(note, c_.width() - x - 2), Tone::dim);
    ++y_;
  }

  void gauges() {
    for (const DeviceSample& d : s_.devices) {
      std::string note = d.answers ? "" : "does not answer";
      if (d.ours) note += "run " + to_string(*d.ours);
      if (d.busy) note += fmt::format("  busy {:.0f}%", *d.busy * 100);
      if (!d.others.empty()) note += fmt::format("  {} other{}", d.others.size(), d.others.size() == 1 ? "" : "s");
      gauge(fmt::format("gpu {}", d.index), d.used ? d.used : d.ours, d.total, note + "  " + d.name);
    }
    const HostSample& h = s_.host;
    std::string note;
    if (h.pressure_some) note = fmt::format("pressure {:.0f}/{:.0f}%", *h.pressure_some * 100, h.pressure_full.value_or(0) * 100);
    if (h.total && h.available) gauge("host", *h.total - *h.available, h.total, note);
    if (h.limit) gauge("limit", h.limit_used, h.limit, "control group, without page cache");
    if (h.swap_total && h.swap_total->count > 0)
      gauge("swap", h.swap_used, h.swap_total,
            fmt::format("in {}/s out {}/s", to_string(Bytes{static_cast<int64_t>(h.swap_in)}),
                        to_string(Bytes{static_cast<int64_t>(h.swap_out)})));
    gauge("/dev/shm", h.shm_used, h.shm_total, "");
  }

  // As many plots as there is room for, from the chosen one on.
  void plots(int rows) {
    const std::vector<std::string> names = plot_names(judge_);
    if (rows < 4 || names.empty()) {
      y_ += std::max(0, rows);
      return;
    }
    const int count = std::clamp(rows / 12, 1, static_cast<int>(names.size()));
    for (int i = 0; i < count; ++i) {
      const size_t at = (o_.plot + static_cast<size_t>(i)) % names.size();
      plot(names[at], i == 0 && static_cast<int>(names.size()) > count ? fmt::format("  ({}/{}, Tab)", at + 1, names.size()) : "",
           rows * (i + 1) / count - rows * i / count);
    }
  }

  void plot(const std::string& name, const std::string& note, int rows) {
    const Series& series = judge_.series().at(name);
    const bool steps = name == "steps/s";
    const std::optional<ByteRange> predicted = predicted_for(name);
    const int axis = 11, width = c_.width() - axis, height = rows - 1;
    // The most of each column's time.
    std::vector<double> columns(static_cast<size_t>(width), -1);
    double top = predicted ? static_cast<double>(predicted->bytes.count) : 0;
    for (const Series::Point& p : series.points()) {
      const double place = (p.time - (s_.time - o_.span)) / o_.span * width;
      if (place < 0) continue;
      double& column = columns[std::min(static_cast<size_t>(place), columns.size() - 1)];
      column = std::max(column, p.value);
      top = std::max(top, p.value);
    }
    // Between two looks the column before counts.
    for (size_t i = 1; i < columns.size(); ++i)
      if (columns[i] < 0) columns[i] = columns[i - 1];
    top = top > 0 ? top * 1.05 : 1;
    std::string label = name.ends_with(" own") ? name.substr(0, name.size() - 4) + ", this run" : name;
    label += fmt::format(", last {}", duration_text(o_.span));
    label += note;
    int x = c_.put(0, y_, label, Tone::bold);
    if (predicted)
      c_.put(x + 2, y_, cut(fmt::format("{} predicted {}", glyph("┄", "="), range_text(*predicted)), c_.width() - x - 2), Tone::predicted);
    const auto value = [&](double v) { return steps ? fmt::format("{:.2f}", v) : to_string(Bytes{static_cast<int64_t>(v)}); };
    static const char* kParts[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const int line = predicted ? height - 1 - static_cast<int>(static_cast<double>(predicted->bytes.count) / top * height) : -1;
    for (int row = 0; row < height; ++row) {
      const int y = y_ + 1 + row;
      if (row == 0 || row == height - 1) c_.put(0, y, fmt::format("{:>10}", row == 0 ? value(top) : value(0)), Tone::dim);
      if (row == line) c_.put(0, y, fmt::format("{:>10}", value(static_cast<double>(predicted->bytes.count))), Tone::predicted);
      c_.put(axis - 1, y, glyph("│", "|"), Tone::dim);
      for (int i = 0; i < width; ++i) {
        const double filled = columns[static_cast<size_t>(i)] / top * height - (height - 1 - row);
        const bool any = filled > 0.0625;
        const char* mark = !any            ? " "
                           : o_.unicode    ? kParts[std::clamp(static_cast<int>(filled * 8 + 0.5), 0, 8)]
                           : filled >= 0.5 ? "#"
                                           : ".";
        if (row == line && filled < 1)
          c_.put(axis + i, y, glyph("┄", "="), Tone::predicted);
        else
          c_.put(axis + i, y, mark, Tone::good);
      }
    }
    y_ += rows;
  }

  std::optional<ByteRange> predicted_for(const std::string& name) const {
    const auto& p = judge_.prediction();
    if (!p) return {};
    if (name.starts_with("device") && name.ends_with("own")) return p->device;
    if (name == "run") return p->host;
    return name == "/dev/shm" ? p->shm : std::nullopt;
  }

  void processes(int rows) {
    if (rows < 2) return;
    c_.put(0, y_, cut(process_header(c_.width() >= 120), c_.width()), Tone::dim);
    const auto list = ordered(s_, o_.by_size);
    const auto first = static_cast<size_t>(std::clamp(o_.scroll, 0, std::max(0, static_cast<int>(list.size()) - (rows - 1))));
    for (size_t i = 0; i + 1 < static_cast<size_t>(rows) && first + i < list.size(); ++i) {
      const bool more = i + 2 == static_cast<size_t>(rows) && first + i + 1 < list.size();
      const std::string text =
          more ? fmt::format("{:>8} {} more (arrows)", "", list.size() - first - i) : process_row(*list[first + i], c_.width() >= 120);
      c_.put(0, y_ + 1 + static_cast<int>(i), cut(text, c_.width()),
             !more && list[first + i]->role == Role::main ? Tone::bold : Tone::plain);
    }
    y_ += rows;
  }

  // An alert and its first advice, each over as many rows as its words need, at most two.
  std::vector<std::pair<std::string, Tone>> alert_lines() const {
    std::vector<std::pair<std::string, Tone>> lines;
    const auto wrapped = [&](const std::string& text, const std::string& indent, Tone tone) {
      std::string line = indent;
      int rows = 0;
      for (const std::string& word : split_at(text, ' ')) {
        if (static_cast<int>(line.size() + word.size()) >= c_.width() && rows < 2) {
          lines.emplace_back(line, tone);
          line = std::string(indent.size(), ' ');
          ++rows;
        }
        line += word + " ";
      }
      lines.emplace_back(line, tone);
    };
    for (const Alert& a : judge_.alerts()) {
      wrapped(a.text, a.level == Level::note ? "- " : "! ", tone_of(a.level));
      for (const std::string& advice : a.advice) wrapped(advice, o_.unicode ? "  → " : "  > ", Tone::plain);
    }
    for (const std::string& e : s_.events) lines.emplace_back(cut(e, c_.width()), Tone::dim);
    return lines;
  }

  int alerts_height() const { return std::clamp(static_cast<int>(alert_lines().size()), 1, std::max(1, c_.height() / 3)); }

  void alerts() {
    const auto lines = alert_lines();
    const int rows = alerts_height();
    y_ = c_.height() - 1 - rows;
    if (lines.empty()) c_.put(0, y_, "no warnings", Tone::dim);
    for (int i = 0; i < std::min<int>(rows, static_cast<int>(lines.size())); ++i)
      c_.put(0, y_ + i, lines[static_cast<size_t>(i)].first, lines[static_cast<size_t>(i)].second);
  }

  void footer() {
    c_.put(0, c_.height() - 1, cut("q quit  Tab plot  +/- time span  s sort  arrows scroll  p pause  h help", c_.width()), Tone::selected);
  }

  void help() {
    const char* lines[] = {"Tab, Shift-Tab  the next or last plot: each device, the run, main, workers, /dev/shm, steps",
                           "+ and -         a shorter or longer time in the plot",
                           "s               processes by size, or main and workers first",
                           "up, down        scroll the processes",
                           "p               pause: the screen stands still, watching goes on",
                           "q, Ctrl-C       end",
                           "",
                           "RSS     resident pages; those of forked workers are counted in each of them",
                           "PSS     the same with shared pages divided among those who share them: these add up",
                           "shared  resident pages that another process maps too",
                           "pinned  pages that the kernel may not move or swap",
                           "limit   the tightest control group above the process",
                           "The dotted line is what was predicted for this job; docs/watch.md says where the job is read."};
    for (const char* line : lines) c_.put(0, ++y_, line);
  }

  Canvas& c_;
  const Judge& judge_;
  const Sample& s_;
  const ViewOptions& o_;
  int y_ = 0;
};

}  // namespace

std::vector<std::string> plot_names(const Judge& judge) {
  std::vector<std::string> out;
  for (const DeviceSample& d : judge.now().devices)
    for (const char* whose : {" own", ""})
      if (const std::string name = fmt::format("device {}{}", d.index, whose); judge.series().contains(name)) out.push_back(name);
  for (const char* name : {"run", "main", "workers", "host", "/dev/shm", "steps/s"})
    if (const auto found = judge.series().find(name); found != judge.series().end() && !found->second.empty()) out.emplace_back(name);
  return out;
}

void draw_view(Canvas& canvas, const Judge& judge, const ViewOptions& options) { View(canvas, judge, options).draw(); }

std::string change_text(const AlertChange& c, double time) {
  std::string out = fmt::format("{} {:<8} {}\n", clock_text(time), c.raised ? to_string(c.alert.level) : "over", c.alert.text);
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
    for (const OtherProcess& o : d.others) out += fmt::format("    {:<10} {:>11}  {}\n", o.pid, size_text(o.used), o.name);
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
    for (const ProcessSample* p : ordered(s, false)) out += process_row(*p, true) + "\n";
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
