// Watching: trees of /proc and /sys made of folders, stub drivers, logs that rotate, samples that are judged again.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "estimate/calibration.h"
#include "made_up_machine.h"
#include "watch/history.h"
#include "watch/listener.h"
#include "watch/prometheus.h"
#include "watch/view.h"
#include "watch/watcher.h"

namespace plimsoll::watch_test {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;

class Watching : public MadeUpMachine {
 protected:
  void process(int pid, int parent, const std::string& name, const std::string& command, int64_t kib, int64_t ticks = 0,
               int64_t started = 500) {
    const std::string folder = "/proc/" + std::to_string(pid);
    std::string stat = std::to_string(pid) + " (" + name + ") S " + std::to_string(parent);
    for (int field = 5; field <= 52; ++field)
      stat += " " + std::to_string(field == 14 ? ticks : field == 22 ? started : field == 15 ? 0 : 7 * (field == 42));
    file(folder + "/stat", stat);
    std::string words = command;
    std::replace(words.begin(), words.end(), ' ', '\0');
    file(folder + "/cmdline", words + std::string(1, '\0'));
    file(folder + "/comm", name + "\n");
    file(folder + "/status", "Name: " + name + "\nVmLck:\t 4 kB\nVmPin:\t 8 kB\nVmRSS:\t " + std::to_string(kib) + " kB\nRssAnon:\t " +
                                 std::to_string(kib / 2) + " kB\nRssShmem:\t 16 kB\nVmSwap:\t 32 kB\n");
    file(folder + "/smaps_rollup",
         "00400000-7fff ---p 0 00:00 0 [rollup]\nRss: " + std::to_string(kib) + " kB\nPss: " + std::to_string(kib / 4) +
             " kB\nPss_Dirty: 1 kB\nShared_Clean: 100 kB\nShared_Dirty: 20 kB\nPrivate_Clean: 3 kB\nPrivate_Dirty: 4 kB\n");
  }

