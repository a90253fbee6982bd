#include "plan/device_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace plimsoll {

namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

// The best that torch.mm reaches in bf16 on any shape, as a part of the dense peak: stas00/ml-engineering, compute/accelerator, "Maximum
// Achievable Matmul FLOPS" (A100 SXM 86.9 %, PCIe 81.1 %, H100 80.3 %, B200 77.6 %, MI300X 51.4 %, MI325X 60.4 %, MI355X 68.0 %, Gaudi 2
// and 3 96.9 and 74.1 %). GeForce and workstation cards are not held back by their memory: an L20 reaches 105 to 115 of 119.5 TFLOPS
// (DefTruth/CUDA-Learn-Notes, hgemm). Volta, Turing and CDNA2 are in neither source: taken lower than their successors.
struct Achievable {
  const char* arch;
  bool datacenter;
  double matmul;
};
constexpr Achievable kAchievable[] = {
    {"Ampere", true, 0.85}, {"Hopper", true, 0.80},     {"Blackwell", true, 0.77}, {"Volta", true, 0.74},   {"CDNA2", true, 0.55},
    {"CDNA3", true, 0.56},  {"CDNA4", true, 0.68},      {"Gaudi", true, 0.80},     {"Ampere", false, 0.93}, {"Ada", false, 0.93},
    {"Ada", true, 0.9},     {"Blackwell", false, 0.85}, {"Turing", false, 0.75},   {"Turing", true, 0.6},
};
constexpr double kAchievableElsewhere = 0.6;

// The shapes of a model are not the best ones: tiles and waves that do not come out even. Set on published runs (docs/time.md).
constexpr double kUsualShapes = 0.92;

// FlashAttention-2 (Dao 2023, figures 4 to 6): forward up to 73 % of an A100's peak, backward up to 63 %; on an H100, for which it was not
// written, 35 to 40 %. Both passes together, at usual head sizes.
constexpr double kAttention = 0.55, kAttentionHopper = 0.35;

// Convolutions are GEMMs with a worse inner loop, and small in the first layers; calibrated on ResNet-50 (docs/time.md).
constexpr double kConvolution = 0.7;
// Plain CUDA cores: cuBLAS SGEMM reaches nine tenths; a scan waits for its own results.
constexpr double kFp32Cores = 0.9, kScan = 0.3;

// Copies of large arrays reach about nine tenths of the memory's peak, element-wise kernels somewhat less.
constexpr double kMemory = 0.8;

// Of one direction of a link: usual readings of copies from pinned memory (25 of 31.5 GB/s on PCIe 4.0 x16) and of NCCL between A100s (230
// of 300 GB/s). All-reduce over PCIe goes through the host: half as fast.
constexpr double kHostLink = 0.8, kNvlink = 0.77, kRingOverPcie = 0.4;

// Gigabytes a second of one lane, after encoding.
double lane(int generation) { return generation >= 5 ? 3.938 : generation == 4 ? 1.969 : 0.985; }

int host_generation(const std::string& arch) {
  if (arch == "Hopper" || arch == "Blackwell" || arch == "CDNA3" || arch == "CDNA4") return 5;
  return arch == "Volta" || arch == "Turing" || arch == "Pascal" ? 3 : 4;
}

struct Pcie {
  int generation = 0, lanes = 16;
};

// "NVLink3 bridge + PCIe 4.0 x16" -> {4, 16}; a link that is not named is the one that boards of this generation have.
Pcie pcie_of(const DeviceSpec& device) {
  Pcie p;
  const size_t at = device.interconnect.find("PCIe ");
  if (at != std::string::npos) p.generation = std::atoi(device.interconnect.c_str() + at + 5);
  const size_t lanes = at == std::string::npos ? at : device.interconnect.find(" x", at);
  if (lanes != std::string::npos) p.lanes = std::max(1, std::atoi(device.interconnect.c_str() + lanes + 2));
  if (p.generation == 0) p.generation = host_generation(device.arch);
  return p;
}

