// An exponential moving average of the weights: where it lies, in which type, and whose code updates it. Plain data; step/ema.h acts on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/problem.h"

namespace plimsoll {

struct Setting;

enum class EmaPlace : uint8_t { device, host };
enum class EmaType : uint8_t { weights, fp32, bf16, fp16 };
enum class EmaUpdate : uint8_t {
  loop,               // shadow.sub_(one_minus_decay * (shadow - parameter)), parameter by parameter
  diffusers,          // diffusers' EMAModel: the same for what is trained; what is frozen is copied
  diffusers_foreach,  // EMAModel(foreach=True): all parameters at once
  lerp,               // shadow.lerp_(parameter, one_minus_decay), the hand-written loop
  averaged_model,     // torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn
  ai_toolkit,         // the AI Toolkit's: of what is trained alone, each difference in fp32
};

struct EmaSettings {
  EmaPlace place = EmaPlace::device;
  EmaType dtype = EmaType::weights;
  EmaUpdate update = EmaUpdate::loop;
};

const char* to_string(EmaPlace p);
const char* to_string(EmaType t);
const char* to_string(EmaUpdate u);
EmaPlace parse_ema_place(const std::string& text);
EmaType parse_ema_type(const std::string& text);
EmaUpdate parse_ema_update(const std::string& text);
std::string to_string(const EmaSettings& e);  // "EMA", "EMA fp32 on the host"

// What the library that updates cannot do.
void check(const EmaSettings& e, Problems& out);

// The entries of job_settings() for them.
std::vector<Setting> ema_setting_entries();

}  // namespace plimsoll
