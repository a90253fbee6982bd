#include "watch/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "util/text.h"

namespace plimsoll {

namespace {

constexpr double kLinger = 10;        // seconds after which an alert that no rule repeats is over
constexpr double kBetweenGrowth = 5;  // seconds between two looks for leaks
constexpr double kAfterEpoch = 40;    // seconds after the first epoch in which none is looked for
constexpr double kStarting = 600;     // seconds in which a run may still start
constexpr double kLoading = 0.1;      // of its growth, in pages of programs and libraries: it starts
constexpr int kTimesGrowing = 4;      // looks in a row that must see it
constexpr double kLoadWindow = 30;    // seconds over which the loads of workers are averaged
constexpr double kBusyWorkers = 0.85, kIdleWorkers = 0.15, kWaitingMain = 0.5, kIdleDevice = 0.5;
constexpr double kRoom = 0.6;          // of a device: more of it could be used
constexpr double kSwapping = 4 << 20;  // bytes a second, in and out
constexpr double kFullPressure = 0.10, kSomePressure = 0.40;

double ratio(Bytes part, Bytes whole) { return whole.count > 0 ? static_cast<double>(part.count) / static_cast<double>(whole.count) : 0; }

Bytes rounded(double bytes) { return {static_cast<int64_t>(std::llround(bytes))}; }

std::string percent(double share) { return fmt::format("{:.0f} %", share * 100); }

bool trains(const ProcessSample& p) { return p.role == Role::main || p.role == Role::rank; }

void add_to(std::optional<Bytes>& sum, const std::optional<Bytes>& b) {
  if (b) sum = sum.value_or(Bytes{0}) + *b;
}

void raise(std::optional<Bytes>& peak, const std::optional<Bytes>& b) {
  if (b) peak = std::max(peak.value_or(Bytes{0}), *b);
}

}  // namespace

const char* to_string(Level level) { return level == Level::note ? "note" : level == Level::warning ? "warning" : "critical"; }

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(std::max(0.0, seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return s % 60 ? fmt::format("{} min {} s", s / 60, s % 60) : fmt::format("{} min", s / 60);
  if (s < 48 * 3600) return fmt::format("{} h {} min", s / 3600, s / 60 % 60);
  return fmt::format("{} days", s / 86400);
}

const Series* Judge::find(const std::string& name) const {
  const auto found = series_.find(name);
  return found == series_.end() ? nullptr : &found->second;
}

size_t Judge::workers() const {
  return static_cast<size_t>(
      std::count_if(now_.processes.begin(), now_.processes.end(), [](const auto& p) { return p.role == Role::worker; }));
}

void Judge::keep(const Sample& s) {
  const auto plot = [&](const std::string& name, const std::optional<Bytes>& b) {
    if (b) series_[name].add(s.time, static_cast<double>(b->count));
  };
  std::optional<Bytes> tree, main, main_own, workers, code;
  std::vector<int64_t> pids;
  double worker_load = 0, main_load = 0, main_cpu = 0;
  for (const ProcessSample& p : s.processes) {
    add_to(tree, p.weight());
    if (trains(p)) {
      add_to(main, p.rss);
      add_to(main_own, p.anonymous ? p.anonymous : p.rss);
      if (p.rss && p.anonymous) add_to(code, *p.rss - *p.anonymous - p.shmem.value_or(Bytes{0}));
      main_load = std::max(main_load, p.load());
      main_cpu += p.cpu;
    }
    if (p.role != Role::worker) continue;
    add_to(workers, p.weight());
    worker_load += std::min(1.0, p.load());
    pids.push_back(p.pid);
  }
  if (pids != worker_pids_) loads_["workers"].clear();
  worker_pids_ = pids;
  if (!pids.empty()) {
    plot("workers", workers);
    loads_["workers"].add(s.time, worker_load / static_cast<double>(pids.size()));
  }
  if (!s.processes.empty()) {
    loads_["main"].add(s.time, main_load);
    if (code) code_.add(s.time, static_cast<double>(code->count));
    work_.add(s.time, work_.last() + main_cpu * (work_.empty() ? 0 : s.time - work_.points().back().time));
  }
  plot("run", tree);
  plot("main", main);
  plot("main own", main_own);
  plot("/dev/shm", s.host.shm_used);
  if (s.host.limit_used && s.host.limit && s.host.limit == s.host.capacity())
    plot("host", s.host.limit_used);
  else if (s.host.total && s.host.available)
    plot("host", *s.host.total - *s.host.available);
  for (const DeviceSample& d : s.devices) {
    plot(fmt::format("device {}", d.index), d.used ? d.used : d.ours);
    plot(fmt::format("device {} own", d.index), d.ours);
    if (d.busy) loads_[fmt::format("device {}", d.index)].add(s.time, *d.busy);
    if (d.ours) peaks_.devices[d.index] = std::max(peaks_.devices[d.index], *d.ours);
  }
  if (s.steps && s.steps->rate) series_["steps/s"].add(s.time, *s.steps->rate);
  keep_process(s);
  raise(peaks_.tree, tree);
  raise(peaks_.main, main);
  raise(peaks_.workers, workers);
  raise(peaks_.shm, s.host.shm_used);
}

// What one rank holds, which is what is predicted: on one device, or on several with a rank each.
void Judge::keep_process(const Sample& s) {
  const auto processes =
      std::count_if(s.processes.begin(), s.processes.end(), [](const auto& p) { return p.device && p.device->count > 0; });
  const auto devices = std::count_if(s.devices.begin(), s.devices.end(), [](const auto& d) { return d.ours && d.ours->count > 0; });
  if (processes != devices) one_each_ = false, peaks_.process.reset();
  if (one_each_)
    for (const ProcessSample& p : s.processes) raise(peaks_.process, p.device);
}

void Judge::add(const Sample& sample) {
  if (began_ == 0) began_ = sample.time;
  now_ = sample;
  keep(sample);
  std::vector<Finding> found;
  full_devices(found);
  full_host(found);
  full_shm(found);
  growth(found);
  thrashing(found);
  loader(found);
  others(found);
  beside_prediction(found);
  room(found);
  kills(found);
  settle(std::move(found));
}

// An alert begins when its rule has held for as long as it asks, and ends a while after it no longer does.
void Judge::settle(std::vector<Finding> findings) {
  changes_.clear();
  for (Finding& f : findings) {
    State& state = states_[f.alert.id];
    if (state.last == 0 || now_.time - state.last > kLinger) state.first = now_.time;
    state.last = now_.time;
    const bool worse = state.raised && f.alert.level > state.alert.level;
    f.alert.since = state.first;
    state.alert = std::move(f.alert);
    const bool due = now_.time - state.first >= f.after;
    if ((due && !state.raised) || worse) changes_.push_back({true, state.alert});
    state.raised |= due;
  }
  alerts_.clear();
  for (auto it = states_.begin(); it != states_.end();) {
    const State& state = it->second;
    if (now_.time - state.last > kLinger) {
      if (state.raised) changes_.push_back({false, state.alert});
      it = states_.erase(it);
      continue;
    }
    if (state.raised) alerts_.push_back(state.alert);
    ++it;
  }
  std::stable_sort(alerts_.begin(), alerts_.end(), [](const Alert& a, const Alert& b) { return a.level > b.level; });
}

void Judge::full_devices(std::vector<Finding>& found) const {
  for (const DeviceSample& d : now_.devices) {
    if (!d.total || !d.used || d.unified || ratio(*d.used, *d.total) < thresholds_.warning) continue;
    Alert a{fmt::format("device-full:{}", d.index), level_of(ratio(*d.used, *d.total)), "", {}, 0};
    a.text =
        fmt::format("device {} is {} full: {} of {}", d.index, percent(ratio(*d.used, *d.total)), to_string(*d.used), to_string(*d.total));
    Bytes theirs;
    for (const OtherProcess& o : d.others) theirs += o.used.value_or(Bytes{0});
    if (theirs.count > 0) a.advice.push_back(fmt::format("other processes hold {} of it", to_string(theirs)));
    a.advice.push_back("a smaller batch, or activation checkpointing: `plimsoll plan` finds the cheapest change that fits");
    found.push_back({std::move(a), 3});
  }
}

std::vector<std::string> Judge::host_advice() const {
  std::vector<std::string> out;
  const size_t n = workers();
  Bytes own;
  std::optional<Bytes> pinned;
  for (const ProcessSample& p : now_.processes) {
    if (p.role == Role::worker) own += (p.own ? p.own : p.weight()).value_or(Bytes{0});
    add_to(pinned, p.pinned);
  }
  if (n > 0) {
    const auto each = Bytes{own.count / static_cast<int64_t>(n)};
    const auto busy = loads_.contains("workers") ? loads_.at("workers").mean(now_.time - kLoadWindow) : std::nullopt;
    out.push_back(fmt::format("workers down: each of {} holds {} of its own{}; num_workers={} saves {}", n, to_string(each),
                              busy ? fmt::format(" and is busy {} of the time", percent(*busy)) : "", n / 2,
                              to_string(Bytes{each.count * static_cast<int64_t>(n - n / 2)})));
  }
  if (now_.host.shm_used && now_.host.shm_used->count > 256 << 20)
    out.push_back(fmt::format("fewer batches ahead: /dev/shm, which is memory, holds {}; prefetch_factor=1 halves it",
                              to_string(*now_.host.shm_used)));
  if (pinned && pinned->count > 256 << 20) out.push_back(fmt::format("pin_memory=False: {} are pinned", to_string(*pinned)));
  out.push_back("a cache in memory belongs on disk (memory-mapped files: the kernel can take them back)");
  return out;
}

void Judge::full_host(std::vector<Finding>& found) const {
  const auto capacity = now_.host.capacity(), left = now_.host.left();
  if (!capacity || !left) return;
  const double share = 1 - ratio(*left, *capacity);
  if (share < thresholds_.warning) return;
  const bool group = now_.host.limit && now_.host.limit == capacity;
  const bool pool = std::any_of(now_.devices.begin(), now_.devices.end(), [](const DeviceSample& d) { return d.unified; });
  Alert a{"memory", level_of(share), "", host_advice(), 0};
  a.text = fmt::format("{} left of {} in {}{}", to_string(*left), to_string(*capacity), group ? "the control group" : "this machine",
                       pool ? ", one pool for device and host" : "");
  found.push_back({std::move(a), 3});
}

void Judge::full_shm(std::vector<Finding>& found) const {
  const HostSample& h = now_.host;
  if (!h.shm_total || !h.shm_used || ratio(*h.shm_used, *h.shm_total) < thresholds_.warning) return;
  Alert a{"shm-full", level_of(ratio(*h.shm_used, *h.shm_total)), "", {}, 0};
  a.text = fmt::format("/dev/shm is {} full: {} of {}; the next batch of a worker may end with a bus error",
                       percent(ratio(*h.shm_used, *h.shm_total)), to_string(*h.shm_used), to_string(*h.shm_total));
  a.advice = {"a larger one: docker run --shm-size, or mount -o remount,size=... /dev/shm", "prefetch_factor=1, or fewer workers"};
  found.push_back({std::move(a), 3});
}

namespace {

struct LeakPlace {
  std::string id, series, who;
  std::vector<std::string> advice;
};

std::vector<LeakPlace> leak_places(const std::vector<DeviceSample>& devices) {
  std::vector<LeakPlace> out{
      {"leak:main",
       "main own",
       "the main process",
       {"look for what every step keeps: losses.append(loss) keeps the graph, loss.item() does not; outputs and "
        "batches in lists; hooks; a logger's buffer"}},
      {"leak:workers",
       "workers",
       "the workers together",
       {"a dataset that keeps what it read: a cache without bound, open files",
        "Python lists that forked workers read are copied page by page: use one numpy array or tensor",
        "workers down, or persistent_workers=False: they start anew each epoch"}},
      {"leak:shm", "/dev/shm", "/dev/shm", {"batches that are kept stay in shared memory: copy what is needed of them (tensor.clone())"}}};
  for (const DeviceSample& d : devices)
    out.push_back({fmt::format("leak:device:{}", d.index),
                   fmt::format("device {} own", d.index),
                   fmt::format("the run's memory on device {}", d.index),
                   {"look for tensors that every step keeps: loss without .item(), outputs in lists, a metric's state on the device",
                    "variable lengths fragment: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"}});
  return out;
}

}  // namespace

// Imports map programs and libraries while they fill the heap; on a machine that is shared by many they take minutes.
bool Judge::starts(const Growth& growth) const {
  if (now_.time - growth.window > began_ + kStarting) return false;
  const std::vector<Series::Block> halves = code_.blocks(now_.time, growth.window / 2, 2);
  return halves.size() == 2 && halves[1].high - halves[0].low > kLoading * growth.grown;
}

void Judge::growth(std::vector<Finding>& found) {
  // What the first epoch collected is gone with its end, and evidence starts anew.
  const int64_t rounds = now_.steps ? now_.steps->rounds : 0;
  if (rounds_ == 0 && rounds > 0) leaks_.clear(), next_growth_ = now_.time + kAfterEpoch;
  rounds_ = rounds;
  const bool look = now_.time >= next_growth_;
  if (look) next_growth_ = now_.time + kBetweenGrowth;
  for (const LeakPlace& place : leak_places(now_.devices)) {
    const Series* series = find(place.series);
    if (!series || series->empty()) continue;
    if (look) {
      auto growth = steady_growth(*series, now_.time, &work_);
      if (growth && place.id == "leak:main" && starts(*growth)) growth.reset();
      Leak& leak = leaks_[place.id];
      if (growth) {
        leak = {*growth, now_.time, leak.times + 1};
      } else if (leak.times > 0) {
        // Once found it stays until the level stands still; one look that is less clear does not end it.
        const double before = now_.time - leak.growth.window / 2;
        const auto blocks = series->blocks(now_.time, leak.growth.window / 2, 2);
        const bool grows = blocks.size() == 2 && blocks[1].low - blocks[0].low > 0.2 * leak.growth.slope * (now_.time - before);
        if (leak.times < kTimesGrowing ? --leak.times == 0 : !grows) leaks_.erase(place.id);
      }
    }
    const auto leak = leaks_.find(place.id);
    if (leak == leaks_.end() || leak->second.times < kTimesGrowing) continue;
    const Growth& g = leak->second.growth;
    std::optional<Bytes> left = now_.host.left();
    if (place.id == "leak:shm" && now_.host.shm_total && now_.host.shm_used)
      left = std::min(left.value_or(*now_.host.shm_total), *now_.host.shm_total - *now_.host.shm_used);
    for (const DeviceSample& d : now_.devices)
      if (place.id == fmt::format("leak:device:{}", d.index) && d.total && d.used && !d.unified) left = *d.total - *d.used;
    const double until = left ? static_cast<double>(left->count) / g.slope : -1;
    // An epoch that collects something and lets it go at its end looks the same until then. Where the log tells its end, that will tell.
    const auto& steps = now_.steps;
    bool collects = false;
    if (steps && steps->rounds == 0 && steps->total && steps->rate && *steps->rate > 0 && g.window < 900) {
      const double rest = static_cast<double>(*steps->total - steps->step) / *steps->rate;
      collects = rest > 0 && rest < 600 && (until < 0 || rest < until);
    }
    const std::string a_step =
        steps && steps->rate && *steps->rate > 0 ? fmt::format(", {} a step", to_string(rounded(g.slope / *steps->rate))) : "";
    Alert a{place.id, collects ? Level::note : until >= 0 && until < 600 ? Level::critical : Level::warning, "", place.advice, 0};
    a.text = fmt::format("{}: {} grew by {} in {} under the saw-tooth of its steps, {} a minute{}",
                         collects ? "a leak, or what this epoch collects" : "leak", place.who, to_string(rounded(g.grown)),
                         duration_text(g.window), to_string(rounded(g.slope * 60)), a_step);
    if (until >= 0) a.text += fmt::format("; at this pace memory ends in {}", duration_text(until));
    found.push_back({std::move(a), 0});
  }
}

void Judge::thrashing(std::vector<Finding>& found) const {
  const HostSample& h = now_.host;
  const bool pressed = h.pressure_full.value_or(0) >= kFullPressure || h.pressure_some.value_or(0) >= kSomePressure;
  const bool swapping = h.swap_in >= kSwapping && h.swap_out >= kSwapping;
  if (!pressed && !swapping) return;
  Alert a{"thrashing", h.pressure_full.value_or(0) >= 2 * kFullPressure ? Level::critical : Level::warning, "", host_advice(), 0};
  a.text = "thrashing: ";
  if (h.pressure_full)
    a.text += fmt::format("everything waits for memory {} of the time, something {}", percent(*h.pressure_full),
                          percent(h.pressure_some.value_or(0)));
  if (swapping)
    a.text += fmt::format("{}{} a second come from swap, {} go there", h.pressure_full ? "; " : "", to_string(rounded(h.swap_in)),
                          to_string(rounded(h.swap_out)));
  if (h.refaults > kSwapping) a.text += fmt::format("; {} a second are read again after they were dropped", to_string(rounded(h.refaults)));
  found.push_back({std::move(a), 5});
}

// Who waits for whom: workers that are always busy before a main process and a device that are not starve them; idle ones are too many.
void Judge::loader(std::vector<Finding>& found) const {
  const size_t n = workers();
  const auto mean = [&](const std::string& name) {
    const auto load = loads_.find(name);
    return load == loads_.end() ? std::nullopt : load->second.mean(now_.time - kLoadWindow);
  };
  const auto busy = mean("workers"), main = mean("main");
  if (n == 0 || !busy || !main) return;
  double device = 0;
  for (const DeviceSample& d : now_.devices) device = std::max(device, mean(fmt::format("device {}", d.index)).value_or(0));
  const std::string rate = now_.steps && now_.steps->rate ? fmt::format(" at {:.2f} steps/s", *now_.steps->rate) : "";
  if (*busy >= kBusyWorkers && *main <= kWaitingMain && device <= kIdleDevice) {
    Alert a{"starving", Level::warning, "", {}, 0};
    a.text = fmt::format("the loader starves the run{}: {} workers are busy {} of the time, the main process {}{}", rate, n, percent(*busy),
                         percent(*main), now_.devices.empty() ? "" : fmt::format(", the device {}", percent(device)));
    double blocked = 0;
    Bytes own;
    for (const ProcessSample& p : now_.processes)
      if (p.role == Role::worker) blocked += p.blocked / static_cast<double>(n), own += (p.own ? p.own : p.weight()).value_or(Bytes{0});
    const auto idle = static_cast<int64_t>(now_.host.idle_cpus.value_or(0) + 0.25);
    if (blocked > 0.3)
      a.advice.push_back(
          fmt::format("workers wait for the disk {} of the time: a faster one, or larger files read in order", percent(blocked)));
    if (idle >= 1)
      a.advice.push_back(fmt::format("workers up: {} of {} cores are idle; each worker holds {} of its own", idle, now_.host.cpus,
                                     to_string(Bytes{own.count / static_cast<int64_t>(n)})));
    else
      a.advice.push_back(fmt::format("no core of {} is idle: more workers do not help; decode once and keep the result in a cache on disk",
                                     now_.host.cpus));
    a.advice.push_back("cheaper items: smaller images before they are decoded, fewer augmentations, or augmentations on the device");
    found.push_back({std::move(a), 10});
  } else if (n >= 2 && *busy <= kIdleWorkers && (*main > kWaitingMain || device > kIdleDevice)) {
    const auto enough = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(static_cast<double>(n) * *busy / 0.6)));
    if (enough >= static_cast<int64_t>(n)) return;
    Bytes own;
    for (const ProcessSample& p : now_.processes)
      if (p.role == Role::worker) own += (p.own ? p.own : p.weight()).value_or(Bytes{0});
    Alert a{"idle-workers", Level::note, "", {}, 0};
    a.text = fmt::format("{} workers are busy {} of the time{}", n, percent(*busy), rate);
    a.advice = {fmt::format("workers down: num_workers={} would do and saves {}", enough,
                            to_string(rounded(static_cast<double>(own.count) * static_cast<double>(static_cast<int64_t>(n) - enough) /
                                              static_cast<double>(n))))};
    found.push_back({std::move(a), 30});
  }
}

