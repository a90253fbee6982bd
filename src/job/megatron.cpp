#include "job/megatron.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "job/fields.h"
#include "job/processes.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr std::pair<const char*, MegatronAttention> kMegatronAttentions[]{
    {"fused", MegatronAttention::fused}, {"flash", MegatronAttention::flash}, {"unfused", MegatronAttention::unfused}};

std::vector<int64_t> layers_of(const Config& c) {
  std::vector<int64_t> out;
  const Json* list = c.find({"layers"});
  if (!list) return out;
  if (!list->is_array())
    throw Error("[megatron] layers is no list", "one number for each stage, e.g. layers: [7, 8, 8, 7], or layers=7+8+8+7");
  for (const Json& n : *list) {
    if (!n.is_number_integer() || n.get<int64_t>() < 0 || n.get<int64_t>() > 100000)
      throw Error("[megatron] layers: " + n.dump() + " is no number of layers", "one number for each stage, e.g. [7, 8, 8, 7]");
    out.push_back(n.get<int64_t>());
  }
  return out;
}

}  // namespace

MegatronSettings parse_megatron(const Json& value) {
  const Config c = fields_of(value, "megatron",
                             {"world", "tensor", "pipeline", "virtual_stages", "context", "expert", "expert_tensor", "sequence",
                              "distributed_optimizer", "overlap", "fused_gradients", "fused_loss", "fused_residual", "local", "all_to_all",
                              "attention_mask", "layers", "stage", "attention"},
                             "e.g. megatron: {world: 16, tensor: 4, pipeline: 2} or --megatron world=16,tensor=4,pipeline=2");
  MegatronSettings m;
  m.tensor = degree_of(c, "tensor");
  m.pipeline = degree_of(c, "pipeline");
  m.virtual_stages = degree_of(c, "virtual_stages");
  m.context = degree_of(c, "context");
  m.expert = degree_of(c, "expert");
  if (c.find({"expert_tensor"})) m.expert_tensor = degree_of(c, "expert_tensor");
  const int64_t model = m.tensor * m.pipeline * m.context;
  m.world = c.find({"world"}) ? degree_of(c, "world") : model;
  if (m.world % model != 0)
    throw Error(
        fmt::format("[megatron] world {} is no multiple of tensor {} x pipeline {} x context {}", m.world, m.tensor, m.pipeline, m.context),
        nearest_multiples(model, m.world));
  const int64_t experts = m.expert * m.expert_tensor_size() * m.pipeline;
  if (m.world % experts != 0)
    throw Error(fmt::format("[megatron] world {} is no multiple of expert {} x expert_tensor {} x pipeline {}", m.world, m.expert,
                            m.expert_tensor_size(), m.pipeline),
                nearest_multiples(experts, m.world));
  m.sequence = c.flag({"sequence"}, false);
  m.distributed_optimizer = c.flag({"distributed_optimizer"}, true);
  m.overlap = c.flag({"overlap"}, false);
  m.fused_gradients = c.flag({"fused_gradients"}, true);
  m.fused_loss = c.flag({"fused_loss"}, false);
  m.fused_residual = c.flag({"fused_residual"}, true);
  m.local = c.flag({"local"}, false);
  m.all_to_all = c.flag({"all_to_all"}, false);
  m.attention_mask = c.flag({"attention_mask"}, false);
  m.layers = layers_of(c);
  if (!m.layers.empty() && static_cast<int64_t>(m.layers.size()) != m.pipeline * m.virtual_stages)
    throw Error(fmt::format("[megatron] layers has {} numbers, but there are {} stages of {} chunks", m.layers.size(), m.pipeline,
                            m.virtual_stages),
                "give one number for each");
  if (m.virtual_stages > 1 && m.pipeline == 1)
    throw Error(fmt::format("[megatron] virtual_stages {} without a pipeline", m.virtual_stages),
                "set pipeline too, or leave virtual_stages out");
  if (c.find({"stage"})) {
    m.stage = c.integer({"stage"}, 0);
    if (*m.stage < 0 || *m.stage >= m.pipeline)
      throw Error(fmt::format("[megatron] stage {} is not one of 0 to {}", *m.stage, m.pipeline - 1),
                  "leave it out for the largest of them");
  }
  const std::string attention = c.text({"attention"}, m.local ? "unfused" : "fused");
  const auto* found =
      std::find_if(std::begin(kMegatronAttentions), std::end(kMegatronAttentions), [&](const auto& a) { return a.first == attention; });
  if (found == std::end(kMegatronAttentions))
    throw Error(fmt::format("[megatron] attention '{}' is not known", attention), "known: fused, flash, unfused");
  m.attention = found->second;
  return m;
}

nlohmann::ordered_json to_json(const MegatronSettings& m) {
  nlohmann::ordered_json j{{"world", m.world},
                           {"tensor", m.tensor},
                           {"pipeline", m.pipeline},
                           {"virtual_stages", m.virtual_stages},
                           {"context", m.context},
                           {"expert", m.expert},
                           {"expert_tensor", m.expert_tensor_size()},
                           {"sequence", m.sequence},
                           {"distributed_optimizer", m.distributed_optimizer},
                           {"overlap", m.overlap},
                           {"fused_gradients", m.fused_gradients},
                           {"fused_loss", m.fused_loss},
                           {"fused_residual", m.fused_residual},
                           {"local", m.local},
                           {"all_to_all", m.all_to_all},
                           {"attention_mask", m.attention_mask}};
  if (!m.layers.empty()) j["layers"] = m.layers;
  if (m.stage) j["stage"] = *m.stage;
  for (const auto& [name, kind] : kMegatronAttentions)
    if (kind == m.attention) j["attention"] = name;
  return j;
}

std::string to_string(const MegatronSettings& m) {
  std::string out = "Megatron on " + std::to_string(m.world);
  const auto add = [&](const char* name, int64_t n) {
    if (n > 1) out += fmt::format("{} {} {}", out.find(':') == std::string::npos ? ":" : " x", name, n);
  };
  add("tensor", m.tensor);
  add("pipeline", m.pipeline);
  add("context", m.context);
  add("data", m.data());
  if (m.expert > 1) out += fmt::format(", experts over {}", m.expert);
  return out;
}

}  // namespace plimsoll
