// Frameworks beside PyTorch, TensorFlow and JAX: boosted trees, Caffe, Darknet, Theano, MindSpore, Paddle's host side, MXNet, Julia,
// MATLAB; and what CUDA checks of programs print.
#include <algorithm>
#include <string>

#include "diagnose/printed_size.h"
#include "diagnose/symptom.h"
#include "diagnose/words.h"

namespace plimsoll {

namespace {

// "Memory allocation error on worker 0: ... - Free memory: 12582912 - Requested memory: 9232383"
std::optional<Symptom> xgboost(const Place& place) {
  Symptom s = symptom("xgboost", "xgboost", Memory::gpu);
  const std::string_view text = place.from().substr(0, 500);
  s.free = number_after(text, "Free memory: ");
  s.tried = number_after(text, "Requested memory: ");
  return s.tried || has(text, "out_of_memory") || has(text, "bad allocation") || has(text, "out of memory") ? std::optional(s)
                                                                                                            : std::nullopt;
}

// Paddle of 2018: "enforce allocating <= available failed, 10513462067 > 1369702144".
std::optional<Symptom> old_paddle(const Place& place) {
  Symptom s = symptom("paddle", "paddle", Memory::gpu);
  s.tried = number_after(place.from(), "failed, ");
  s.free = number_after(place.from(), " > ");
  return s.tried && s.free ? std::optional(s) : std::nullopt;
}

std::optional<Symptom> mxnet_cpu(const Place& place) {
  if (!is_complete_message(place)) return {};
  return symptom("mxnet", "mxnet", Memory::host);
}

// What a CUDA check of a program's own prints: "device_helpers.cuh(386): out of memory", "::cudaMallocAsync(...): out of memory
// (/app/...)".
std::optional<Symptom> checked_call(const Place& place) {
  const std::string_view line = place.line();
  const bool cuda = has(line, ".cu") || has(line, "cuda") || has(line, "CUDA");
  if (!cuda || !is_complete_message(place) || !ends_sentence(place.after())) return {};
  const bool pinned = has(place.before(), "cudaHostAlloc") || has(place.before(), "cudaMallocHost");
  const char* framework = has(line, "xgboost") ? "xgboost" : has(line, "TensorRT") || has(line, "tensorrt") ? "tensorrt" : "";
  return symptom(pinned ? "cuda_pinned" : "cuda_error", framework, pinned ? Memory::host : Memory::gpu);
}

// "terminate called after throwing an instance of 'thrust::system::detail::bad_alloc'\n  what():  std::bad_alloc: out of memory"
std::optional<Symptom> thrust(const Place& place) {
  if (!is_complete_message(place)) return {};
  return symptom("cuda_error", "", Memory::gpu);
}

// "RuntimeError: CUDA failure 2: out of memory ; GPU=0 ; hostname=... ; expr=cudaMalloc(...)" of ONNX Runtime and CNTK.
std::optional<Symptom> failure_two(const Place& place) {
  if (!is_complete_message(place)) return {};
  Symptom s = symptom("cuda_error", has(place.line(), "onnxruntime") || has(place.line(), "ONNXRuntime") ? "onnxruntime" : "", Memory::gpu);
  if (const auto n = number_after(place.after(), "GPU="); n && *n < 10000) s.device = static_cast<int>(*n);
  return s;
}

// LightGBM prints OpenCL's words: "Memory Object Allocation Failure", "Out of Host Memory"; and "[CUDA] out of memory FILE LINE".
std::optional<Symptom> lightgbm(const Place& place, Memory memory) {
  if (!has(place.text.substr(0, place.at), "opencl") && !has(place.line(), "what():") && !has(place.line(), "LightGBM")) return {};
  return symptom("lightgbm", "lightgbm", memory);
}

// "Error: Out of memory. Requested 8880 MB; Free 5902.061425 MB" of CatBoost; before 1.0 without the unit.
std::optional<Symptom> catboost(const Place& place) {
  const std::string_view text = place.from().substr(0, 200);
  const auto mebibytes = [&](std::string_view marker) -> std::optional<int64_t> {
    const size_t at = text.find(marker);
    if (at == std::string_view::npos) return {};
    const std::string_view number = text.substr(at + marker.size());
    return size_after(std::string(number.substr(0, number.find_first_not_of("0123456789."))) + " MB", "");
  };
  Symptom s = symptom("catboost", "catboost", Memory::gpu);
  s.tried = mebibytes(place.text.substr(place.at).starts_with("not enough") ? "need at least " : "Requested ");
  s.free = mebibytes(place.text.substr(place.at).starts_with("not enough") ? "tree-ctrs: " : "Free ");
  return s.tried && s.free ? std::optional(s) : std::nullopt;
}

// "syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0)  out of memory": 2 is cudaErrorMemoryAllocation.
std::optional<Symptom> caffe(const Place& place) {
  if (!has(place.before(), "Check failed")) return {};
  return symptom("cuda_error", "caffe", Memory::gpu);
}

// "   29 CUDA Error: out of memory\ndarknet: ./src/cuda.c:36: check_error: Assertion `0' failed.", after the number of a layer.
std::optional<Symptom> darknet(const Place& place) {
  const bool layer = place.before().find_first_not_of(" 0123456789") == std::string_view::npos;
  if (!layer && !is_message(place)) return {};
  if (has(place.line(), " in file ")) return {};  // bitsandbytes
  return symptom("cuda_error", has(place.from().substr(0, 300), "check_error") ? "darknet" : "", Memory::gpu);
}

// Theano: "MemoryError: Error allocating 411041792 bytes of device memory (out of memory)."
std::optional<Symptom> theano(const Place& place) {
  Symptom s = symptom("cuda_error", "theano", Memory::gpu);
  s.tried = number_after(place.from(), "allocating ");
  return s.tried && has(place.after().substr(0, 60), "bytes of device memory") ? std::optional(s) : std::nullopt;
}

// "TotalUsedMemStatistics : A plus TotalUsedByEventMemStatistics : B and plus alloc size : C is more than total mem size : D."
std::optional<Symptom> mindspore(const Place& place) {
  Symptom s = symptom("mindspore", "mindspore", Memory::gpu);
  s.tried = number_after(place.before(), "alloc size : ");
  s.allocated = number_after(place.before(), "TotalUsedMemStatistics : ");
  s.total = number_after(place.from(), "total mem size : ");
  return s.tried && s.total ? std::optional(s) : std::nullopt;
}

// "cudaHostAlloc failed, ret[2], out of memory", "Out of memory. Memory malloc failed." of its data pipeline.
std::optional<Symptom> mindspore_host(const Place& place) {
  if (!is_complete_message(place)) return {};
  const bool pinned = has(place.line(), "cudaHostAlloc");
  return symptom(pinned ? "cuda_pinned" : "mindspore", "mindspore", Memory::host);
}

// "cudaHostAlloc Cannot allocate 32 bytes in CUDAPinnedPlace", "Fail to alloc memory of 8589934592 size".
std::optional<Symptom> paddle_host(const Place& place) {
  const bool pinned = has(place.line(), "CUDAPinnedPlace");
  Symptom s = symptom(pinned ? "cuda_pinned" : "paddle", "paddle", Memory::host);
  s.tried = pinned ? size_after(place.line(), "Cannot allocate ") : number_after(place.from(), "alloc memory of ");
  return s.tried ? std::optional(s) : std::nullopt;
}

// Faiss: "failed to cudaMalloc 47064032 bytes (error 2 out of memory)", "size 1610612736 bytes (cudaMalloc error out of memory [2])".
std::optional<Symptom> faiss(const Place& place) {
  if (!is_complete_message(place)) return {};
  Symptom s = symptom("cuda_error", has(place.line(), "faiss") ? "faiss" : "", Memory::gpu);
  s.tried = size_after(place.before(), "udaMalloc ");
  if (!s.tried) s.tried = size_after(place.before(), " size ");
  if (const auto n = number_after(place.before(), " on device "); n && *n < 10000) s.device = static_cast<int>(*n);
  return s;
}

// OpenCV: "(-217:Gpu API call) out of memory in function 'allocate'", "Insufficient memory (Failed to allocate 2359296 bytes)",
// "(-4:Insufficient memory) Failed to allocate 95588562276 bytes".
std::optional<Symptom> opencv(const Place& place, Memory memory) {
  Symptom s = symptom(memory == Memory::gpu ? "cuda_error" : "bad_alloc", "opencv", memory);
  s.tried = size_after(place.from().substr(0, 120), "Failed to allocate ");
  return s.tried || memory == Memory::gpu ? std::optional(s) : std::nullopt;
}

// "Out of GPU memory trying to allocate 4.000 GiB\nEffective GPU memory usage: 99.71% (5.782 GiB/5.799 GiB)\nMemory pool usage: 2.852 GiB
// (5.656 GiB reserved)" of CUDA.jl.
std::optional<Symptom> julia(const Place& place) {
  const std::string_view text = place.from().substr(0, 400);
  const auto size = printed_size(place.after());
  if (!size || !is_complete_message(place)) return {};
  Symptom s = symptom("julia", "julia", Memory::gpu);
  s.tried = size->bytes;
  if (const size_t usage = text.find("GPU memory usage: "); usage != std::string_view::npos) s.total = size_after(text.substr(usage), "/");
  s.allocated = size_after(text, "Memory pool usage: ");
  s.reserved = size_before(text, " reserved)");
  return s;
}

// "Out of memory on device. You requested: 8.00Gb, device has 5.63Gb free." of MATLAB.
std::optional<Symptom> matlab(const Place& place) {
  Symptom s = symptom("matlab", "matlab", Memory::gpu);
  s.tried = size_after(place.from(), "You requested: ");
  s.free = size_after(place.from(), "device has ");
  return s.tried ? std::optional(s) : std::nullopt;
}

}  // namespace

std::vector<SymptomReader> framework_readers() {
  const auto lightgbm_device = [](const Place& p) { return lightgbm(p, Memory::gpu); };
  return {
      {"Memory allocation error on worker ", xgboost},
      {"enforce allocating <= available failed", old_paddle},
      {"Failed to allocate CPU Memory", mxnet_cpu},
      {"): out of memory", checked_call},
      {"CUDA runtime error in error: out of memory", checked_call},
      {"cudaErrorMemoryAllocation out of memory", checked_call},
      {"'cudaErrorMemoryAllocation'",
       [](const Place& p) {
         auto s = checked_call(p);
         if (s && has(p.text.substr(0, p.at + 600), "paddle")) s->framework = "paddle";
         return s;
       }},
      {"std::bad_alloc: out of memory", thrust},
      {"CUDA failure 2: out of memory", failure_two},
      {"Memory Object Allocation Failure", lightgbm_device},
      {"[CUDA] out of memory", lightgbm_device},
      {"Out of Host Memory", [](const Place& p) { return lightgbm(p, Memory::host); }},
      {"Out of memory. Requested ", catboost},
      {"not enough memory for tree-ctrs: ", catboost},
      {"cudaSuccess (2 vs. 0)", caffe},
      {"CUDA Error: out of memory", darknet},
      {"Error allocating ", theano},
      {"is more than total mem size : ", mindspore},
      {"cudaHostAlloc failed, ret[2], out of memory", mindspore_host},
      {"Out of memory. Memory malloc failed", mindspore_host},
      {"in CUDAPinnedPlace", paddle_host},
      {"Fail to alloc memory of ", paddle_host},
      {"error 2 out of memory", faiss},
      {"(cudaMalloc error out of memory", faiss},
      {"GPU memory allocation failed", thrust},
      {"(-217:Gpu API call) out of memory", [](const Place& p) { return opencv(p, Memory::gpu); }},
      {"nsufficient memory", [](const Place& p) { return opencv(p, Memory::host); }},
      {"Out of GPU memory trying to allocate ", julia},
      {"Out of memory on device. You requested: ", matlab},
  };
}

}  // namespace plimsoll
