// Detection on machines made of a folder and stub driver libraries.
#include <gtest/gtest.h>

#include "hardware/lookup.h"
#include "made_up_machine.h"

namespace plimsoll::detect_test {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;

class Detect : public MadeUpMachine {
 protected:
  void driver(const std::string& answers) {
    file("/nvml", answers);
    setenv("PLIMSOLL_STUB_NVML", (root_ / "nvml").c_str(), 1);
    s_.nvml = {PLIMSOLL_STUB_NVML_LIBRARY};
  }

  static std::string gpu(int i, const std::string& name, int64_t mib, const std::string& uuid, int64_t reserved_mib = 400) {
    const std::string n = std::to_string(i) + ".";
    return n + "name " + name + "\n" + n + "uuid " + uuid + "\n" + n + "total " + std::to_string(mib * kMiB) + "\n" + n + "reserved " +
           std::to_string(reserved_mib * kMiB) + "\n" + n + "used " + std::to_string(100 * kMiB) + "\n" + n + "pci " +
           std::to_string(i + 1) + "\n";
  }

  void visible_devices(const std::string& value) { s_.environment["CUDA_VISIBLE_DEVICES"] = value; }

  std::string visible() {
    std::string out;
    for (const DetectedDevice& d : detect(s_).devices) out += d.visible == Visible::yes ? '1' : d.visible == Visible::no ? '0' : '?';
    return out;
  }