  static bool says(const std::vector<std::string>& lines, const std::string& part) {
    for (const std::string& line : lines)
      if (line.find(part) != std::string::npos) return true;
    return false;
  }
};

TEST_F(Watching, AProcessAndItsWorkers) {
  process(10, 1, "python3", "python3 train.py", 1000000);
  process(11, 10, "python3", "python3 train.py", 400000);
  process(12, 10, "pt_data_worker", "python3 other", 400000);
  process(13, 10, "python3", "python3 -c from_multiprocessing.resource_tracker", 10000);
  process(14, 10, "python3", "python3 eval.py", 10000);
  process(15, 10, "nvidia-smi", "nvidia-smi", 10);
  process(16, 1, "bash", "bash", 10000);
  ProcessTree tree(s_, 10);
  std::vector<std::string> events;
  const auto list = tree.read(1000, events);
  ASSERT_EQ(list.size(), 6u);
  EXPECT_EQ(list[0].pid, 10);
  const Role roles[] = {Role::main, Role::worker, Role::worker, Role::other, Role::rank, Role::other};
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(list[i].role, roles[i]) << list[i].pid;
  EXPECT_EQ(list[0].rss, (Bytes{1000000 * 1024}));
  EXPECT_EQ(list[0].anonymous, (Bytes{500000 * 1024}));
  EXPECT_EQ(list[0].pss, (Bytes{250000 * 1024}));
  EXPECT_EQ(list[0].shared, (Bytes{120 * 1024}));
  EXPECT_EQ(list[0].own, (Bytes{7 * 1024}));
  EXPECT_EQ(list[0].pinned, (Bytes{12 * 1024}));
  EXPECT_EQ(list[0].swap, (Bytes{32 * 1024}));
  EXPECT_TRUE(events.empty());
  EXPECT_EQ(tree.command(), (std::vector<std::string>{"python3", "train.py"}));
}

TEST_F(Watching, LoadsAreWhatHappenedSince) {
  process(10, 1, "python3", "python3 train.py", 1000, 1000);
  ProcessTree tree(s_, 10);
  std::vector<std::string> events;
  EXPECT_EQ(tree.read(1000, events).at(0).cpu, 0);
  process(10, 1, "python3", "python3 train.py", 1000, 1000 + 3 * sysconf(_SC_CLK_TCK));
  file("/proc/10/schedstat", "5 1000000000 3\n");
  const ProcessSample p = tree.read(1002, events).at(0);
  EXPECT_NEAR(p.cpu, 1.5, 1e-9);
  EXPECT_NEAR(p.queued, 0.5, 1e-9);
}

TEST_F(Watching, AVanishedPidAPidThatIsUsedAgain) {
  EXPECT_THROW(ProcessTree(s_, 10), Error);
  process(10, 1, "python3", "python3 train.py", 1000);
  process(11, 10, "python3", "python3 train.py", 1000);
  ProcessTree tree(s_, 10);
  std::vector<std::string> events;
  EXPECT_EQ(tree.read(1000, events).size(), 2u);
  fs::remove_all(root_ / "proc/11");
  EXPECT_EQ(tree.read(1060, events).size(), 1u);
  EXPECT_TRUE(says(events, "worker 11 is gone"));
  events.clear();
  process(10, 1, "bash", "bash", 1000, 0, 999);
  EXPECT_TRUE(tree.read(1061, events).empty());
  EXPECT_TRUE(tree.ended());
  EXPECT_TRUE(says(events, "its pid is now another process (bash)"));

  process(20, 1, "python3", "python3 train.py", 1000);
  ProcessTree second(s_, 20);
  fs::remove_all(root_ / "proc/20");
  events.clear();
  EXPECT_TRUE(second.read(1000, events).empty());
  EXPECT_TRUE(says(events, "process 20 ended"));
}

TEST_F(Watching, SharesThatMayNotBeRead) {
  process(10, 1, "python3", "python3 train.py", 1000);
  fs::remove(root_ / "proc/10/smaps_rollup");
  ProcessTree tree(s_, 10);
  std::vector<std::string> events;
  const auto list = tree.read(1000, events);
  EXPECT_FALSE(list.at(0).pss);
  EXPECT_EQ(list.at(0).weight(), (Bytes{500 * 1024}));
  EXPECT_TRUE(says(events, "may not be read"));
  events.clear();
  tree.read(1001, events);
  EXPECT_TRUE(events.empty());  // said once
}

TEST_F(Watching, FilesOfProcThatHoldNonsense) {
  for (const char* stat : {"", "10", "10 (", "10 (a) ", "10 (a) S", "x (y) z w v"}) {
    file("/proc/10/stat", stat);
    EXPECT_THROW(ProcessTree(s_, 10), Error) << stat;
  }
  process(10, 1, "a) b (c", "python3", 1000);
  file("/proc/10/status", "VmRSS:\t99999999999999999999 kB\nRssAnon: kB\n");
  file("/proc/10/smaps_rollup", "Pss: -3 kB\n");
  ProcessTree tree(s_, 10);
  std::vector<std::string> events;
  const auto list = tree.read(1000, events);
  EXPECT_EQ(list.at(0).name, "a) b (c");
  EXPECT_FALSE(list.at(0).rss);
  EXPECT_FALSE(list.at(0).anonymous);
}

TEST_F(Watching, WhoWritesALog) {
  file("/train.log", "step 1\n");
  fs::create_directories(root_ / "proc/10/fd");
  fs::create_symlink(fs::canonical(root_ / "train.log"), root_ / "proc/10/fd/1");
  file("/proc/10/fdinfo/1", "pos:\t0\nflags:\t0100000\n");
  EXPECT_FALSE(writer_of(s_, path("train.log")));  // only reads
  file("/proc/10/fdinfo/1", "pos:\t0\nflags:\t0102001\n");
  EXPECT_EQ(writer_of(s_, path("train.log")), 10);
}

TEST_F(Watching, WhoIsBeforeATeeIsFound) {
  file("/train.log", "");
  const auto open = [&](int pid, int fd, const std::string& what, const char* flags) {
    const std::string folder = "proc/" + std::to_string(pid);
    fs::create_directories(root_ / folder / "fd");
    fs::create_symlink(what, root_ / folder / "fd" / std::to_string(fd));
    file("/" + folder + "/fdinfo/" + std::to_string(fd), std::string("pos:\t0\nflags:\t") + flags + "\n");
  };
  file("/proc/31/status", "Name:\ttee\nVmRSS:\t2000 kB\n");
  file("/proc/32/status", "Name:\tpython3\nVmRSS:\t900000 kB\n");
  open(31, 0, "pipe:[4711]", "00");
  open(31, 3, fs::canonical(root_ / "train.log").string(), "0100001");
  EXPECT_EQ(writer_of(s_, path("train.log")), 31);  // nobody is at the other end
  open(32, 1, "pipe:[4711]", "01");
  EXPECT_EQ(writer_of(s_, path("train.log")), 32);
  open(32, 0, "pipe:[4712]", "00");  // yes | python train.py | tee train.log
  file("/proc/33/status", "Name:\tyes\nVmRSS:\t1800 kB\n");
  open(33, 1, "pipe:[4712]", "01");
  EXPECT_EQ(writer_of(s_, path("train.log")), 32);
}

TEST_F(Watching, TheHost) {
  file("/proc/10/cgroup", "0::/job/step\n");
  file("/sys/fs/cgroup/job/memory.max", "17179869184\n");
  file("/sys/fs/cgroup/job/memory.current", "10737418240\n");
  file("/sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 1073741824\nactive_file 1073741824\nshmem 7\n");
  file("/sys/fs/cgroup/job/memory.pressure", "some avg10=12.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=3.25 avg60=0 avg300=0 total=1\n");
  file("/sys/fs/cgroup/job/step/memory.max", "max\n");
  file("/proc/vmstat", "pswpin 100\npswpout 200\noom_kill 3\nworkingset_refault_anon 5\nworkingset_refault_file 6\n");
  file("/proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1\ncpu1 1 1\nintr 5\n");
  HostReader reader(s_, "10");
  HostSample h = reader.read(1000);
  EXPECT_EQ(h.limit, (Bytes{16 * kGiB}));
  EXPECT_EQ(h.limit_used, (Bytes{8 * kGiB}));  // files in memory are given back
  EXPECT_NE(h.limit_source.find("/job/memory.max"), std::string::npos);
  EXPECT_EQ(h.swap_used, (Bytes{512 * 1024}));
  EXPECT_DOUBLE_EQ(h.pressure_some.value(), 0.125);
  EXPECT_DOUBLE_EQ(h.pressure_full.value(), 0.0325);
  EXPECT_EQ(h.oom_kills, 3);
  EXPECT_EQ(h.cpus, 2);
  EXPECT_EQ(h.left(), (Bytes{8 * kGiB}));
  EXPECT_TRUE(h.shm_total);
  file("/proc/vmstat", "pswpin 1100\npswpout 200\noom_kill 3\n");
  file("/proc/stat", "cpu  100 0 150 850 0 0 0 0 0 0\ncpu0 1 1\ncpu1 1 1\nintr 5\n");
  h = reader.read(1010);
  EXPECT_DOUBLE_EQ(h.swap_in, 100.0 * static_cast<double>(sysconf(_SC_PAGESIZE)));
  EXPECT_DOUBLE_EQ(h.idle_cpus.value(), 1.0);
  file("/sys/fs/cgroup/job/step/memory.events", "low 0\noom 1\noom_kill 1\noom_group_kill 0\n");
  EXPECT_EQ(reader.read(1025).oom_kills, 1) << "of its own group, not of the machine";
  file("/proc/11/cgroup", "4:memory:/job\n0::/\n");
  file("/sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(HostReader(s_, "11").read(1000).oom_kills, 2);
  fs::remove_all(root_ / "proc");
  EXPECT_FALSE(reader.read(1030).total);
}

TEST_F(Watching, DevicesAndWhoseTheyAre) {
  file("/nvml",
       "count 2\n0.name NVIDIA GeForce RTX 4090\n0.uuid GPU-a\n0.total 25757220864\n0.reserved 373293056\n0.used 19327352832\n0.busy 93\n"
       "0.processes 10:17179869184,99:1048576000\n0.graphics 98:104857600,10:17179869184\n"
       "1.name NVIDIA GeForce RTX 4090\n1.uuid GPU-b\n1.total 25757220864\n1.used 0\n");
  setenv("PLIMSOLL_STUB_NVML", path("nvml").c_str(), 1);
  s_.nvml = {PLIMSOLL_STUB_NVML_LIBRARY};
  process(10, 1, "python3", "python3 train.py", 1000);
  process(99, 1, "jupyter", "jupyter", 1000);
  const Machine machine = detect(s_);
  Watcher watcher(s_, machine, {10, {}, ""});
  const Sample sample = watcher.look(1000);
  ASSERT_EQ(sample.devices.size(), 2u);
  const DeviceSample& d = sample.devices[0];
  EXPECT_EQ(d.used, Bytes{19327352832});
  EXPECT_EQ(d.ours, (Bytes{16 * kGiB}));
  EXPECT_DOUBLE_EQ(d.busy.value(), 0.93);
  ASSERT_EQ(d.others.size(), 2u);
  EXPECT_EQ(d.others[0].name, "jupyter");
  EXPECT_EQ(d.others[1].pid, 98);
  EXPECT_EQ(sample.processes.at(0).device, (Bytes{16 * kGiB}));
  EXPECT_FALSE(sample.devices[1].ours);

  file("/nvml", "count 2\n0.name x\n0.total !15\n");  // the device falls off the bus
  const Sample lost = watcher.look(1001);
  EXPECT_FALSE(lost.devices[0].answers);
  EXPECT_TRUE(says(lost.events, "device 0 (NVIDIA GeForce RTX 4090) does not answer"));
  EXPECT_THROW(Watcher(s_, machine, {{}, {7}, ""}), Error);
}

TEST_F(Watching, SlicesOfADevice) {
  file("/nvml",
       "count 2\n0.name NVIDIA H100 NVL\n0.uuid GPU-a\n0.total 100000000000\n0.mig 1\n0.slices 7\n0/0.name NVIDIA H100 NVL MIG 1g.12gb\n"
       "0/0.uuid MIG-1\n0/0.total 11542724608\n0/2.name NVIDIA H100 NVL MIG 3g.47gb\n0/2.uuid MIG-2\n0/2.total 49928994816\n"
       "0/2.used 9000000000\n0/2.processes 10:8589934592\n1.name NVIDIA H100 NVL\n1.uuid GPU-b\n1.total 100000000000\n1.mig 0\n1.used 5\n");
  setenv("PLIMSOLL_STUB_NVML", path("nvml").c_str(), 1);
  s_.nvml = {PLIMSOLL_STUB_NVML_LIBRARY};
  process(10, 1, "python3", "python3 train.py", 1000);
  Watcher watcher(s_, detect(s_), {10, {}, ""});
  const Sample sample = watcher.look(1000);
  ASSERT_EQ(sample.devices.size(), 3u) << "two slices and a whole device";
  EXPECT_EQ(sample.devices[1].ours, (Bytes{8 * kGiB}));
  EXPECT_EQ(sample.devices[1].used, Bytes{9000000000});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sample.devices[static_cast<size_t>(i)].index, i) << "each has a number of its own";
}

// The driver tells the host's pid; in the container the same process has another one.
TEST_F(Watching, ProcessesInAContainer) {
  file("/nvml", "count 1\n0.name NVIDIA A10\n0.uuid GPU-a\n0.total 24000000000\n0.used 9000000000\n0.processes 70010:8589934592\n");
  setenv("PLIMSOLL_STUB_NVML", path("nvml").c_str(), 1);
  s_.nvml = {PLIMSOLL_STUB_NVML_LIBRARY};
  process(10, 1, "python3", "python3 train.py", 1000);
  Watcher blind(s_, detect(s_), {10, {}, ""});
  EXPECT_FALSE(blind.look(1000).devices.at(0).ours) << "it has no device open";
  fs::create_directories(root_ / "proc/10/fd");
  fs::create_symlink("/dev/nvidiactl", root_ / "proc/10/fd/4");
  fs::create_symlink("/dev/nvidia0", root_ / "proc/10/fd/5");
  Watcher watcher(s_, detect(s_), {10, {}, ""});
  const Sample sample = watcher.look(1000);
  EXPECT_EQ(sample.devices.at(0).ours, (Bytes{8 * kGiB}));
  EXPECT_TRUE(sample.devices.at(0).others.empty());
}

TEST_F(Watching, ProcessesOnAmdDevices) {
  rocm_library(PLIMSOLL_STUB_ROCM_LIBRARY);
  process(4242, 1, "python3", "python3 train.py", 1000);
  Watcher watcher(s_, detect(s_), {4242, {0}, ""});
  const DeviceSample d = watcher.look(1000).devices.at(0);
  EXPECT_EQ(d.used, Bytes{297795584});
  EXPECT_EQ(d.ours, (Bytes{8 * kGiB}));
  EXPECT_DOUBLE_EQ(d.busy.value(), 0.83);

  // The same without ROCm, from the kernel.
  s_.rocm_smi = {"/nonexistent"};
  file("/sys/class/drm/card0/device/vendor", "0x1002\n");
  file("/sys/class/drm/card0/device/uevent", "PCI_SLOT_NAME=0000:C1:00.0\n");
  file("/sys/class/drm/card0/device/mem_info_vram_total", "17179869184\n");
  file("/sys/bus/pci/devices/0000:c1:00.0/mem_info_vram_used", "4294967296\n");
  file("/sys/bus/pci/devices/0000:c1:00.0/gpu_busy_percent", "41\n");
  file("/proc/4242/fdinfo/5", "drm-pdev:\t0000:c1:00.0\ndrm-client-id:\t7\ndrm-memory-vram:\t2097152 KiB\n");
  Watcher kernel(s_, detect(s_), {4242, {}, ""});
  const DeviceSample k = kernel.look(1000).devices.at(0);
  EXPECT_EQ(k.used, (Bytes{4 * kGiB}));
  EXPECT_EQ(k.ours, (Bytes{2 * kGiB}));
  EXPECT_DOUBLE_EQ(k.busy.value(), 0.41);
}

TEST_F(Watching, ALogThatIsWrittenRotatedAndCut) {
  const std::string log = path("train.log");
  std::ofstream(log) << "Loading weights: 100%|####| 3/3\nepoch 0 step 90/400 loss 2.0\n";
  LogFollower follower(log);
  std::vector<std::string> events;
  follower.read(1000, events);
  EXPECT_EQ(follower.steps(1000)->step, 90);
  EXPECT_EQ(follower.steps(1000)->total, 400);
  EXPECT_FALSE(follower.steps(1000)->rate);
  const auto append = [&](const std::string& text) { std::ofstream(log, std::ios::app) << text; };
  append("epoch 0 step 100/400 loss 2.0\nepoch 0 st");
  follower.read(1010, events);
  append("ep 120/400 loss 2.0\n");
  follower.read(1020, events);
  EXPECT_EQ(follower.steps(1020)->step, 120);
  EXPECT_DOUBLE_EQ(follower.steps(1020)->rate.value(), 2.0);
  EXPECT_DOUBLE_EQ(follower.steps(1060)->rate.value(), 20.0 / 50);  // it fell silent
  EXPECT_TRUE(events.empty());

  append("epoch 0 step 130/400 loss\n");
  fs::rename(log, log + ".1");
  std::ofstream(log) << "epoch 1 step 10/400 loss\n";
  follower.read(1030, events);
  EXPECT_TRUE(says(events, "was rotated"));
  EXPECT_EQ(follower.steps(1030)->step, 10);
  EXPECT_EQ(follower.steps(1030)->seen, 50);
  EXPECT_EQ(follower.steps(1030)->rounds, 1);

  events.clear();
  std::ofstream(log, std::ios::trunc) << "step 11/400\n";
  follower.read(1040, events);
  EXPECT_TRUE(says(events, "was cut"));
  EXPECT_EQ(follower.steps(1040)->step, 11);

  events.clear();
  fs::remove(log);
  follower.read(1050, events);
  follower.read(1051, events);
  EXPECT_EQ(events.size(), 1u);
  EXPECT_TRUE(says(events, "is gone"));
  std::ofstream(log) << "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\nstep 12/400\n";
  events.clear();
  follower.read(1052, events);
  EXPECT_TRUE(says(events, "is there again"));
  EXPECT_TRUE(says(events, "the log says: torch.cuda.OutOfMemoryError"));
  EXPECT_THROW(LogFollower(path("nothing.log")), Error);
  EXPECT_THROW(LogFollower(root_.string()), Error);
}

Sample sample_at(double time, int64_t main, int64_t worker = 100 * kMiB, int workers = 4) {
  Sample s;
  s.time = time;
  s.host.total = Bytes{64 * kGiB};
  s.host.available = Bytes{48 * kGiB - main};
  s.host.shm_total = Bytes{8 * kGiB};
  s.host.shm_used = Bytes{64 * kMiB};
  s.host.cpus = 8;
  s.host.idle_cpus = 4;
  s.processes.push_back({10, 1, 5, Role::main, "python3", 'R', 0.9, 0, Bytes{main}, Bytes{main}, {}, Bytes{main}, {}, {}, {}, {}, {}, 0});
  for (int w = 0; w < workers; ++w)
    s.processes.push_back({20 + w,
                           10,
                           5,
                           Role::worker,
                           "python3",
                           'S',
                           0.4,
                           0,
                           Bytes{worker},
                           Bytes{worker},
                           {},
                           Bytes{worker},
                           {},
                           Bytes{worker},
                           {},
                           {},
                           {},
                           0});
  return s;
}

const Alert* find(const Judge& judge, const std::string& id) {
  for (const Alert& a : judge.alerts())
    if (a.id == id) return &a;
  return nullptr;
}

// Seconds until a leak is told, or none in `seconds`.
std::optional<int> leak_after(int seconds, const std::function<double(int)>& main, const std::function<void(Sample&, int)>& change = {}) {
  Judge judge;
  for (int t = 0; t < seconds; ++t) {
    Sample s = sample_at(1e9 + t, static_cast<int64_t>(main(t)));
    if (change) change(s, t);
    judge.add(s);
    for (const Alert& a : judge.alerts())
      if (a.id.starts_with("leak") && a.level != Level::note) return t;
  }
  return {};
}

double saw(int t, int period, double height) { return height * (t % period) / period; }

TEST(Leaks, AreFoundUnderTheSawTooth) {
  const auto grows = [](int t) { return 2.0 * kGiB + 3.0 * kMiB * t; };
  EXPECT_LT(leak_after(120, grows).value_or(999), 110);
  EXPECT_LT(leak_after(120, [&](int t) { return grows(t) + saw(t, 5, 200.0 * kMiB); }).value_or(999), 118);
  EXPECT_LT(leak_after(120, [&](int t) { return 2.0 * kGiB + 30.0 * kMiB * (t / 10); }).value_or(999), 118);
  const auto flat = [](int) { return 2.0 * kGiB; };
  EXPECT_TRUE(leak_after(120, flat, [](Sample& s, int t) { s.host.shm_used = Bytes{64 * kMiB + t * kMiB}; }));
  EXPECT_TRUE(leak_after(120, flat, [](Sample& s, int t) {
    for (ProcessSample& p : s.processes)
      if (p.role == Role::worker) p.pss = Bytes{100 * kMiB + t * kMiB};
  }));
  EXPECT_TRUE(leak_after(120, flat, [](Sample& s, int t) {
    DeviceSample d;
    d.total = Bytes{24 * kGiB};
    d.ours = d.used = Bytes{8 * kGiB + t * 10 * kMiB};
    s.devices.push_back(d);
  }));
}

// Looks meet steps of less than a second anywhere, so that the floor scatters as much as it rises in a block.
TEST(Leaks, AreFoundUnderQuickSteps) {
  const auto anywhere = [](int t) {
    const double x = std::sin(t * 12.9898) * 43758.5453;
    return x - std::floor(x);
  };
  EXPECT_LT(leak_after(300, [&](int t) { return 1.0 * kGiB + 0.4 * kMiB * t + 30.0 * kMiB * anywhere(t); }).value_or(999), 130);
  EXPECT_FALSE(leak_after(600, [&](int t) { return 1.0 * kGiB + 30.0 * kMiB * anywhere(t); }));
}

// On a crowded machine imports take minutes: the heap grows as by a leak, and libraries are mapped meanwhile.
TEST(Leaks, AreNotImports) {
  const auto imports = [](int t) { return 10.0 * kMiB + 0.9 * kMiB * std::min(t, 140); };
  const auto mapped = [](Sample& s, int t) {
    s.processes[0].rss = *s.processes[0].anonymous + Bytes{30 * kMiB + std::min(t, 140) * kMiB / 3};
  };
  EXPECT_FALSE(leak_after(300, imports, mapped));
  EXPECT_TRUE(leak_after(300, imports));
}

TEST(Leaks, AreNotSeenInHealthyRuns) {
  EXPECT_FALSE(leak_after(600, [](int) { return 2.0 * kGiB; }));
  EXPECT_FALSE(leak_after(600, [](int t) { return 2.0 * kGiB + saw(t, 7, 2.0 * kGiB); }));
  EXPECT_FALSE(leak_after(900, [](int t) { return 2.0 * kGiB + saw(t, 60, 600.0 * kMiB); }));
  EXPECT_FALSE(leak_after(600, [](int t) { return std::min(t, 70) * 200.0 * kMiB + kGiB; }));
  EXPECT_FALSE(leak_after(900, [](int t) { return 3.0 * kGiB + 8.0 * kGiB * (1 - std::exp(-t / 80.0)); }));
  EXPECT_FALSE(leak_after(900, [](int t) { return 3.0 * kGiB + 300.0 * kMiB * std::log1p(t / 5.0); }));
  EXPECT_FALSE(leak_after(
      600, [](int) { return 2.0 * kGiB; }, [](Sample& s, int t) {  // workers that start anew
        for (ProcessSample& p : s.processes)
          if (p.role == Role::worker) p.pid += t / 60 * 10, p.pss = Bytes{100 * kMiB + t % 60 * 3 * kMiB};
      }));
}

TEST(Leaks, WhatAnEpochCollectsIsANoteUntilItEnds) {
  Judge judge;
  bool noted = false;
  for (int t = 0; t < 700; ++t) {
    Sample s = sample_at(1e9 + t, 2 * kGiB + t % 200 * 3 * kMiB);
    s.steps = StepSample{t % 200 * 2, 400, 2 * t, 2.0, t / 200};
    judge.add(s);
    for (const Alert& a : judge.alerts()) {
      EXPECT_EQ(a.level, Level::note) << t << " " << a.text;
      noted |= a.id == "leak:main";
    }
  }
  EXPECT_TRUE(noted);
}

TEST(Leaks, SayWhenMemoryEndsAndAreOverWhenItStops) {
  Judge judge;
  for (int t = 0; t < 120; ++t) judge.add(sample_at(1e9 + t, 2 * kGiB + t * 3 * kMiB));
  const Alert* leak = find(judge, "leak:main");
  ASSERT_TRUE(leak);
  EXPECT_NE(leak->text.find("0.18 GiB a minute"), std::string::npos) << leak->text;
  EXPECT_NE(leak->text.find("memory ends in 4 h"), std::string::npos) << leak->text;
  for (int t = 120; t < 400; ++t) judge.add(sample_at(1e9 + t, 2 * kGiB + 120 * 3 * kMiB));
  EXPECT_FALSE(find(judge, "leak:main"));
}

TEST(Alerts, FullMemoryAndWhatToDo) {
  Judge judge;
  for (int t = 0; t < 10; ++t) {
    Sample s = sample_at(1e9 + t, kGiB, 2 * kGiB);
    s.host.available = Bytes{3 * kGiB};
    judge.add(s);
  }
  const Alert* a = find(judge, "memory");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->level, Level::warning);
  EXPECT_NE(a->advice.at(0).find("num_workers=2 saves 4.00 GiB"), std::string::npos) << a->advice[0];
  Sample s = sample_at(1e9 + 10, kGiB);
  s.host.available = Bytes{kGiB};
  judge.add(s);
  EXPECT_EQ(find(judge, "memory")->level, Level::critical);
  EXPECT_EQ(judge.changes().size(), 1u);  // it became worse
  for (int t = 11; t < 30; ++t) judge.add(sample_at(1e9 + t, kGiB));
  EXPECT_FALSE(find(judge, "memory"));
}

