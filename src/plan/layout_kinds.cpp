#include "plan/layout_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "util/text.h"

namespace plimsoll {

const std::vector<LayoutKind>& layout_kinds() {
  static const std::vector<nlohmann::json> kPyTorch{false, "save=matmuls", true}, kTorchtitan{false, "save=torchtitan", true},
      kMegatron{false, true};
  static const std::vector<LayoutKind> kKinds{
      {"ddp", "DDP", ddp_spreads, kPyTorch, nullptr},
      {"zero1", "ZeRO-1", zero1_spreads, kPyTorch, nullptr},
      {"zero", "DeepSpeed", deepspeed_spreads, kPyTorch, nullptr},
      {"fsdp1", "FSDP1", fsdp1_spreads, kPyTorch, nullptr},
      {"fsdp2", "FSDP2", fsdp2_spreads, kPyTorch, nullptr},
      {"tensor_parallel", "TP", tensor_parallel_spreads, kPyTorch, nullptr},
      {"fsdp2_tp", "FSDP2 x TP", fsdp2_tensor_spreads, kPyTorch, nullptr},
      {"torchtitan", "torchtitan", torchtitan_spreads, kTorchtitan, torchtitan_ranks},
      {"megatron", "Megatron-LM", megatron_spreads, kMegatron, megatron_ranks},
  };
  return kKinds;
}

void check_layout_kinds(const std::set<std::string>& names) {
  std::vector<std::string> known;
  for (const LayoutKind& k : layout_kinds()) known.emplace_back(k.name);
  for (const std::string& name : names)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error(fmt::format("[plan] '{}' is no kind of layout", printable(name, 60)), did_you_mean(name, known), ExitCode::usage);
}

}  // namespace plimsoll
