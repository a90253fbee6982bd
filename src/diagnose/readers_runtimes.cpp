// Runtimes beside the big frameworks (ONNX Runtime, TensorRT, DirectML, Gaudi, Metal, SYCL, Vulkan, RMM), and who ends a job for its memory
// on clusters and desktops (Ray, Dask, PBS, LSF, YARN, systemd-oomd, Windows, notebooks).
#include <algorithm>
#include <string>

#include "diagnose/printed_size.h"
#include "diagnose/symptom.h"

namespace plimsoll {

namespace {

constexpr int64_t kExbibyte = int64_t{1} << 60;

bool has(std::string_view text, std::string_view word) { return text.find(word) != std::string_view::npos; }

Symptom symptom(const char* kind, const char* framework, Memory memory) {
  Symptom s;
  s.kind = kind;
  s.framework = framework;
  s.memory = memory;
  return s;
}

// A number without a unit that counts bytes. One beyond an exbibyte is a corrupted size.
void set_tried(Symptom& s, std::optional<int64_t> bytes) {
  if (bytes && *bytes >= kExbibyte) {
    s.impossible_size = true;
  } else {
    s.tried = bytes;
  }
}

// --- runtimes

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
  s.tried = number_after(place.from().substr(0, 400), "Requested amount of GPU memory (");
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

// "Memory allocation error on worker 0: ... - Free memory: 12582912 - Requested memory: 9232383"
std::optional<Symptom> xgboost(const Place& place) {
  Symptom s = symptom("xgboost", "xgboost", Memory::gpu);
  const std::string_view text = place.from().substr(0, 500);
  s.free = number_after(text, "Free memory: ");
  s.tried = number_after(text, "Requested memory: ");
  return s.tried || has(text, "out_of_memory") || has(text, "bad allocation") ? std::optional(s) : std::nullopt;
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

// Paddle of 2018: "enforce allocating <= available failed, 10513462067 > 1369702144".
std::optional<Symptom> old_paddle(const Place& place) {
  Symptom s = symptom("paddle", "paddle", Memory::gpu);
  s.tried = number_after(place.from(), "failed, ");
  s.free = number_after(place.from(), " > ");
  return s.tried && s.free ? std::optional(s) : std::nullopt;
}

// "Memory_Allocation_Failure(EL0004): Failed to allocate memory."
std::optional<Symptom> ascend(const Place&) { return symptom("pytorch_npu", "", Memory::gpu); }

std::optional<Symptom> mxnet_cpu(const Place& place) {
  if (!is_complete_message(place)) return {};
  return symptom("mxnet", "mxnet", Memory::host);
}

// --- who ends jobs

// "Memory on the node (...) where the task (...) was running was 59.49GB / 62.58GB (0.950744), which exceeds the memory usage threshold"
std::optional<Symptom> ray(const Place& place) {
  if (!is_complete_message(place)) return {};
  Symptom s = symptom("ray", "ray", Memory::host);
  const std::string_view text = place.from().substr(0, 700);
  s.allocated = size_after(text, "was running was ");
  if (const size_t at = text.find("was running was "); at != std::string_view::npos) s.total = size_after(text.substr(at), " / ");
  return s;
}

// "12 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed"
std::optional<Symptom> ray_workers(const Place& place) {
  std::string_view before = place.before();
  const size_t digit = before.find_last_not_of("0123456789");
  const std::string_view count = before.substr(digit == std::string_view::npos ? 0 : digit + 1);
  if (count.empty() || count.find_first_not_of('0') == std::string_view::npos) return {};
  return symptom("ray", "ray", Memory::host);
}

// "distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting"
std::optional<Symptom> dask(const Place& place) {
  if (!has(place.after().substr(0, 40), "memory budget")) return {};
  return symptom("dask", "dask", Memory::host);
}

// "=>> PBS: job killed: mem 38427376kb exceeded limit 33554432kb"; vmem is in bytes without a unit.
std::optional<Symptom> pbs(const Place& place) {
  const std::string_view line = place.line();
  if (!has(line, "mem ") || !has(line, "exceeded limit")) return {};
  Symptom s = symptom("pbs", "", Memory::host);
  const auto amount = [&](std::string_view marker) {
    return size_after(line, marker) ? size_after(line, marker) : number_after(line, marker);
  };
  s.allocated = amount("mem ");
  s.total = amount("exceeded limit ");
  return s;
}

std::optional<Symptom> torque(const Place&) { return symptom("pbs", "", Memory::host); }

// "job 3132467 exceeded MEM usage hard limit (2528 > 1126)", in MiB.
std::optional<Symptom> moab(const Place& place) {
  Symptom s = symptom("pbs", "", Memory::host);
  const auto used = number_after(place.after(), "("), limit = number_after(place.after(), " > ");
  if (!used || !limit || *used > 1 << 30 || *limit > 1 << 30) return {};
  s.allocated = *used << 20;
  s.total = *limit << 20;
  return s;
}

// "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit." with a summary of what was used and requested after it.
std::optional<Symptom> lsf(const Place& place) {
  if (!has(place.line(), "job killed")) return {};
  Symptom s = symptom("lsf", "", Memory::host);
  const std::string_view text = place.from().substr(0, 1200);
  const auto figure = [&](std::string_view name) -> std::optional<int64_t> {
    const size_t at = text.find(name);
    if (at == std::string_view::npos) return {};
    const std::string_view rest = text.substr(at + name.size());
    const size_t digit = rest.find_first_of("0123456789"), end = rest.find('\n');
    return digit == std::string_view::npos || digit > end ? std::nullopt : size_after(rest.substr(digit, end - digit), "");
  };
  s.allocated = figure("Max Memory :");
  s.total = figure("Total Requested Memory :");
  return s;
}

// "Container killed by YARN for exceeding memory limits. 20.0 GB of 20 GB physical memory used."
std::optional<Symptom> yarn(const Place& place) {
  const std::string_view text = place.from().substr(0, 200);
  if (!has(text, "memory limits")) return {};
  Symptom s = symptom("yarn", "", Memory::host);
  s.allocated = size_before(text, " of ");
  s.total = size_after(text, " of ");
  return s;
}

std::optional<Symptom> java(const Place& place) {
  if (has(place.before(), "catch") || has(place.before(), "//") || has(place.before(), "XX:")) return {};
  return symptom("java_heap", "java", Memory::host);
}

// "# There is insufficient memory for the Java Runtime Environment to continue.", with the size in the next line.
std::optional<Symptom> java_native(const Place& place) {
  Symptom s = symptom("java_heap", "java", Memory::host);
  s.tried = number_after(place.from().substr(0, 300), "failed to allocate ");
  return s;
}

std::optional<Symptom> node_heap(const Place& place) {
  if (!is_complete_message(place)) return {};
  return symptom("node_heap", "", Memory::host);
}

// "systemd-oomd[840]: Killed /user.slice/... due to memory pressure for ..."
std::optional<Symptom> oomd(const Place& place) {
  if (!has(place.before(), "Killed ") && !has(place.before(), "Marked ")) return {};
  return symptom("systemd_oomd", "", Memory::host);
}

std::optional<Symptom> oomd_unit(const Place& place) {
  const auto killed = number_after(place.from(), "systemd-oomd killed ");
  return killed && *killed > 0 ? std::optional(symptom("systemd_oomd", "", Memory::host)) : std::nullopt;
}

std::optional<Symptom> systemd_unit(const Place&) { return symptom("kernel_oom", "", Memory::host); }

// "[WinError 1455] The paging file is too small for this operation to complete", in the words of any language.
std::optional<Symptom> paging_file(const Place& place) {
  if (has(place.before(), "if you") || has(place.before(), "solve") || has(place.before(), "//")) return {};
  return symptom("windows_commit", "", Memory::host);
}

std::optional<Symptom> notebook(const Place&) { return symptom("notebook", "", Memory::host); }

Symptom likely_killed() {
  Symptom s = symptom("sigkill", "", Memory::host);
  s.certainty = Certainty::likely;
  return s;
}

// "zsh: killed     python train.py", "Killed: 9" on macOS: what a shell says, at the beginning of a line.
std::optional<Symptom> killed(const Place& place) {
  const std::string_view before = place.before();
  if (before.find_first_not_of(" \t") != std::string_view::npos && !has(before, "line ")) return {};
  return likely_killed();
}

std::optional<Symptom> loky(const Place&) { return likely_killed(); }

// What `docker inspect` says of a container.
std::optional<Symptom> docker(const Place&) { return symptom("cgroup_oom", "", Memory::host); }

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
      {"CL_MEM_OBJECT_ALLOCATION_FAILURE", device_memory},
      {"Device memory allocation of size ", vulkan_size},
      {"ErrorOutOfDeviceMemory", vulkan},
      {"failed to allocate ", ggml_buffer},
      {"model requires more system memory ", ollama},
      {"std::bad_alloc: out_of_memory:", rmm},
      {"RMM failure at", rmm},
      {"Memory allocation error on worker ", xgboost},
      {"Not enough memory to handle ", tgi},
      {"Not enough memory. Please try to ", sglang},
      {"CUSOLVER_STATUS_ALLOC_FAILED", cuda_library},
      {"CUSPARSE_STATUS_ALLOC_FAILED", cuda_library},
      {"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", cuda_library},
      {"CUFFT_ALLOC_FAILED", cuda_library},
      {"hipErrorOutOfMemory", hip},
      {"unlikely to have enough device memory. Requires ", xla_early},
      {"enforce allocating <= available failed", old_paddle},
      {"Memory_Allocation_Failure(EL0004)", ascend},
      {"Failed to allocate CPU Memory", mxnet_cpu},
      {"Task was killed due to the node running low on memory", ray},
      {" Workers (tasks / actors) killed due to memory pressure", ray_workers},
      {"Worker exceeded ", dask},
      {"PBS: job killed: ", pbs},
      {"Job exceeded a memory resource limit", torque},
      {"exceeded MEM usage hard limit", moab},
      {"TERM_MEMLIMIT", lsf},
      {"killed by YARN for exceeding ", yarn},
      {"java.lang.OutOfMemoryError", java},
      {"insufficient memory for the Java Runtime Environment", java_native},
      {"JavaScript heap out of memory", node_heap},
      {" due to memory pressure for ", oomd},
      {"systemd-oomd killed ", oomd_unit},
      {"A process of this unit has been killed by the OOM killer", systemd_unit},
      {"WinError 1455", paging_file},
      {"os error 1455", paging_file},
      {"error code: <1455>", paging_file},
      {"paging file is too small", paging_file},
      {"crashed after using all available RAM", notebook},
      {"zsh: killed ", killed},
      {"Killed: 9", killed},
      {"exit codes of the workers are {SIGKILL(-9)", loky},
      {"\"OOMKilled\": true", docker},
      {"failed to allocate memory [Op:", tensorflow_op},
      {"tokens that can be stored in KV cache", vllm_tokens},
  };
}

}  // namespace plimsoll
