#include "job/ema.h"

#include <array>

#include "job/named_value.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr std::array<const char*, 2> kPlaces{"device", "host"};
constexpr std::array<const char*, 4> kEmaTypes{"weights", "fp32", "bf16", "fp16"};
constexpr std::array<const char*, 6> kUpdates{"loop", "diffusers", "diffusers-foreach", "lerp", "averaged-model", "ai-toolkit"};

// Any of them turns ema on, and they say nothing without it.
Field<Job> of_average(Field<Job> f) {
  f.read = [read = std::move(f.read), key = f.key](Job& j, const Config& c) {
    read(j, c);
    j.ema = j.ema || c.find({key});
  };
  f.print = [print = std::move(f.print)](const Job& j) { return j.ema ? print(j) : nlohmann::ordered_json(nullptr); };
  return f;
}

}  // namespace

const char* to_string(EmaPlace p) { return kPlaces[static_cast<size_t>(p)]; }
const char* to_string(EmaType t) { return kEmaTypes[static_cast<size_t>(t)]; }
const char* to_string(EmaUpdate u) { return kUpdates[static_cast<size_t>(u)]; }
EmaPlace parse_ema_place(const std::string& text) { return one_of<EmaPlace>(kPlaces, text, "ema_place"); }
EmaType parse_ema_type(const std::string& text) { return one_of<EmaType>(kEmaTypes, text, "ema_dtype"); }
EmaUpdate parse_ema_update(const std::string& text) { return one_of<EmaUpdate>(kUpdates, text, "ema_update"); }

std::string to_string(const EmaSettings& e) {
  std::string out = "EMA";
  if (e.dtype != EmaType::weights) out += std::string(" ") + to_string(e.dtype);
  if (e.place == EmaPlace::host) out += " on the host";
  if (e.update != EmaUpdate::loop) out += std::string(" (") + to_string(e.update) + ")";
  return out;
}

void check(const EmaSettings& e, Problems& out) {
  if (e.update == EmaUpdate::averaged_model && e.dtype != EmaType::weights)
    out.push_back({std::string("[job] ema_dtype ") + to_string(e.dtype) +
                       ": AveragedModel copies the model as it is, and its foreach lerp does not mix types",
                   "leave ema_dtype out, or take ema_update diffusers or lerp"});
  if (e.update == EmaUpdate::ai_toolkit && (e.dtype != EmaType::weights || e.place == EmaPlace::host))
    out.push_back({"[job] ema_update ai-toolkit keeps the average beside the weights, in their type", "leave ema_dtype and ema_place out"});
}

std::vector<Setting> ema_setting_entries() {
  return {
      {of_average(field::word("ema_place", parse_ema_place, &Job::averaging, &EmaSettings::place)), "device|host",
       "where the average lies between updates; any ema_ setting turns ema on (default device)"},
      {of_average(field::word("ema_dtype", parse_ema_type, &Job::averaging, &EmaSettings::dtype)), "weights|fp32|bf16|fp16",
       "the average's type (default: as the weights)"},
      {of_average(field::word("ema_update", parse_ema_update, &Job::averaging, &EmaSettings::update)),
       "loop|diffusers|diffusers-foreach|lerp|averaged-model|ai-toolkit",
       "how it is updated: a loop of differences, diffusers' EMAModel, a loop of lerp_, torch's AveragedModel, or the AI Toolkit's"},
  };
}

}  // namespace plimsoll