  static bool says(const std::vector<std::string>& lines, const std::string& part) {
    for (const std::string& line : lines)
      if (line.find(part) != std::string::npos) return true;
    return false;
  }
};

TEST_F(Detect, OneGpu) {
  driver("count 1\ndriver 570.86.10\n" + gpu(0, "NVIDIA GeForce RTX 4090", 24564, "GPU-aaaa", 356) +
         "0.cc 8.9\n0.processes 77:1048576,78:18446744073709551615\n");
  const Machine m = detect(s_);
  ASSERT_EQ(m.devices.size(), 1u);
  const DetectedDevice& d = m.devices[0];
  EXPECT_EQ(d.catalogue_id, "rtx-4090");
  EXPECT_EQ(d.usable, (Bytes{(24564 - 356) * kMiB}));
  EXPECT_EQ(d.used, (Bytes{100 * kMiB}));
  EXPECT_EQ(d.pci, "0000:01:00.0");
  EXPECT_EQ(d.target, "8.9");
  ASSERT_EQ(d.processes.size(), 2u);
  EXPECT_EQ(d.processes[0].used, Bytes{1048576});
  EXPECT_FALSE(d.processes[1].used);  // the driver's "not available"
  EXPECT_EQ(m.nvidia_driver, "570.86.10");
  EXPECT_TRUE(m.blockers.empty());
}

TEST_F(Detect, AnOldDriverHasNoReserve) {
  driver("v1 1\ncount 1\n" + gpu(0, "NVIDIA GeForce RTX 4090", 24564, "GPU-aaaa"));
  const DetectedDevice d = detect(s_).devices.at(0);
  EXPECT_FALSE(d.reserved);
  EXPECT_NEAR(static_cast<double>(d.usable->count) / kGiB, 24564.0 / 1024 - 0.47, 0.001);
}

TEST_F(Detect, EightGpusAndWhichAreVisible) {
  std::string answers = "count 8\n";
  for (int i = 0; i < 8; ++i)
    answers += gpu(i, "NVIDIA H100 80GB HBM3", 81559, "GPU-" + std::string(1, static_cast<char>('a' + i)) + "123");
  driver(answers);
  EXPECT_EQ(visible(), "11111111");
  for (const auto& [value, expected] : std::map<std::string, std::string>{{"0", "10000000"},
                                                                          {"6,2", "00100010"},
                                                                          {"", "00000000"},
                                                                          {"-1", "00000000"},
                                                                          {"1,1", "00000000"},
                                                                          {"1,9,2", "01000000"},
                                                                          {"1,-1,2", "01000000"},
                                                                          {" 3 , 4", "00011000"},
                                                                          {"2gpu", "00100000"},
                                                                          {"GPU-c123,GPU-h", "00100001"},
                                                                          {"GPU-", "00000000"},
                                                                          {"GPU-a1,GPU-zzz,GPU-b", "10000000"},
                                                                          {"GPU-a,GPU-a1", "00000000"},
                                                                          {"GPU-b,2", "01000000"},
                                                                          {"2,GPU-b", "00100000"},
                                                                          {"NoDevFiles", "00000000"},
                                                                          {"99999999999999999999", "00000000"}}) {
    visible_devices(value);
    EXPECT_EQ(visible(), expected) << "'" << value << "'";
  }
  visible_devices("1,9");
  EXPECT_TRUE(says(detect(s_).blockers, "'9' is no device here"));
  visible_devices("");
  EXPECT_TRUE(says(detect(s_).blockers, "every device is hidden"));
}

TEST_F(Detect, NumbersOfUnlikeDevicesNeedAnOrder) {
  driver("count 2\n" + gpu(0, "NVIDIA GeForce RTX 3060", 12288, "GPU-a") + gpu(1, "NVIDIA GeForce RTX 4090", 24564, "GPU-b"));
  visible_devices("0");
  EXPECT_EQ(visible(), "??");
  EXPECT_TRUE(says(detect(s_).blockers, "CUDA_DEVICE_ORDER=PCI_BUS_ID"));
  visible_devices("1,0");
  EXPECT_EQ(visible(), "11");
  visible_devices("GPU-a");
  EXPECT_EQ(visible(), "10");
  visible_devices("0");
  s_.environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  EXPECT_EQ(visible(), "10");
}

TEST_F(Detect, MigSlicesAreTheDevices) {
  driver("count 2\n" + gpu(0, "NVIDIA H100 NVL", 95830, "GPU-a") + "0.mig 1\n0.slices 7\n" +
         "0/0.name NVIDIA H100 NVL MIG 1g.12gb\n0/0.uuid MIG-11\n0/0.total 11542724608\n0/2.name NVIDIA H100 NVL MIG 3g.47gb\n0/2.uuid "
         "MIG-22\n0/2.total 49928994816\n" +
         gpu(1, "NVIDIA H100 NVL", 95830, "GPU-b") + "1.mig 0\n");
  const Machine m = detect(s_);
  ASSERT_EQ(m.devices.size(), 4u);
  EXPECT_TRUE(m.devices[0].split);
  EXPECT_FALSE(m.devices[0].usable);
  EXPECT_EQ(m.devices[1].parent_uuid, "GPU-a");
  EXPECT_EQ(m.devices[1].usable, Bytes{11542724608});  // 10.75 GiB, the slice's and not the parent's
  EXPECT_EQ(m.devices[1].catalogue_id, "");
  EXPECT_EQ(visible(), "0101");  // one slice of the split device, and the whole one
  visible_devices("MIG-22");
  EXPECT_EQ(visible(), "0010");
  visible_devices("1");
  EXPECT_EQ(visible(), "0001");
}

TEST_F(Detect, None) {
  const Machine m = detect(s_);
  EXPECT_TRUE(m.devices.empty());
  EXPECT_TRUE(says(m.blockers, "no GPU was found"));
  EXPECT_EQ(m.host.total, (Bytes{65536000ll * 1024}));
}

TEST_F(Detect, AnEmptyRootAnswersToo) {
  fs::remove_all(root_);
  const Machine m = detect(s_);
  EXPECT_FALSE(m.host.usable_total());
  EXPECT_TRUE(says(m.blockers, "the host's memory is unknown"));
}

TEST_F(Detect, ALibraryThatIsNone) {
  file("/not_a_library", "hello");
  s_.nvml = {(root_ / "not_a_library").string()};
  EXPECT_TRUE(detect(s_).devices.empty());
  s_.nvml = {PLIMSOLL_STUB_ROCM_LIBRARY};  // a library without the functions
  EXPECT_TRUE(says(detect(s_).blockers, "nvmlInit_v2"));
}

TEST_F(Detect, ADriverThatDoesNotStart) {
  driver("init !9\n");
  EXPECT_TRUE(says(detect(s_).blockers, "Driver Not Loaded"));
  driver("count !999\n");
  EXPECT_TRUE(says(detect(s_).blockers, "how many devices"));
}

TEST_F(Detect, ADriverThatAnswersNonsense) {
  driver("count 4000000000\n0.name \\xff\\x01\\x1b[31m" + std::string(200, 'x') +
         "\n0.uuid !999\n0.total 18446744073709551615\n0.used 5\n1.handle !15\n" +
         "2.name NVIDIA GeForce RTX 4090\n2.total 0\n3.name NVIDIA A10\n3.total 1000\n3.reserved 2000\n3.used 3000\n3.mig 1\n3.slices "
         "4000000000\n3.cc -1.7\n");
  const Machine m = detect(s_);
  EXPECT_EQ(m.devices.size(), 63u);
  EXPECT_TRUE(says(m.blockers, "claims 4000000000 devices"));
  EXPECT_TRUE(says(m.blockers, "GPU is lost"));
  EXPECT_TRUE(says(m.blockers, "impossible"));
  EXPECT_FALSE(m.devices[0].total);
  EXPECT_FALSE(m.devices[0].usable);
  for (const DetectedDevice& d : m.devices)
    for (const unsigned char c : d.name) EXPECT_TRUE(c >= 0x20 && c < 0x7f);
  // A known name whose size the driver spoils is answered from the catalogue, and says so.
  EXPECT_EQ(m.devices[1].catalogue_id, "rtx-4090");
  EXPECT_TRUE(m.devices[1].basis.starts_with("from the catalogue")) << m.devices[1].basis;
  EXPECT_EQ(m.devices[2].target, "");
  EXPECT_FALSE(m.devices[2].reserved);
  EXPECT_FALSE(m.devices[2].used);
}

TEST_F(Detect, UnifiedMemoryWhereTheDriverSaysNotAvailable) {
  driver("count 1\n0.name NVIDIA GB10\n0.uuid GPU-a\n0.cc 12.1\n");
  Machine m = detect(s_);
  ASSERT_EQ(m.devices.size(), 1u);
  EXPECT_EQ(m.devices[0].catalogue_id, "gb10");
  EXPECT_EQ(m.devices[0].memory, MemoryKind::unified);
  EXPECT_EQ(m.devices[0].usable, (Bytes{65536000ll * 1024}));
  file("/proc/self/cgroup", "0::/job\n");
  file("/sys/fs/cgroup/job/memory.max", "17179869184\n");
  m = detect(s_);
  EXPECT_EQ(m.devices[0].usable, (Bytes{16 * kGiB}));
  EXPECT_NE(m.devices[0].basis.find("control group"), std::string::npos);
}

TEST_F(Detect, AnUnknownDeviceWithoutMemoryStaysUnknown) {
  driver("count 1\n0.name NVIDIA Something New\n0.uuid GPU-a\n");
  const Machine m = detect(s_);
  EXPECT_FALSE(m.devices.at(0).usable);
  EXPECT_TRUE(says(m.blockers, "its memory is unknown"));
}

TEST_F(Detect, Jetson) {
  file("/proc/device-tree/compatible", std::string("nvidia,p3737-0000\0nvidia,tegra234\0", 34));
  file("/proc/device-tree/model", std::string("NVIDIA Jetson AGX Orin Developer Kit\0", 37));
  const Machine m = detect(s_);
  ASSERT_EQ(m.devices.size(), 1u);
  EXPECT_EQ(m.devices[0].name, "NVIDIA Jetson AGX Orin Developer Kit");
  EXPECT_EQ(m.devices[0].memory, MemoryKind::unified);
  EXPECT_EQ(m.devices[0].usable, m.host.total);
}

TEST_F(Detect, NamesFromProcWhenTheLibraryIsMissing) {
  file("/proc/driver/nvidia/gpus/0000:65:00.0/information", "Model: \t\t NVIDIA L4\nIRQ:   \t\t 33\nGPU UUID: \t GPU-????????\n");
  const Machine m = detect(s_);
  ASSERT_EQ(m.devices.size(), 1u);
  EXPECT_EQ(m.devices[0].catalogue_id, "l4");
  EXPECT_EQ(m.devices[0].uuid, "");
  EXPECT_NEAR(static_cast<double>(m.devices[0].usable->count) / kGiB, 22.03, 0.001);
  EXPECT_TRUE(says(m.blockers, "what other programs use of it is unknown"));
}

TEST_F(Detect, AmdBySysfsWithItsProcesses) {
  const std::string device = "/sys/class/drm/card1/device/";
  file(device + "vendor", "0x1002\n");
  file(device + "device", "0x744c\n");
  file(device + "uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n");
  file(device + "product_name", "AMD Radeon RX 7900 XTX\n");
  file(device + "mem_info_vram_total", "25753026560\n");
  file(device + "mem_info_vram_used", "1000000\n");
  file("/sys/class/drm/card1-DP-1/status", "connected\n");
  const std::string use = "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t7\ndrm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t2048 KiB\n";
  file("/proc/42/fdinfo/5", use);
  file("/proc/42/fdinfo/6", use);  // the same client again
  file("/proc/42/fdinfo/7", "drm-pdev:\t0000:03:00.0\ndrm-client-id:\t8\ndrm-memory-vram:\t99999999999999999999 KiB\n");
  const Machine m = detect(s_);
  ASSERT_EQ(m.devices.size(), 1u);
  EXPECT_EQ(m.devices[0].catalogue_id, "rx-7900-xtx");
  EXPECT_EQ(m.devices[0].usable, Bytes{25753026560});
  ASSERT_EQ(m.devices[0].processes.size(), 1u);
  EXPECT_EQ(m.devices[0].processes[0].used, (Bytes{2 * kMiB}));
}

TEST_F(Detect, StrixHaloGivesItsGttAndNotItsCarveOut) {
  const std::string device = "/sys/class/drm/card0/device/";
  file(device + "vendor", "0x1002\n");
  file(device + "uevent", "PCI_SLOT_NAME=0000:c5:00.0\n");
  file(device + "product_name", "AMD Radeon Graphics\n");
  file(device + "mem_info_vram_total", std::to_string(96 * kGiB));
  file(device + "mem_info_gtt_total", std::to_string(15 * kGiB));
  file("/sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 32\nsimd_count 0\n");
  file("/sys/class/kfd/kfd/topology/nodes/1/properties",
       "cpu_cores_count 0\nsimd_count 80\nlocation_id 50432\ndomain 0\ngfx_target_version 110501\n");
  const DetectedDevice d = detect(s_).devices.at(0);
  EXPECT_EQ(d.target, "gfx1151");
  EXPECT_EQ(d.catalogue_id, "strix-halo-8060s");
  EXPECT_EQ(d.memory, MemoryKind::unified);
  EXPECT_EQ(d.usable, (Bytes{15 * kGiB}));
}

TEST_F(Detect, RocmSmi) {
  rocm_library(PLIMSOLL_STUB_ROCM_LIBRARY);
  Machine m = detect(s_);
  ASSERT_EQ(m.devices.size(), 1u);
  EXPECT_EQ(m.devices[0].catalogue_id, "mi300x");
  EXPECT_EQ(m.devices[0].usable, Bytes{206141652992});
  EXPECT_EQ(m.devices[0].pci, "0000:c1:00.0");
  s_.environment["ROCR_VISIBLE_DEVICES"] = "GPU-0123456789abcdef";
  EXPECT_EQ(visible(), "1");
  s_.environment["HIP_VISIBLE_DEVICES"] = "1";
  EXPECT_EQ(visible(), "0");
  setenv("PLIMSOLL_STUB_ROCM", "broken", 1);
  m = detect(s_);
  EXPECT_EQ(m.devices.size(), 128u);
  EXPECT_FALSE(m.devices[0].usable);
  setenv("PLIMSOLL_STUB_ROCM", "none", 1);
  EXPECT_TRUE(detect(s_).devices.empty());
}

TEST_F(Detect, AppleSilicon) {
  std::map<std::string, std::string> values{
      {"machdep.cpu.brand_string", "Apple M2 Max"}, {"hw.memsize", std::to_string(64 * kGiB)}, {"iogpu.wired_limit_mb", "0"}};
  s_.sysctl = [&](const std::string& name) { return values.contains(name) ? std::optional(values[name]) : std::nullopt; };
  EXPECT_EQ(detect(s_).devices.at(0).usable, (Bytes{48 * kGiB}));
  EXPECT_EQ(detect(s_).devices.at(0).catalogue_id, "m2-max-64gb");
  values["iogpu.wired_limit_mb"] = "57344";
  EXPECT_EQ(detect(s_).devices.at(0).usable, (Bytes{56 * kGiB}));
  values["hw.memsize"] = "lots";
  EXPECT_FALSE(detect(s_).devices.at(0).usable == (Bytes{48 * kGiB}));
  values["machdep.cpu.brand_string"] = "Intel(R) Core(TM) i7";
  EXPECT_TRUE(detect(s_).devices.empty());
}

TEST_F(Detect, ControlGroupsTheTightestAboveCounts) {
  file("/proc/self/cgroup", "0::/a/b\n");
  file("/sys/fs/cgroup/a/b/memory.max", "max\n");
  file("/sys/fs/cgroup/a/memory.max", "8589934592\n");
  file("/sys/fs/cgroup/a/memory.current", "1073741824\n");
  const HostMemory h = detect(s_).host;
  EXPECT_EQ(h.limit, (Bytes{8 * kGiB}));
  EXPECT_EQ(h.limit_source, "/sys/fs/cgroup/a/memory.max");
  EXPECT_EQ(h.usable_total(), (Bytes{8 * kGiB}));
  EXPECT_EQ(h.usable_now(), (Bytes{7 * kGiB}));
}

TEST_F(Detect, ControlGroupsOfTheFirstVersion) {
  file("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n");
  file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n");  // the container's own namespace: its path is not below the mount
  EXPECT_EQ(detect(s_).host.limit, (Bytes{4 * kGiB}));
  file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(detect(s_).host.limit);
  file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "garbage\n");
  EXPECT_FALSE(detect(s_).host.limit);
}

TEST_F(Detect, GarbageInProcIsUnknownNotZero) {
  file("/proc/meminfo", "MemTotal: lots kB\nMemAvailable: 99999999999999999999 kB\nSwapTotal: -5 kB\n\xff\xfe\n");
  file("/proc/self/cgroup", "::::\n0::\n4:memory:../../..\n");
  const HostMemory h = detect(s_).host;
  EXPECT_FALSE(h.total);
  EXPECT_FALSE(h.available);
  EXPECT_FALSE(h.swap);
}

TEST_F(Detect, Wsl) {
  file("/proc/version", "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@x) (gcc)\n");
  const Machine m = detect(s_);
  EXPECT_TRUE(m.wsl);
  EXPECT_EQ(m.system, "Linux version 5.15.153.1-microsoft-standard-WSL2");
  EXPECT_TRUE(says(m.conclusions, "WSL"));
}

TEST_F(Detect, ThisMachineAnswers) {
  const Machine m = detect(Surroundings::here());
  EXPECT_FALSE(m.raw.empty());
}

}  // namespace
}  // namespace plimsoll::detect_test
