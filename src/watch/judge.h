// What samples mean: peaks, series to plot, and alerts with what to do about them. Knows nothing of where samples come from, so a run can
// be judged live and again later, from what was kept of it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "watch/prediction.h"
#include "watch/sample.h"
#include "watch/series.h"

namespace plimsoll {

struct Thresholds {
  double warning = 0.90, critical = 0.97;  // of what there is
};

enum class Level : uint8_t { note, warning, critical };
const char* to_string(Level level);

struct Alert {
  std::string id;  // "leak:main", "device-full:0"
  Level level = Level::note;
  std::string text;
  std::vector<std::string> advice;
  double since = 0;
};

// An alert that began or ended with the last sample.
struct AlertChange {
  bool raised = false;
  Alert alert;
};

struct Peaks {
  std::optional<Bytes> tree, main, workers, shm;  // of the run's processes: their shares where they can be read
  std::map<int, Bytes> devices;                   // of the run, by the device's number
  std::optional<Bytes> process;                   // of one process on its device; none when processes share devices or have several
};

class Judge {
 public:
  explicit Judge(Thresholds thresholds = {}, std::optional<Prediction> prediction = {})
      : thresholds_(thresholds), prediction_(std::move(prediction)) {}

  void add(const Sample& sample);

  const Sample& now() const { return now_; }
  double began() const { return began_; }
  const std::vector<Alert>& alerts() const { return alerts_; }  // the worst first
  const std::vector<AlertChange>& changes() const { return changes_; }
  const Peaks& peaks() const { return peaks_; }
  const std::optional<Prediction>& prediction() const { return prediction_; }
  const Thresholds& thresholds() const { return thresholds_; }

  // What can be plotted: "device 0", "device 0 own", "run", "main", "workers", "host", "/dev/shm", "steps/s".
  const std::map<std::string, Series>& series() const { return series_; }

 private:
  struct Finding {
    Alert alert;
    double after = 0;  // seconds for which it must hold
  };
  struct State {
    Alert alert;
    double first = 0, last = 0;
    bool raised = false;
  };

  void keep(const Sample& s);
  void keep_process(const Sample& s);
  void settle(std::vector<Finding> findings);

  // One rule each; they add to `found`.
  void full_devices(std::vector<Finding>& found) const;
  void full_host(std::vector<Finding>& found) const;
  void full_shm(std::vector<Finding>& found) const;
  void growth(std::vector<Finding>& found);
  bool starts(const Growth& growth) const;  // the main process is still being loaded
  void thrashing(std::vector<Finding>& found) const;
  void loader(std::vector<Finding>& found) const;
  void others(std::vector<Finding>& found) const;
  void beside_prediction(std::vector<Finding>& found) const;
  void room(std::vector<Finding>& found) const;
  void kills(std::vector<Finding>& found);

  Level level_of(double share) const { return share >= thresholds_.critical ? Level::critical : Level::warning; }
  const Series* find(const std::string& name) const;
  size_t workers() const;
  std::vector<std::string> host_advice() const;

  Thresholds thresholds_;
  std::optional<Prediction> prediction_;
  Sample now_;
  double began_ = 0;
  std::map<std::string, Series> series_, loads_;  // loads: what workers, main and devices do, 0 to 1
  Series work_;                                   // what the main processes have used of cores, in seconds
  Series code_;                                   // what they hold of files: programs, libraries, memory-mapped data
  std::vector<int64_t> worker_pids_;
  Peaks peaks_;
  bool one_each_ = true;  // each process that is on a device has one of its own
  std::map<std::string, State> states_;
  std::vector<Alert> alerts_;
  std::vector<AlertChange> changes_;
  struct Leak {
    Growth growth;
    double seen = 0;  // when it was last found
    int times = 0;
  };
  std::map<std::string, Leak> leaks_;
  double next_growth_ = 0;
  int64_t first_kills_ = -1, rounds_ = 0;
};

// "3 h 20 min", "1 min 50 s".
std::string duration_text(double seconds);

}  // namespace plimsoll
