// A machine made of a folder: /proc, /sys and /dev as files of its own, driver libraries that are absent until a test names a stub.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "hardware/detect.h"

namespace plimsoll {

class MadeUpMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::temp_directory_path() /
            ("plimsoll_" + std::to_string(getpid()) + "_" + test->test_suite_name() + "_" + test->name());
    std::filesystem::create_directories(root_ / "dev/shm");
    s_.root = root_.string();
    s_.nvml = {"/nonexistent/libnvidia-ml.so.1"};
    s_.rocm_smi = {"/nonexistent/librocm_smi64.so"};
    file("/proc/meminfo", "MemTotal:  65536000 kB\nMemFree:  1 kB\nMemAvailable:  32768000 kB\nSwapTotal:  1024 kB\nSwapFree:  512 kB\n");
  }
  void TearDown() override {
    std::filesystem::remove_all(root_);
    unsetenv("PLIMSOLL_STUB_NVML");
    unsetenv("PLIMSOLL_STUB_ROCM");
  }

  void file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path.substr(1)).parent_path());
    std::ofstream(root_ / path.substr(1)) << text;
  }
  std::string path(const std::string& name) const { return (root_ / name).string(); }

  // ROCm's library is asked only where the kernel has its driver.
  void rocm_library(const std::string& library) {
    file("/sys/class/kfd/kfd/topology/generation_id", "1\n");
    s_.rocm_smi = {library};
  }

  std::filesystem::path root_;
  Surroundings s_;
};

}  // namespace plimsoll