void Judge::others(std::vector<Finding>& found) const {
  constexpr int64_t kSmall = 32 << 20;  // less than any context: a monitor, a display server's stub
  for (const DeviceSample& d : now_.devices) {
    std::vector<std::string> names;
    Bytes sum;
    bool unknown = false;
    for (const OtherProcess& o : d.others) {
      if (o.used && o.used->count < kSmall) continue;
      unknown |= !o.used;
      sum += o.used.value_or(Bytes{0});
      names.push_back(fmt::format("{} ({}){}", o.name, o.pid, o.used ? " " + to_string(*o.used) : ""));
    }
    if (names.empty() || now_.processes.empty()) continue;  // of a device that is watched for itself, all are what is watched
    const double share = d.total ? ratio(sum, *d.total) : 0;
    Alert a{fmt::format("others:{}", d.index), share > 0.1 ? Level::warning : Level::note, "", {}, 0};
    a.text = fmt::format("other processes on device {}: {}{}", d.index, join(names, ", "),
                         unknown ? " (the driver does not say how much of some)" : "");
    a.advice = {"they compete for memory and time: stop them, or choose another device with CUDA_VISIBLE_DEVICES"};
    found.push_back({std::move(a), 3});
  }
}

void Judge::beside_prediction(std::vector<Finding>& found) const {
  if (!prediction_ || !prediction_->device) return;
  for (const ProcessSample& p : now_.processes) {
    if (!p.device || !trains(p) || *p.device <= prediction_->device->high) continue;
    Alert a{"above-prediction", Level::warning, "", {}, 0};
    a.text = fmt::format("process {} holds {} on the device, more than the {} that were predicted at most for {}", p.pid,
                         to_string(*p.device), to_string(prediction_->device->high), prediction_->model);
    a.advice = {"the run is not the job that was read (" + prediction_->source + "): `plimsoll explain` shows what was understood of it"};
    found.push_back({std::move(a), 10});
  }
}

