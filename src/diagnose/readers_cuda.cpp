// The CUDA driver and runtime, and the libraries above them: they fail outside every framework's allocator and print few numbers.
#include <algorithm>

#include "diagnose/printed_size.h"
#include "diagnose/symptom.h"
#include "diagnose/words.h"

namespace plimsoll {

namespace {

std::string cuda_framework(std::string_view line) {
  for (const auto& [word, name] :
       {std::pair("external/xla", "jax"), std::pair("tensorflow/", "tensorflow"), std::pair("tensorflow\\", "tensorflow"),
        std::pair("stream_executor", "tensorflow"), std::pair("jax", "jax"), std::pair("cupy", "cupy"), std::pair("mxnet", "mxnet"),
        std::pair("cntk", "cntk"), std::pair("CNTK", "cntk"), std::pair("llama", "ggml"), std::pair("ggml", "ggml"),
        std::pair("lmdeploy", "lmdeploy"), std::pair("TensorRT", "tensorrt"), std::pair("numba", "numba")})
    if (has(line, word)) return name;
  return has(line, "CUDA error:") || has(line, "HIP error:") || has(line, "cuDNN error:") || has(line, "THC") || has(line, "torch")
             ? "pytorch"
             : "";
}

Symptom on_gpu(const char* kind, std::string framework) {
  Symptom s;
  s.kind = kind;
  s.framework = std::move(framework);
  return s;
}

// "CUDA error: out of memory", "cuda runtime error (2) : out of memory at ...THCStorage.cu:58".
std::optional<Symptom> runtime_error(const Place& place) {
  if (!is_message(place) || !ends_sentence(place.after())) return {};
  return on_gpu("cuda_error", cuda_framework(place.line()));
}

// PyTorch up to 1.0 prints it before the exception, and some trainers go on.
std::optional<Symptom> check_failed(const Place& place) {
  if (!has(place.before(), "THCudaCheck FAIL")) return {};
  Symptom s = on_gpu("cuda_error", "pytorch");
  s.harmless_alone = true;
  return s;
}

// TensorFlow and XLA ask for less when the driver refuses: "failed to allocate 17.79G (19104890880 bytes) from device:
// CUDA_ERROR_OUT_OF_MEMORY".
std::optional<Symptom> driver_error(const Place& place) {
  if (!is_complete_message(place)) return {};
  Symptom s = on_gpu("cuda_error", cuda_framework(place.line()));
  s.tried = size_after(place.before(), " (");
  if (!s.tried) s.tried = size_after(place.before(), "failed to allocate ");
  if (!s.tried) s.tried = size_after(place.before(), "failed to alloc ");
  if (has(place.before(), "bytes on host")) s.memory = Memory::host;  // pinned memory
  s.harmless_alone = s.tried.has_value();
  if (!s.tried && !ends_sentence(place.after()) && !is_message(place)) return {};
  return s;
}

// "W .../device_host_allocator.h:46] could not allocate pinned host memory of size: 34359738368"; TensorFlow goes on with less.
std::optional<Symptom> pinned(const Place& place) {
  Symptom s = symptom("cuda_pinned", "tensorflow", Memory::host);
  s.tried = number_after(place.from(), "of size: ");
  s.harmless_alone = true;
  return s.tried ? std::optional(s) : std::nullopt;
}

// A status after what failed: "Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED".
bool is_status(const Place& place) {
  const size_t last = place.before().find_last_not_of(' ');
  const bool after_colon = last != std::string_view::npos && place.before()[last] == ':';
  const bool calling = place.after().starts_with(" when calling") || place.after().starts_with(" while calling");
  return is_complete_message(place) && (after_colon || is_message(place)) && (calling || ends_sentence(place.after()));
}

std::optional<Symptom> cublas(const Place& place, Certainty certainty) {
  if (!is_status(place)) return {};
  Symptom s = on_gpu("cublas", cuda_framework(place.line()));
  // A handle that cannot be created has no memory; other calls fail so after an earlier error.
  s.certainty = certainty == Certainty::likely && !has(place.line(), "cublasCreate") && !has(place.line(), "create cublas handle")
                    ? Certainty::possible
                    : certainty;
  return s;
}

std::optional<Symptom> cudnn(const Place& place, Certainty certainty) {
  if (!is_status(place)) return {};
  Symptom s = on_gpu("cudnn", cuda_framework(place.line()));
  s.certainty = certainty;
  return s;
}

// NCCL quotes the driver's words, and XLA quotes NCCL's.
std::optional<Symptom> nccl(const Place& place) {
  if (!has(place.line(), "NCCL") && !is_complete_message(place)) return {};
  return on_gpu("nccl", "");
}

// "NCCL WARN Failed to CUDA calloc 6291456 bytes".
std::optional<Symptom> nccl_allocation(const Place& place) {
  if (!is_complete_message(place) || !has(place.before(), "NCCL")) return {};
  Symptom s = on_gpu("nccl", "");
  for (const std::string_view what : {"calloc async ", "calloc ", "malloc ", "host alloc "})
    if (!s.tried) s.tried = size_after(place.line(), what);
  return s.tried ? std::optional(s) : std::nullopt;
}

std::optional<Symptom> nccl_shm(const Place& place) {
  if (!is_complete_message(place)) return {};
  Symptom s = on_gpu("nccl_shm", "");
  s.memory = Memory::shm;
  s.tried = size_after(place.after(), " to ");
  return s;
}

// "Error out of memory at line 351 in file .../pythonInterface.c", and "CUDA Error: out of memory at ...".
std::optional<Symptom> bitsandbytes(const Place& place) {
  if (!is_complete_message(place) || !has(place.line(), " in file ")) return {};
  return on_gpu("bitsandbytes", "pytorch");
}

// The shared memory of a multiprocessor, a hundred kilobytes: another kernel configuration is needed, not a smaller batch.
std::optional<Symptom> triton(const Place& place) {
  const auto required = number_after(place.line(), "Required: "), limit = number_after(place.line(), "Hardware limit: ");
  if (!is_complete_message(place) || !required || !limit) return {};
  Symptom s = on_gpu("triton_shared_memory", "triton");
  s.memory = Memory::none;
  s.certainty = Certainty::possible;
  s.note = "the kernel wants " + std::to_string(*required) + " bytes of on-chip shared memory, the device has " + std::to_string(*limit);
  return s;
}

}  // namespace

std::vector<SymptomReader> cuda_readers() {
  return {
      {"CUDA error: out of memory", runtime_error},
      {"CUDA error:out of memory", runtime_error},
      {"HIP error: out of memory", runtime_error},
      {"CUDA driver error: out of memory", runtime_error},
      {"CUDA error (2): out of memory", runtime_error},
      {"CUDA runtime error: out of memory", runtime_error},
      {"cuda runtime error (2) : out of memory", runtime_error},
      {"error=2 : out of memory", check_failed},
      {"CUDA_ERROR_OUT_OF_MEMORY", driver_error},
      {"cudaErrorMemoryAllocation: out of memory", runtime_error},
      {"hipError_t(1002)", driver_error},  // hipErrorMemoryAllocation
      {"hipErrorMemoryAllocation", driver_error},
      {"could not allocate pinned host memory", pinned},
      {"CUBLAS_STATUS_ALLOC_FAILED", [](const Place& p) { return cublas(p, Certainty::certain); }},
      {"HIPBLAS_STATUS_ALLOC_FAILED", [](const Place& p) { return cublas(p, Certainty::certain); }},
      {"CUBLAS_STATUS_NOT_INITIALIZED", [](const Place& p) { return cublas(p, Certainty::likely); }},
      {"CUDNN_STATUS_ALLOC_FAILED", [](const Place& p) { return cudnn(p, Certainty::certain); }},
      {"CUDNN_STATUS_NOT_INITIALIZED", [](const Place& p) { return cudnn(p, Certainty::possible); }},
      {"CUDNN_STATUS_INTERNAL_ERROR", [](const Place& p) { return cudnn(p, Certainty::possible); }},
      {"CUDNN_STATUS_NOT_SUPPORTED", [](const Place& p) { return cudnn(p, Certainty::possible); }},
      {"Cuda failure 'out of memory'", nccl},
      {"Cuda failure 2 'out of memory'", nccl},
      {"Failed to CUDA ", nccl_allocation},
      {"failed to extend /dev/shm/nccl-", nccl_shm},
      {"rror out of memory at line ", bitsandbytes},
      {"out of resource: shared memory", triton},
  };
}

}  // namespace plimsoll