TEST(Alerts, AStarvingLoaderAndIdleWorkers) {
  const auto judged = [](double worker, double main, double idle) {
    Judge judge;
    for (int t = 0; t < 90; ++t) {
      Sample s = sample_at(1e9 + t, kGiB);
      for (ProcessSample& p : s.processes) p.cpu = p.role == Role::worker ? worker : main;
      s.host.idle_cpus = idle;
      judge.add(s);
    }
    return judge;
  };
  const Judge starving = judged(0.97, 0.2, 3);
  ASSERT_TRUE(find(starving, "starving"));
  EXPECT_NE(find(starving, "starving")->advice.at(0).find("workers up: 3 of 8 cores are idle"), std::string::npos);
  const Judge crowded = judged(0.97, 0.2, 0);
  ASSERT_TRUE(find(crowded, "starving"));
  EXPECT_NE(find(crowded, "starving")->advice.at(0).find("cache on disk"), std::string::npos);
  EXPECT_FALSE(find(judged(0.97, 0.9, 0), "starving"));
  EXPECT_FALSE(find(judged(0.5, 0.2, 3), "starving"));
  const Judge idle = judged(0.03, 0.9, 3);
  ASSERT_TRUE(find(idle, "idle-workers"));
  EXPECT_NE(find(idle, "idle-workers")->advice.at(0).find("num_workers=1"), std::string::npos);
}

