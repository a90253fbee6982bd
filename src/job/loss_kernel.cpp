#include "job/loss_kernel.h"

#include <array>
#include <nlohmann/json.hpp>

#include "job/tuning.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr std::array kNames{"model", "liger", "chunked", "chunked-output", "cut"};

}  // namespace

const char* to_string(LossKernel k) { return kNames[static_cast<size_t>(k)]; }

LossKernel parse_loss_kernel(const std::string& text) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (text == kNames[i]) return static_cast<LossKernel>(i);
  throw Error("[job] loss_kernel '" + text + "' is not known", did_you_mean(text, {kNames.begin(), kNames.end()}));
}

LigerKernels parse_liger_kernels(const nlohmann::json& value) {
  if (value == "none" || value == false || value.is_null() || value == nlohmann::json::array()) return {};
  if (value == "all" || value == true) return {true, true, true};
  LigerKernels kernels;
  for (const std::string& name : parse_name_list(value, "liger_kernels")) {
    if (name == "rope")
      kernels.rope = true;
    else if (name == "rms_norm")
      kernels.rms_norm = true;
    else if (name == "swiglu" || name == "geglu")
      kernels.swiglu = true;
    else
      throw Error("[job] liger_kernels '" + name + "' is not known", "known: rope, rms_norm, swiglu, all; the loss is loss_kernel: liger");
  }
  return kernels;
}

}  // namespace plimsoll