void Judge::room(std::vector<Finding>& found) const {
  constexpr double kSettled = 120;  // seconds
  if (now_.time - began_ < kSettled) return;
  if (now_.steps && now_.steps->seen < 10) return;
  for (const DeviceSample& d : now_.devices) {
    const Series* series = find(fmt::format("device {}", d.index));
    if (!d.total || !d.ours || d.unified || !series) continue;
    double most = 0;
    for (const Series::Point& p : series->points()) most = std::max(most, p.value);
    const double share = most / static_cast<double>(std::max<int64_t>(1, d.total->count));
    if (share > kRoom || std::any_of(leaks_.begin(), leaks_.end(), [](const auto& l) { return l.second.times >= kTimesGrowing; })) continue;
    Alert a{fmt::format("room:{}", d.index), Level::note, "", {}, 0};
    a.text = fmt::format("device {} was never more than {} full", d.index, percent(share));
    if (prediction_ && prediction_->doubled && prediction_->doubled->high <= *d.total) {
      a.advice = {fmt::format("batch up: {} instead of {} needs {} ({} to {})", 2 * prediction_->batch, prediction_->batch,
                              to_string(prediction_->doubled->bytes), to_string(prediction_->doubled->low),
                              to_string(prediction_->doubled->high))};
    } else {
      a.advice = {"batch up, or less checkpointing: `plimsoll plan` says what fits and how long a step takes then"};
    }
    found.push_back({std::move(a), 0});
  }
}

void Judge::kills(std::vector<Finding>& found) {
  if (first_kills_ < 0) first_kills_ = now_.host.oom_kills;
  if (now_.host.oom_kills <= first_kills_) return;
  Alert a{"oom-kill", Level::critical, "", {}, 0};
  const int64_t n = now_.host.oom_kills - first_kills_;
  a.text = fmt::format("the kernel killed {} process{} for lack of memory since the watch began", n, n == 1 ? "" : "es");
  a.advice = host_advice();
  found.push_back({std::move(a), 0});
}

}  // namespace plimsoll