TEST(Alerts, ThrashingKillsOthersAndPredictions) {
  Prediction p;
  p.model = "gpt2";
  p.source = "--run gpt2";
  p.batch = 8;
  p.device = ByteRange{{10 * kGiB}, {9 * kGiB}, {11 * kGiB}};
  p.doubled = ByteRange{{12 * kGiB}, {11 * kGiB}, {13 * kGiB}};
  Judge judge({}, p);
  for (int t = 0; t < 150; ++t) {
    Sample s = sample_at(1e9 + t, kGiB);
    s.host.pressure_full = 0.3;
    s.host.pressure_some = 0.5;
    s.host.oom_kills = t >= 5 ? 1 : 0;
    s.processes[0].device = Bytes{12 * kGiB};
    DeviceSample d;
    d.total = Bytes{24 * kGiB};
    d.used = Bytes{13 * kGiB};
    d.ours = Bytes{12 * kGiB};
    d.others = {{77, "jupyter", Bytes{kGiB}}, {78, "Xorg", Bytes{4 * kMiB}}, {79, "hidden", {}}};
    s.devices.push_back(d);
    judge.add(s);
  }
  ASSERT_TRUE(find(judge, "thrashing"));
  EXPECT_EQ(find(judge, "thrashing")->level, Level::critical);
  EXPECT_TRUE(find(judge, "oom-kill"));
  ASSERT_TRUE(find(judge, "others:0"));
  EXPECT_NE(find(judge, "others:0")->text.find("jupyter (77) 1.00 GiB, hidden (79)"), std::string::npos) << find(judge, "others:0")->text;
  EXPECT_TRUE(find(judge, "above-prediction"));
  ASSERT_TRUE(find(judge, "room:0"));
  EXPECT_NE(find(judge, "room:0")->advice.at(0).find("batch up: 16 instead of 8 needs 12.00 GiB"), std::string::npos);
  EXPECT_EQ(judge.alerts().front().level, Level::critical);  // the worst first
}

