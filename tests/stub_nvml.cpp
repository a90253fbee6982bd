// A driver library for tests: answers from a text file named by PLIMSOLL_STUB_NVML, one "key value" a line. A key is "init", "count",
// "driver" or "<device>.<what>"; a device is its index ("0") or index and slice ("0/1"). A value "!N" is error N.
//   0.name, 0.uuid, 0.total, 0.reserved, 0.used, 0.pci (bus number), 0.cc (major.minor), 0.mig (0 or 1), 0.slices, 0.processes
//   and 0.graphics (pid:bytes,...), 0.busy (percent)
// A missing name or size is "not supported". v1 1 hides the second version of the memory query; "\xNN" in a name is that byte.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr int kNotSupported = 3, kNotFound = 6;

std::map<std::string, std::string>& answers() {
  static std::map<std::string, std::string> map;
  return map;
}

// Handles are addresses of names, kept for the life of the library.
std::vector<std::string*>& handles() {
  static std::vector<std::string*> list;
  return list;
}

void* handle(const std::string& name) {
  for (std::string* h : handles())
    if (*h == name) return h;
  handles().push_back(new std::string(name));
  return handles().back();
}

int find(const std::string& key, std::string& value, int missing = kNotSupported) {
  const auto found = answers().find(key);
  if (found == answers().end()) return missing;
  value = found->second;
  return value[0] == '!' ? std::atoi(value.c_str() + 1) : 0;
}

std::string key(void* device, const char* what) { return *static_cast<std::string*>(device) + "." + what; }

int text(const std::string& key, char* buffer, unsigned size) {
  std::string value;
  if (const int code = find(key, value)) return code;
  std::string bytes;
  for (size_t i = 0; i < value.size(); ++i) {
    if (value.compare(i, 2, "\\x") == 0) {
      bytes += static_cast<char>(std::strtol(value.substr(i + 2, 2).c_str(), nullptr, 16));
      i += 3;
    } else {
      bytes += value[i];
    }
  }
  // A driver that forgets the terminator when the name is as long as the buffer.
  std::strncpy(buffer, bytes.c_str(), size);
  return 0;
}

unsigned long long number(const std::string& key, unsigned long long fallback = 0) {
  std::string value;
  return find(key, value) == 0 ? std::strtoull(value.c_str(), nullptr, 10) : fallback;
}

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};
struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gi, ci;
};

struct Utilization {
  unsigned gpu, memory;
};

// "pid:bytes,..."
int processes(const std::string& key, unsigned* count, Process* list) {
  std::string value;
  if (const int code = find(key, value)) return code;
  unsigned n = 0;
  for (size_t at = 0; at < value.size() && n < *count; ++n) {
    char* end = nullptr;
    list[n] = {static_cast<unsigned>(std::strtoul(value.c_str() + at, &end, 10)), 0, 0, 0};
    list[n].used = std::strtoull(end + 1, &end, 10);
    at = static_cast<size_t>(end - value.c_str()) + 1;
  }
  *count = n;
  return 0;
}

void read_answers() {
  answers().clear();
  const char* file = std::getenv("PLIMSOLL_STUB_NVML");
  std::ifstream in(file ? file : "");
  std::string line;
  while (std::getline(in, line))
    if (const size_t blank = line.find(' '); blank != std::string::npos) answers()[line.substr(0, blank)] = line.substr(blank + 1);
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  read_answers();
  std::string value;
  return find("init", value, 0);
}

int nvmlShutdown() {
  for (std::string* h : handles()) delete h;
  handles().clear();
  return 0;
}

const char* nvmlErrorString(int code) {
  return code == 3    ? "Not Supported"
         : code == 6  ? "Not Found"
         : code == 9  ? "Driver Not Loaded"
         : code == 15 ? "GPU is lost"
                      : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char* buffer, unsigned size) { return text("driver", buffer, size); }

int nvmlDeviceGetCount_v2(unsigned* count) {
  std::string value;
  if (const int code = find("count", value, 0)) return code;
  *count = static_cast<unsigned>(std::strtoull(value.c_str(), nullptr, 10));
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** device) {
  std::string value;
  if (const int code = find(std::to_string(i) + ".handle", value, 0)) return code;
  *device = handle(std::to_string(i));
  return 0;
}

int nvmlDeviceGetName(void* d, char* buffer, unsigned size) { return text(key(d, "name"), buffer, size); }
int nvmlDeviceGetUUID(void* d, char* buffer, unsigned size) { return text(key(d, "uuid"), buffer, size); }

// The file is read anew, so that a test may change what a device that is watched says.
int nvmlDeviceGetMemoryInfo_v2(void* d, MemoryV2* m) {
  std::string value;
  read_answers();
  if (number("v1")) return 13;                                   // function not found
  if (m->version != (sizeof(MemoryV2) | (2u << 24))) return 25;  // argument version mismatch
  if (const int code = find(key(d, "total"), value)) return code;
  m->total = number(key(d, "total"));
  m->reserved = number(key(d, "reserved"));
  m->used = number(key(d, "used"));
  m->free = m->total - m->reserved - m->used;
  return 0;
}

int nvmlDeviceGetMemoryInfo(void* d, Memory* m) {
  std::string value;
  if (const int code = find(key(d, "total"), value)) return code;
  *m = {number(key(d, "total")), 0, number(key(d, "reserved")) + number(key(d, "used"))};
  m->free = m->total - m->used;
  return 0;
}

int nvmlDeviceGetPciInfo_v3(void* d, Pci* pci) {
  std::string value;
  if (const int code = find(key(d, "pci"), value)) return code;
  *pci = {};
  pci->bus = static_cast<unsigned>(number(key(d, "pci")));
  return 0;
}

int nvmlDeviceGetCudaComputeCapability(void* d, int* major, int* minor) {
  std::string value;
  if (const int code = find(key(d, "cc"), value)) return code;
  return std::sscanf(value.c_str(), "%d.%d", major, minor) == 2 ? 0 : 999;
}

int nvmlDeviceGetMigMode(void* d, unsigned* current, unsigned* pending) {
  std::string value;
  if (const int code = find(key(d, "mig"), value)) return code;
  *current = *pending = static_cast<unsigned>(number(key(d, "mig")));
  return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void* d, unsigned* count) {
  *count = static_cast<unsigned>(number(key(d, "slices")));
  return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void* d, unsigned i, void** slice) {
  const std::string name = *static_cast<std::string*>(d) + "/" + std::to_string(i);
  if (!answers().contains(name + ".uuid")) return kNotFound;
  *slice = handle(name);
  return 0;
}

int nvmlDeviceGetUtilizationRates(void* d, Utilization* load) {
  std::string value;
  if (const int code = find(key(d, "busy"), value)) return code;
  *load = {static_cast<unsigned>(number(key(d, "busy"))), 0};
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* d, unsigned* count, Process* list) { return processes(key(d, "processes"), count, list); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void* d, unsigned* count, Process* list) { return processes(key(d, "graphics"), count, list); }

}  // extern "C"
