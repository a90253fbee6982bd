// AMD's library for tests: one Instinct MI300X, or what PLIMSOLL_STUB_ROCM says: "none", "broken".
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {
bool is(const char* what) {
  const char* value = std::getenv("PLIMSOLL_STUB_ROCM");
  return value && std::strcmp(value, what) == 0;
}
}  // namespace

extern "C" {
int rsmi_init(uint64_t) { return is("none") ? 8 : 0; }
int rsmi_shut_down() { return 0; }
int rsmi_num_monitor_devices(uint32_t* count) {
  *count = is("broken") ? 4000000000u : 1;
  return 0;
}
int rsmi_dev_name_get(uint32_t, char* name, size_t size) {
  std::strncpy(name, is("broken") ? "\x01\xff" : "AMD Instinct MI300X", size);
  return 0;
}
int rsmi_dev_unique_id_get(uint32_t, uint64_t* id) {
  *id = 0x0123456789abcdef;
  return 0;
}
int rsmi_dev_pci_id_get(uint32_t i, uint64_t* id) {
  *id = (0xc1u + i) << 8;
  return 0;
}
int rsmi_dev_memory_total_get(uint32_t, int type, uint64_t* bytes) {
  *bytes = is("broken") ? ~0ull : type == 0 ? 206141652992ull : 1ull << 38;
  return 0;
}
struct Process {
  uint32_t pid, pasid;
  uint64_t vram, sdma;
  uint32_t occupancy;
};
int rsmi_compute_process_info_get(Process* list, uint32_t* count) {
  *count = is("broken") ? 4000000000u : 2;
  list[0] = {4242, 0, 1ull << 34, 0, 0};
  list[1] = {4243, 0, 1ull << 34, 0, 0};
  return 0;
}
int rsmi_compute_process_info_by_device_get(uint32_t pid, uint32_t, Process* process) {
  if (pid != 4242) return 2;
  *process = {pid, 0, 1ull << 33, 0, 0};
  return 0;
}
int rsmi_dev_busy_percent_get(uint32_t, uint32_t* percent) {
  *percent = is("broken") ? 4000000000u : 83;
  return 0;
}
int rsmi_dev_memory_usage_get(uint32_t, int, uint64_t* bytes) {
  *bytes = is("broken") ? ~0ull : 297795584ull;
  return 0;
}
}