TEST(Alerts, DurationsAsPeopleSayThem) {
  EXPECT_EQ(duration_text(-1), "0 s");
  EXPECT_EQ(duration_text(59), "59 s");
  EXPECT_EQ(duration_text(110), "1 min 50 s");
  EXPECT_EQ(duration_text(3 * 3600 + 1200), "3 h 20 min");
  EXPECT_EQ(duration_text(90 * 3600), "3 days");
}

TEST(Samples, ComeBackAsTheyWere) {
  Sample s = sample_at(1e9 + 0.25, 3 * kGiB);
  s.steps = StepSample{5, 10, 5, 0.5, 1};
  s.events = {"a \"quoted\" event"};
  DeviceSample d;
  d.index = 3;
  d.name = "card";
  d.total = Bytes{5};
  d.busy = 0.5;
  d.others = {{7, "x", {}}};
  s.devices.push_back(d);
  const auto json = sample_json(s);
  EXPECT_EQ(sample_json(sample_of(nlohmann::json::parse(json.dump()))).dump(), json.dump());
  for (const char* bad : {"[]", "3", "{}", R"({"time": "x"})", R"({"time": 1, "processes": {}})", R"({"time": 1, "processes": [3]})",
                          R"({"time": 1, "processes": [{"pid": "x"}]})", R"({"time": 1, "devices": [{"used_bytes": 1.5}]})"})
    EXPECT_THROW(sample_of(nlohmann::json::parse(bad)), Error) << bad;
}

