// Runtimes below and beside the frameworks: ONNX Runtime, TensorRT, DirectML, Gaudi, Neuron, Ascend, Metal, SYCL, Vulkan, RMM; and the
// servers that run on them.
#include <algorithm>

#include "diagnose/printed_size.h"
#include "diagnose/symptom.h"
#include "diagnose/words.h"

namespace plimsoll {

namespace {

constexpr int64_t kExbibyte = int64_t{1} << 60;

// A number without a unit that counts bytes. One beyond an exbibyte is a corrupted size.
void set_tried(Symptom& s, std::optional<int64_t> bytes) {
  if (bytes && *bytes >= kExbibyte) {
    s.impossible_size = true;
  } else {
    s.tried = bytes;
  }
}

// "... BFCArena::AllocateRawInternal(...) Failed to allocate memory for requested buffer of size 2830172160"
std::optional<Symptom> onnxruntime(const Place& place) {
  const std::string_view after = place.after();
  if (after.empty() || after[0] < '0' || after[0] > '9') return {};
  Symptom s = symptom("onnxruntime", "onnxruntime", Memory::gpu);
  set_tried(s, number_after(place.from(), "buffer of size "));
  s.impossible_size |= !s.tried;
  return s;
}

// "[executionContext.cpp::...::470] Error Code 2: OutOfMemory (no further information)", "Error Code 1: Cuda Runtime (out of memory)",
// "Cuda Error in allocate: 2 (out of memory)".
std::optional<Symptom> tensorrt(const Place& place) {
  if (!is_complete_message(place)) return {};
  Symptom s = symptom("tensorrt", "tensorrt", Memory::gpu);
  const std::string_view text = place.from().substr(0, 400);
  s.tried = number_after(text, "Requested amount of GPU memory (");
  if (!s.tried) s.tried = number_after(place.line(), "(Requested size was ");
  return s;
}

// The builder goes on without the tactic that wanted it.
std::optional<Symptom> tensorrt_request(const Place& place) {
  Symptom s = symptom("tensorrt", "tensorrt", Memory::gpu);
  s.tried = number_after(place.after(), "(");
  s.harmless_alone = true;
  return s.tried ? std::optional(s) : std::nullopt;
}

// "Could not allocate tensor with 4915840 bytes. There is not enough GPU video memory available!"
std::optional<Symptom> directml(const Place& place) {
  if (!is_complete_message(place) || !has(place.after().substr(0, 100), "not enough GPU video memory")) return {};
  Symptom s = symptom("directml", "pytorch", Memory::gpu);
  set_tried(s, number_after(place.from(), "tensor with "));
  return s;
}

// "[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::234881024 (224)MB"
std::optional<Symptom> habana(const Place& place) {
  Symptom s = symptom("habana", "pytorch", Memory::gpu);
  for (const std::string_view marker : {"for size::", "of size ::"})
    if (!s.tried && !s.impossible_size) set_tried(s, number_after(place.from().substr(0, 120), marker));
  if (const auto rank = number_after(place.before(), "[Rank:"); rank && *rank < 1 << 20) s.rank = static_cast<int>(*rank);
  return s;
}

std::optional<Symptom> metal(const Place& place) {
  const bool ggml = has(place.text.substr(0, place.at), "ggml_metal") || has(place.line(), "ggml");
  return symptom("metal", ggml ? "ggml" : has(place.line(), "[METAL]") ? "mlx" : "", Memory::mps);
}

// "[metal::malloc] Attempting to allocate 48736917632 bytes which is greater than the maximum allowed buffer size of 30150672384 bytes."
std::optional<Symptom> mlx_malloc(const Place& place) {
  Symptom s = symptom("metal", "mlx", Memory::mps);
  const std::string_view text = place.from().substr(0, 200);
  set_tried(s, number_after(text, has(text, "Unable to allocate ") ? "Unable to allocate " : "Attempting to allocate "));
  s.allowed = number_after(text, "maximum allowed buffer size of ");
  return s.tried ? std::optional(s) : std::nullopt;
}

// "Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)": a status that kernels too large for the device have, too.
std::optional<Symptom> sycl(const Place& place, Memory memory, Certainty certainty) {
  if (!has(place.before(), "(") && !has(place.line(), "failed") && !is_message(place)) return {};
  Symptom s = symptom("sycl", has(place.text.substr(0, 400), "Native API failed") ? "pytorch" : "", memory);
  s.certainty = certainty;
  return s;
}

// "ggml_vulkan: Device memory allocation of size 3959422976 failed."
std::optional<Symptom> vulkan_size(const Place& place) {
  Symptom s = symptom("ggml", "ggml", Memory::gpu);
  set_tried(s, number_after(place.from(), "allocation of size "));
  return s.tried ? std::optional(s) : std::nullopt;
}

std::optional<Symptom> vulkan(const Place& place) {
  if (!is_complete_message(place)) return {};
  return symptom("vulkan", has(place.text.substr(0, 400), "ggml") ? "ggml" : "", Memory::gpu);
}

// "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 150995968", "failed to allocate buffer for kv cache".
std::optional<Symptom> ggml_buffer(const Place& place) {
  if (!is_complete_message(place) || !has(place.line(), " buffer")) return {};
  Symptom s = symptom("ggml", "ggml", has(place.after().substr(0, 4), "CPU") ? Memory::host : Memory::gpu);
  set_tried(s, number_after(place.line(), "buffer of size "));
  return s.tried || has(place.line(), "kv cache") ? std::optional(s) : std::nullopt;
}

// "model requires more system memory (5.6 GiB) than is available (4.1 GiB)"
std::optional<Symptom> ollama(const Place& place) {
  Symptom s = symptom("ollama", "ollama", Memory::host);
  s.tried = size_after(place.after(), "(");
  s.free = size_after(place.after(), "available (");
  return s.tried ? std::optional(s) : std::nullopt;
}

// "std::bad_alloc: out_of_memory: CUDA error at: ...", "RMM failure at: ... Maximum pool size exceeded".
std::optional<Symptom> rmm(const Place& place) {
  if (!is_complete_message(place)) return {};
  return symptom("rmm", "rapids", Memory::gpu);
}

// "Error: Warmup(Generation("Not enough memory to handle 4096 prefill tokens. ..."))"
std::optional<Symptom> tgi(const Place& place) {
  if (!has(place.after().substr(0, 80), "tokens")) return {};
  return symptom("tgi", "tgi", Memory::gpu);
}

std::optional<Symptom> sglang(const Place& place) {
  if (!has(place.after().substr(0, 80), "mem-fraction-static") || !is_complete_message(place)) return {};
  return symptom("sglang", "sglang", Memory::gpu);
}

// "The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (14016)."
std::optional<Symptom> vllm_tokens(const Place& place) {
  if (!has(place.before(), "is larger than")) return {};
  return symptom("vllm", "vllm", Memory::gpu);
}

// "ResourceExhaustedError: failed to allocate memory [Op:AddV2]"
std::optional<Symptom> tensorflow_op(const Place& place) {
  Symptom s = symptom("tensorflow", "tensorflow", Memory::gpu);
  const std::string_view op = place.after().substr(0, place.after().find(']'));
  if (op.size() < 60) s.note = std::string(op);
  return s;
}

std::optional<Symptom> cuda_library(const Place& place) {
  if (!is_complete_message(place)) return {};
  return symptom("cuda_library", "", Memory::gpu);
}

std::optional<Symptom> hip(const Place& place) {
  if (!is_complete_message(place) || has(place.line(), "case ") || has(place.line(), "==")) return {};
  return symptom("cuda_error", "", Memory::gpu);
}

// "Aborting compilation early because it's unlikely to have enough device memory. Requires 15.69G, has 7.18G available."
std::optional<Symptom> xla_early(const Place& place) {
  Symptom s = symptom("xla_tpu", "jax", Memory::tpu);
  s.tried = size_after(place.from(), "Requires ");
  s.free = size_after(place.from(), ", has ");
  return s.tried ? std::optional(s) : std::nullopt;
}

// "Memory_Allocation_Failure(EL0004): Failed to allocate memory."
std::optional<Symptom> ascend(const Place& place) {
  Symptom s = symptom("pytorch_npu", "", Memory::gpu);
  const std::string_view text = place.from().substr(0, 2000);
  if (const size_t call = text.find("rtMalloc fail"); call != std::string_view::npos) s.tried = number_after(text.substr(call), " size:");
  return s;
}

// "ERROR  TDRV:dmem_alloc_internal   Failed to alloc DEVICE memory: 180355072", with the use of the core below it.
std::optional<Symptom> neuron(const Place& place) {
  Symptom s = symptom("neuron", "neuron", Memory::gpu);
  const std::string_view text = place.from().substr(0, 1200);
  set_tried(s, number_after(text, "DEVICE memory: "));
  if (const size_t use = text.find("current utilization:"); use != std::string_view::npos)
    s.allocated = size_after(text.substr(use), "total: ");
  return s.tried ? std::optional(s) : std::nullopt;
}

// "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`."
std::optional<Symptom> sglang_slots(const Place& place) {
  if (!is_complete_message(place)) return {};
  return symptom("sglang", "sglang", Memory::gpu);
}

// "ggml_new_object: not enough space in the context's memory pool (needed 184549744, available 2097152)"
std::optional<Symptom> ggml_pool(const Place& place) {
  Symptom s = symptom("ggml", "ggml", Memory::host);
  s.tried = number_after(place.after(), "(needed ");
  s.free = number_after(place.after(), "available ");
  return s.tried ? std::optional(s) : std::nullopt;
}

}  // namespace

std::vector<SymptomReader> runtime_readers() {
  const auto resources = [](const Place& p) { return sycl(p, Memory::gpu, Certainty::likely); };
  const auto device_memory = [](const Place& p) { return sycl(p, Memory::gpu, Certainty::certain); };
  const auto host_memory = [](const Place& p) { return sycl(p, Memory::host, Certainty::certain); };
  return {
      {"Failed to allocate memory for requested buffer of size ", onnxruntime},
      {"Error Code 2: OutOfMemory", tensorrt},
      {"Cuda Runtime (out of memory)", tensorrt},
      {"allocate: 2 (out of memory)", tensorrt},
      {"Cuda Error in allocate: 2", tensorrt},
      {"Requested amount of GPU memory ", tensorrt_request},
      {"Could not allocate tensor with ", directml},
      {"MODULE:PT_DEVMEM Allocation failed", habana},
      {"MODULE:SYNHELPER workspace Allocation of size", habana},
      {"kIOGPUCommandBufferCallbackErrorOutOfMemory", metal},
      {"[metal::malloc] ", mlx_malloc},
      {"[malloc_or_wait] ", mlx_malloc},
      {"ERROR_OUT_OF_DEVICE_MEMORY", device_memory},
      {"ERROR_OUT_OF_HOST_MEMORY", host_memory},
      {"PI_ERROR_OUT_OF_RESOURCES", resources},
      {"UR_RESULT_ERROR_OUT_OF_RESOURCES", resources},
      {"CL_OUT_OF_RESOURCES", resources},
      {"MEM_OBJECT_ALLOCATION_FAILURE", device_memory},
      {"Device memory allocation of size ", vulkan_size},
      {"ErrorOutOfDeviceMemory", vulkan},
      {"failed to allocate ", ggml_buffer},
      {"model requires more system memory ", ollama},
      {"std::bad_alloc: out_of_memory:", rmm},
      {"RMM failure at", rmm},
      {"Not enough memory to handle ", tgi},
      {"Not enough memory. Please try to ", sglang},
      {"CUSOLVER_STATUS_ALLOC_FAILED", cuda_library},
      {"CUSPARSE_STATUS_ALLOC_FAILED", cuda_library},
      {"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", cuda_library},
      {"CUFFT_ALLOC_FAILED", cuda_library},
      {"hipErrorOutOfMemory", hip},
      {"unlikely to have enough device memory. Requires ", xla_early},
      {"Memory_Allocation_Failure(EL0004)", ascend},
      {"failed to allocate memory [Op:", tensorflow_op},
      {"tokens that can be stored in KV cache", vllm_tokens},
      {"Failed to alloc DEVICE memory: ", neuron},
      {"alloc_req_slots runs out of memory", sglang_slots},
      {"not enough space in the context's memory pool", ggml_pool},
  };
}

}  // namespace plimsoll