double achievable_matmul(const DeviceSpec& d) {
  const bool datacenter = d.segment == "datacenter" || d.segment == "cloud-tpu";
  for (const Achievable& a : kAchievable)
    if (d.arch == a.arch && datacenter == a.datacenter) return a.matmul;
  return kAchievableElsewhere;
}

bool before_ampere(const DeviceSpec& d) { return d.vendor == "NVIDIA" && std::atof(d.compute_capability.c_str()) < 8.0; }

}  // namespace

DeviceRates::DeviceRates(const DeviceSpec& device, Framework framework)
    : device_(device),
      framework_(framework),
      matmul_(achievable_matmul(device) * kUsualShapes),
      attention_(std::min(matmul_, device.arch == "Hopper" || device.arch == "Blackwell" ? kAttentionHopper : kAttention)) {
  if (device.bandwidth_gbs) memory_ = *device.bandwidth_gbs * kGiga * kMemory;
  const Pcie pcie = pcie_of(device);
  const double raw = lane(pcie.generation) * pcie.lanes * kGiga;
  const bool is_named = device.interconnect.find("PCIe ") != std::string::npos;
  host_link_ = raw * kHostLink;
  if (device.memory == MemoryKind::unified && memory_) host_link_ = *memory_ / 2;  // a copy within one memory
  if (!is_named && device.memory == MemoryKind::discrete)
    assume(fmt::format("its link to the host is taken to be PCIe {}.0 x16", pcie.generation));
  // Vendors add both directions up.
  ring_ = device.interconnect_gbs ? *device.interconnect_gbs / 2 * kGiga * kNvlink : raw * kRingOverPcie;
}

void DeviceRates::assume(const std::string& text) const {
  if (std::find(assumptions_.begin(), assumptions_.end(), text) == assumptions_.end()) assumptions_.push_back(text);
}

// PyTorch multiplies fp32 in fp32 (allow_tf32 of matmul is off), convolves it in TF32 where there is such (cuDNN's is on). bf16 before
// Ampere is emulated by fp32; where no rate of a half type is known, the fp32 one is taken, which is a lower bound.
std::optional<double> DeviceRates::peak(Unit unit, DType dtype) const {
  const DeviceSpec& d = device_;
  const auto tera = [](std::optional<double> t) { return t ? std::optional(*t * kTera) : std::nullopt; };
  if (unit == Unit::scan) return tera(d.fp32_tflops);
  if (dtype == DType::bfloat16) {
    if (d.bf16_tflops) return tera(d.bf16_tflops);
    if (d.fp32_tflops) assume(before_ampere(d) ? "bf16 is emulated: the fp32 rate" : "no bf16 rate is known: the fp32 rate");
    return tera(d.fp32_tflops);
  }
  if (dtype == DType::float16) {
    if (d.fp16_tflops) return tera(d.fp16_tflops);
    if (d.bf16_tflops) return tera(d.bf16_tflops);
    if (d.fp32_tflops) assume("no fp16 rate is known: the fp32 rate");
    return tera(d.fp32_tflops);
  }
  if (unit == Unit::convolution && d.tf32_tflops) return tera(d.tf32_tflops);
  // XLA's default precision of fp32 products: bf16 on a TPU, TF32 where there is such.
  if (framework_ == Framework::jax && d.vendor == "Google") return tera(d.bf16_tflops);
  if (framework_ == Framework::jax && d.tf32_tflops) return tera(d.tf32_tflops);
  return tera(d.fp32_tflops);
}

std::optional<double> DeviceRates::flops(Unit unit, DType dtype) const {
  const std::optional<double> top = peak(unit, dtype);
  if (!top) return std::nullopt;
  if (unit == Unit::scan) return *top * kScan;
  const bool ordinary_cores = top == (device_.fp32_tflops ? std::optional(*device_.fp32_tflops * kTera) : std::nullopt);
  const double gemm = ordinary_cores ? kFp32Cores * kUsualShapes : matmul_;
  if (unit == Unit::attention) return *top * std::min(gemm, attention_);
  return *top * gemm * (unit == Unit::convolution && !ordinary_cores ? kConvolution : 1);
}

}  // namespace plimsoll