TEST_F(Watching, AHistoryIsKeptAndJudgedAgain) {
  const std::string name = path("run.db");
  {
    History history(name, "process 10");
    Judge judge;
    for (int t = 0; t < 125; ++t) {
      judge.add(sample_at(1e9 + t, 2 * kGiB + t * 3 * kMiB));
      EXPECT_EQ(history.keep(judge), "");
    }
  }
  Judge again;
  int looks = 0;
  read_samples(name, [&](const Sample& s) { again.add(s), ++looks; });
  EXPECT_EQ(looks, 125);
  EXPECT_TRUE(find(again, "leak:main"));
  {
    History second(name, "process 11");  // a second session of the same file
    Judge judge;
    judge.add(sample_at(2e9, kGiB));
    second.keep(judge);
  }
  looks = 0;
  read_samples(name, [&](const Sample& s) { ++looks; });
  EXPECT_EQ(looks, 1);

  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(name.c_str(), &db), SQLITE_OK);
  sqlite3_exec(db, "PRAGMA user_version = 9", nullptr, nullptr, nullptr);
  sqlite3_close(db);
  try {
    History newer(name, "");
    FAIL() << "a newer file was opened";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("newer plimsoll (format 9"), std::string::npos) << e.what();
  }
  file("/text.db", "this is no database, though it is long enough to be taken for one: " + std::string(600, 'x'));
  EXPECT_THROW(History(path("text.db"), ""), Error);
  EXPECT_THROW(History(path("no/such/folder.db"), ""), Error);
  EXPECT_THROW(read_samples(path("text.db"), [](const Sample&) {}), Error);
  EXPECT_THROW(read_samples(path("nothing"), [](const Sample&) {}), Error);
}

