// PyTorch's own allocator of pinned memory (ATen/core/CachingHostAllocator.h) over malloc, registered for a CUDA device that does
// nothing, so that a CPU build of PyTorch can pin. Built and loaded by measure_loader.py, after torch.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>

namespace {

const c10::Device kDevice(c10::DeviceType::CUDA, 0);
const c10::Stream kStream(c10::Stream::DEFAULT, kDevice);

struct NoEvent {};

struct Malloc : at::CachingHostAllocatorImpl<c10::Stream, NoEvent> {
  void allocate_host_memory(size_t size, void** ptr) override { *ptr = std::malloc(size); }
  void free_block(at::HostBlock<c10::Stream>* block) override { std::free(block->ptr_); }
  void record_stream(std::optional<std::vector<NoEvent>>&, c10::Stream) override {}
  bool query_event(NoEvent&) override { return true; }
  c10::Stream get_current_stream() const override { return kStream; }
  bool stream_is_capturing(c10::Stream) const override { return false; }
};

DECLARE_HOST_ALLOCATOR(PinnedHost, Malloc, delete_pinned, pinned_host)
REGISTER_HOST_ALLOCATOR(c10::DeviceType::CUDA, &pinned_host)

}  // namespace

namespace c10::impl {
struct IdleGuard final : DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return kDevice; }
  Device getDevice() const override { return kDevice; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const override { return kStream; }
  Stream exchangeStream(Stream) const override { return kStream; }
  DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(CUDA, IdleGuard);
}  // namespace c10::impl

namespace at {
struct IdleHooks final : CUDAHooksInterface {
  IdleHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  int getNumGPUs() const override { return 1; }
  Allocator* getPinnedMemoryAllocator() const override { return &pinned_host; }
};
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, IdleHooks);
}  // namespace at

// As torch.cuda.host_memory_stats() counts them.
extern "C" long pinned_held() { return pinned_host.get_stats().allocated_bytes.current; }
extern "C" long pinned_in_use() { return pinned_host.get_stats().active_bytes.current; }
extern "C" long pinned_blocks() { return pinned_host.get_stats().num_host_alloc; }
