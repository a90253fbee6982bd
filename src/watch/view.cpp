#include "watch/view.h"

#include <fmt/format.h>

#include <algorithm>

#include "util/text.h"
#include "watch/plot.h"
#include "watch/process_table.h"

namespace plimsoll {

namespace {

constexpr int kWide = 120;        // columns from which on the table has all figures
constexpr int kTwoColumns = 140;  // and from which on plots stand side by side
constexpr int kPlotRows = 10;     // of one plot, where there is room for several

Tone tone_of(Level level) { return level == Level::critical ? Tone::bad : level == Level::warning ? Tone::warning : Tone::dim; }

std::string cut(const std::string& text, int width) {
  return static_cast<int>(text.size()) <= width ? text : text.substr(0, static_cast<size_t>(std::max(0, width - 1))) + "~";
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
    c_.put(0, 0, "plimsoll watch", Tone::title);
    int x = c_.put(16, 0, cut(o_.title, c_.width() - 30), Tone::bold);
    const std::string time = (o_.paused ? "paused " : "") + time_of_day(s_.time);
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

  struct Gauge {
    std::string name;
    std::optional<Bytes> used, total;
    std::optional<Bytes> own;        // the run's part of it, when others may have one, too
    std::optional<Bytes> predicted;  // for that part
    std::string note;
  };

  Tone tone_at(double share) const {
    return share >= judge_.thresholds().critical ? Tone::bad : share >= judge_.thresholds().warning ? Tone::warning : Tone::good;
  }

  // What the run has, then what others have; a mark where the run was predicted to be.
  void bar(int x, int width, const Gauge& g) {
    const double used = share_of(g.used, g.total) * width, own = g.own ? share_of(g.own, g.total) * width : used;
    const int mark = g.predicted ? static_cast<int>(share_of(g.predicted, g.total) * width) : -1;
    for (int i = 0; i < width; ++i) {
      const bool theirs = i + 0.5 >= own && i + 0.5 < used;
      if (i == mark)
        c_.put(x + i, y_, glyph("┆", "!"), Tone::predicted);
      else if (i + 0.5 < used)
        c_.put(x + i, y_, theirs ? glyph("▪", ":") : glyph("■", "|"), theirs ? Tone::other : tone_at((i + 1.0) / width));
      else
        c_.put(x + i, y_, glyph("·", " "), Tone::dim);
    }
  }

  // "name [#####   ] 12.00 GiB of 24.00 GiB  50%  note"
  void gauge(const Gauge& g) {
    if (!g.used) return;
    int x = c_.put(0, y_, fmt::format("{:<9}", cut(g.name, 9)));
    const int width = std::clamp(c_.width() / 6, 8, 40);
    x = c_.put(x, y_, "[", Tone::dim);
    if (g.total) bar(x, width, g);
    x = c_.put(x + width, y_, "]", Tone::dim);
    x = c_.put(x + 1, y_, fmt::format("{:>10}", to_string(*g.used)), Tone::bold);
    if (g.total) {
      const double share = share_of(g.used, g.total);
      x = c_.put(x, y_, fmt::format(" of {:>10} ", to_string(*g.total)));
      x = c_.put(x, y_, fmt::format("{:>4.0f}%", share * 100), tone_at(share) == Tone::good ? Tone::plain : tone_at(share));
    }
    c_.put(x + 2, y_, cut(g.note, c_.width() - x - 2), Tone::dim);
    ++y_;
  }

  void device_gauge(const DeviceSample& d) {
    std::vector<std::string> notes;
    if (!d.answers) notes.emplace_back("does not answer");
    if (d.ours) notes.push_back("run " + to_string(*d.ours));
    if (d.busy) notes.push_back(fmt::format("busy {:.0f}%", *d.busy * 100));
    if (!d.others.empty()) notes.push_back(fmt::format("{} other{}", d.others.size(), d.others.size() == 1 ? "" : "s"));
    notes.push_back(d.name);
    const auto& predicted = judge_.prediction();
    Gauge g{fmt::format("gpu {}", d.index), d.used ? d.used : d.ours, d.total, d.ours, {}, join(notes, "  ")};
    if (predicted && predicted->device && d.ours) g.predicted = predicted->device->bytes;
    // Where the run is on another device, all of this one is others'.
    const bool elsewhere = std::any_of(s_.devices.begin(), s_.devices.end(), [](const DeviceSample& o) { return o.ours.has_value(); });
    if (!g.own && elsewhere) g.own = Bytes{0};
    gauge(g);
  }

  void gauges() {
    for (const DeviceSample& d : s_.devices) device_gauge(d);
    const HostSample& h = s_.host;
    std::string note;
    if (h.pressure_some)
      note = fmt::format("waits for memory {:.0f}% some, {:.0f}% all", *h.pressure_some * 100, h.pressure_full.value_or(0) * 100);
    if (h.total && h.available) gauge({"host", *h.total - *h.available, h.total, {}, {}, note});
    if (h.limit) gauge({"limit", h.limit_used, h.limit, {}, {}, "control group, without page cache"});
    if (h.swap_total && h.swap_total->count > 0)
      gauge({"swap",
             h.swap_used,
             h.swap_total,
             {},
             {},
             fmt::format("in {}/s out {}/s", to_string(Bytes{static_cast<int64_t>(h.swap_in)}),
                         to_string(Bytes{static_cast<int64_t>(h.swap_out)}))});
    gauge({"/dev/shm", h.shm_used, h.shm_total, {}, {}, ""});
  }

  // As many plots as there is room for, from the chosen one on.
  void plots(int rows) {
    const std::vector<std::string> names = plot_names(judge_);
    if (rows < 4 || names.empty()) {
      y_ += std::max(0, rows);
      return;
    }
    const auto all = static_cast<int>(names.size());
    const int columns = c_.width() >= kTwoColumns && all > 1 ? 2 : 1;
    const int lines = std::clamp(rows / kPlotRows, 1, (all + columns - 1) / columns), shown = std::min(all, lines * columns);
    for (int i = 0; i < shown; ++i) {
      const size_t at = (o_.plot + static_cast<size_t>(i)) % names.size();
      const int line = i / columns, column = i % columns, width = (c_.width() - 2 * (columns - 1)) / columns;
      const int top = rows * line / lines, bottom = rows * (line + 1) / lines;
      plot(names[at], i == 0 && all > shown ? fmt::format("{}/{} Tab", at + 1, all) : "",
           {column * (width + 2), y_ + top, width, bottom - top});
    }
    y_ += rows;
  }

  void plot(const std::string& name, const std::string& note, const Area& area) {
    Plot p{judge_.series().at(name)};
    p.title = name.ends_with(" own") ? name.substr(0, name.size() - 4) + ", this run" : name;
    p.note = note;
    p.predicted = predicted_for(name);
    if (p.predicted && p.predicted->high.count == 0) p.predicted.reset();  // nothing to draw a line at
    p.bytes = name != "steps/s";
    p.now = s_.time;
    p.span = o_.span;
    p.unicode = o_.unicode;
    if (const auto whole = whole_of(name)) {
      p.warning = static_cast<double>(whole->count) * judge_.thresholds().warning;
      p.critical = static_cast<double>(whole->count) * judge_.thresholds().critical;
    }
    draw_plot(c_, area, p);
  }

  // What the plotted part can be at most.
  std::optional<Bytes> whole_of(const std::string& name) const {
    for (const DeviceSample& d : s_.devices)
      if (name == fmt::format("device {}", d.index) || name == fmt::format("device {} own", d.index)) return d.total;
    if (name == "/dev/shm") return s_.host.shm_total;
    const bool of_host = name == "host" || name == "run" || name == "main" || name == "workers";
    return of_host ? s_.host.capacity() : std::nullopt;
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
    std::string header = process_header(c_.width() >= kWide);
    header.resize(static_cast<size_t>(c_.width()), ' ');
    c_.put(0, y_, header, Tone::heading);
    const auto list = ordered_processes(s_, o_.by_size);
    const auto first = static_cast<size_t>(std::clamp(o_.scroll, 0, std::max(0, static_cast<int>(list.size()) - (rows - 1))));
    for (size_t i = 0; i + 1 < static_cast<size_t>(rows) && first + i < list.size(); ++i) {
      const bool more = i + 2 == static_cast<size_t>(rows) && first + i + 1 < list.size();
      const Role role = list[first + i]->role;
      const std::string text =
          more ? fmt::format("{:>8} {} more (arrows)", "", list.size() - first - i) : process_row(*list[first + i], c_.width() >= kWide);
      c_.put(0, y_ + 1 + static_cast<int>(i), cut(text, c_.width()),
             more || role == Role::other                ? Tone::dim
             : role == Role::main || role == Role::rank ? Tone::bold
                                                        : Tone::plain);
    }
    y_ += rows;
  }

  // An alert and what to do about it, each over as many rows as its words need, at most three.
  std::vector<std::pair<std::string, Tone>> alert_lines() const {
    std::vector<std::pair<std::string, Tone>> lines;
    const auto wrapped = [&](const std::string& text, const std::string& first, int indent, Tone tone) {
      std::string line = first;
      int columns = indent, rows = 0;
      for (const std::string& word : split_at(text, ' ')) {
        if (columns + static_cast<int>(word.size()) >= c_.width() && rows < 2) {
          lines.emplace_back(line, tone);
          line = std::string(static_cast<size_t>(indent), ' ');
          columns = indent;
          ++rows;
        }
        line += word + " ";
        columns += static_cast<int>(word.size()) + 1;
      }
      lines.emplace_back(line, tone);
    };
    for (const Alert& a : judge_.alerts()) {
      wrapped(a.text, a.level == Level::note ? "- " : "! ", 2, tone_of(a.level));
      for (const std::string& advice : a.advice) wrapped(advice, glyph("  → ", "  > "), 4, Tone::plain);
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
    static const std::pair<const char*, const char*> kKeys[] = {{"q", "quit"},        {"Tab", "plot"}, {"+/-", "time"}, {"s", "sort"},
                                                                {"arrows", "scroll"}, {"p", "pause"},  {"h", "help"}};
    int x = 0;
    for (const auto& [key, what] : kKeys) {
      x = c_.put(x, c_.height() - 1, key, Tone::selected);
      x = c_.put(x, c_.height() - 1, fmt::format(" {}  ", what), Tone::dim);
    }
  }

  void help() {
    const char* lines[] = {"Tab, Shift-Tab  the next or last plot: each device, the run, main, workers, /dev/shm, steps",
                           "+ and -         a shorter or longer time in the plots",
                           "s               processes by size, or main and workers first",
                           "up, down        scroll the processes",
                           "p               pause: the screen stands still, watching goes on",
                           "q, Ctrl-C       end; the run goes on",
                           "",
                           "RSS     resident pages; those of forked workers are counted in each of them",
                           "PSS     the same with shared pages divided among those who share them: these add up",
                           "shared  resident pages that another process maps too",
                           "pinned  pages that the kernel may not move or swap",
                           "limit   the tightest control group above the process"};
    for (const char* line : lines) c_.put(0, ++y_, line);
    c_.put(0, ++y_,
           glyph("■ this run   ▪ other processes   ┆ ┄ predicted for this job (docs/watch.md: where it is read)",
                 "| this run   : other processes   ! = predicted for this job (docs/watch.md: where it is read)"));
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

}  // namespace plimsoll