TEST_F(Watching, AHistoryThatCannotGrowIsSaidOnce) {
  const std::string name = path("run.db");
  { History made(name, ""); }
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(name.c_str(), &db), SQLITE_OK);
  History history(name, "");
  sqlite3_exec(db, "DROP TABLE look", nullptr, nullptr, nullptr);  // as if the disk refused
  Judge judge;
  judge.add(sample_at(1e9, kGiB));
  EXPECT_NE(history.keep(judge).find("watching goes on without it"), std::string::npos);
  EXPECT_EQ(history.keep(judge), "");
  sqlite3_close(db);
}

TEST(Metrics, AreInPrometheusFormat) {
  Prediction p;
  p.device = ByteRange{{10 * kGiB}, {9 * kGiB}, {11 * kGiB}};
  Judge judge({}, p);
  Sample s = sample_at(1e9, 3 * kGiB);
  s.processes[0].name = "a\"b\\c\nd";
  s.steps = StepSample{5, 10, 5, 0.5, 0};
  judge.add(s);
  const std::string text = prometheus_text(judge);
  EXPECT_NE(
      text.find("# TYPE plimsoll_watch_process_resident_bytes gauge\nplimsoll_watch_process_resident_bytes{pid=\"10\",role=\"main\",name="
                "\"a\\\"b\\\\c\\nd\"} 3221225472\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("plimsoll_watch_predicted_bytes{what=\"device\",end=\"high\"} 11811160064\n"), std::string::npos);
  EXPECT_NE(text.find("plimsoll_watch_steps_per_second 0.5\n"), std::string::npos);
  EXPECT_EQ(text.find("plimsoll_watch_host_limit_bytes"), std::string::npos);  // nothing is told of what is not known
}

TEST(Metrics, AddressesThatAreRefused) {
  for (const char* bad : {"", "x", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1", "127.0.0.1:9x"})
    EXPECT_THROW(Listener(bad, false), Error) << bad;
  try {
    Listener open("0.0.0.0:0", false);
    FAIL() << "it answers everyone";
  } catch (const Error& e) {
    EXPECT_NE(e.hint().find("--listen-anywhere"), std::string::npos);
  }
  const Listener first("127.0.0.1:0", false);
  const std::string port = first.url().substr(17, first.url().find('/', 17) - 17);
  EXPECT_THROW(Listener("127.0.0.1:" + port, false), Error);
}

TEST(View, FitsEveryTerminal) {
  Judge judge;
  for (int t = 0; t < 125; ++t) {
    Sample s = sample_at(1e9 + t, 2 * kGiB + t * 3 * kMiB, 100 * kMiB, 30);
    s.steps = StepSample{t, 1000, t, 1.0, 1};
    DeviceSample d;
    d.name = "NVIDIA H100 80GB HBM3";
    d.total = Bytes{80 * kGiB};
    d.used = d.ours = Bytes{60 * kGiB};
    s.devices.push_back(d);
    judge.add(s);
  }
  for (const auto& [width, height] : {std::pair{80, 24}, {200, 60}, {40, 10}, {20, 5}, {1, 1}, {0, 0}, {300, 11}})
    for (const bool unicode : {true, false})
      for (size_t plot = 0; plot < 7; ++plot) {
        Canvas canvas(width, height);
        ViewOptions options{"process 10", unicode};
        options.plot = plot;
        options.help = plot == 6;
        draw_view(canvas, judge, options);
        if (unicode) continue;
        for (const char c : canvas.text()) EXPECT_TRUE(c == '\n' || (c >= ' ' && c < 127)) << width << " x " << height;
      }
  Canvas canvas(80, 24);
  draw_view(canvas, judge, {"process 10"});
  EXPECT_NE(canvas.row(0).find("process 10"), std::string::npos);
  EXPECT_NE(canvas.text().find("60.00 GiB of  80.00 GiB   75%"), std::string::npos) << canvas.text();
  EXPECT_NE(canvas.text().find("leak: the main process"), std::string::npos) << canvas.text();
  EXPECT_NE(canvas.row(23).find("q quit"), std::string::npos);
}

// A run of the command itself.
struct Result {
  std::string output;
  int code = -1;
};
Result run(const std::string& arguments) {
  Result r;
  FILE* pipe = popen((PLIMSOLL_BINARY " watch " + arguments + " 2>&1").c_str(), "r");
  char chunk[4096];
  while (const size_t n = fread(chunk, 1, sizeof chunk, pipe)) r.output.append(chunk, n);
  r.code = WEXITSTATUS(pclose(pipe));
  return r;
}

TEST(WatchCommand, WatchesAndRefuses) {
  const Result one = run("--json --interval 0.2 -- sleep 5");
  EXPECT_EQ(one.code, 0) << one.output;
  EXPECT_NE(one.output.find("\"role\": \"main\""), std::string::npos) << one.output;
  const Result ended = run("--interval 0.2 --for 20 -- sh -c 'exit 3'");
  EXPECT_NE(ended.output.find("the command ended with 3"), std::string::npos) << ended.output;
  EXPECT_EQ(run("999999999").code, 5);
  EXPECT_EQ(run("--device 99 --once").code, 6);
  EXPECT_EQ(run("--listen 127.0.0.1:99999 --once").code, 2);
  EXPECT_EQ(run("-- /no/such/program").code, 2);
  EXPECT_EQ(run("--once --jsonl").code, 2);
  EXPECT_EQ(run("--replay /no/such/file").code, 5);
  EXPECT_EQ(run("--once --batch 4").code, 2);
}

TEST_F(Watching, WhatWasMeasuredCorrectsTheNextEstimate) {
  const std::string file = path("state/plimsoll/measured.jsonl");
  MeasuredRun run{"host", "rtx-4090", "gpt2", "fp32", "AdamW", 124439808, Bytes{10 * kGiB}, Bytes{10 * kGiB + 512 * kMiB}, "watch", 5};
  EXPECT_TRUE(read_measured_runs(file).empty());
  add_measured_run(file, run);
  std::ofstream(file, std::ios::app) << "nonsense\n{\"schema\": 2}\n{\"schema\": 1}\n[]\n" << std::string(9000, 'x') << "\n";
  add_measured_run(file, run);
  const auto runs = read_measured_runs(file);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_TRUE(alike(runs[0], run));
  const ByteRange before{{10 * kGiB}, {9 * kGiB}, {12 * kGiB}};
  const auto c = correction(run, before, runs);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->residual, (Bytes{512 * kMiB}));
  EXPECT_EQ(c->runs, 2);
  DeviceMemory memory;
  memory.device = before;
  apply(*c, memory);
  EXPECT_EQ(memory.device.bytes, (Bytes{10 * kGiB + 512 * kMiB}));
  EXPECT_NEAR(static_cast<double>((memory.device.high - memory.device.bytes).count), 2.0 * kGiB / std::sqrt(3), 2);  // narrower
  MeasuredRun other = run;
  other.precision = "bf16";
  EXPECT_FALSE(correction(other, before, runs));
  // Twice the size: the residual may stay or double, and the interval holds both.
  const auto twice = correction(run, {{20 * kGiB}, {20 * kGiB}, {20 * kGiB}}, runs);
  EXPECT_EQ(twice->lowest, (Bytes{512 * kMiB}));
  EXPECT_EQ(twice->highest, (Bytes{kGiB}));
  EXPECT_THROW(add_measured_run("/proc/no/such/place", run), Error);
}

}  // namespace
}  // namespace plimsoll::watch_test
