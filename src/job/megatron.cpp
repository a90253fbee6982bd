#include "job/megatron.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

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

// Where world is not given it is the ranks that have different parts of one model.
void read_megatron_world(MegatronSettings& m, const Config& c) {
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
}

void read_megatron_layers(MegatronSettings& m, const Config& c) {
  m.layers = layers_of(c);
  if (!m.layers.empty() && static_cast<int64_t>(m.layers.size()) != m.pipeline * m.virtual_stages)
    throw Error(fmt::format("[megatron] layers has {} numbers, but there are {} stages of {} chunks", m.layers.size(), m.pipeline,
                            m.virtual_stages),
                "give one number for each");
  if (m.virtual_stages > 1 && m.pipeline == 1)
    throw Error(fmt::format("[megatron] virtual_stages {} without a pipeline", m.virtual_stages),
                "set pipeline too, or leave virtual_stages out");
}

void read_megatron_attention(MegatronSettings& m, const Config& c) {
  const std::string attention = c.text({"attention"}, m.local ? "unfused" : "fused");
  const auto* found =
      std::find_if(std::begin(kMegatronAttentions), std::end(kMegatronAttentions), [&](const auto& a) { return a.first == attention; });
  if (found == std::end(kMegatronAttentions))
    throw Error(fmt::format("[megatron] attention '{}' is not known", attention), "known: fused, flash, unfused");
  m.attention = found->second;
}

const char* attention_name(const MegatronSettings& m) {
  for (const auto& [name, kind] : kMegatronAttentions)
    if (kind == m.attention) return name;
  return "";
}

const Mapping<MegatronSettings>& megatron_mapping() {
  using S = MegatronSettings;
  static const Mapping<S> kMapping{
      "megatron",
      "e.g. megatron: {world: 16, tensor: 4, pipeline: 2} or --megatron world=16,tensor=4,pipeline=2",
      {field::degree("tensor", &S::tensor),
       field::degree("pipeline", &S::pipeline),
       field::degree("virtual_stages", &S::virtual_stages),
       field::degree("context", &S::context),
       field::degree("expert", &S::expert),
       {"expert_tensor",
        [](S& m, const Config& c) {
          if (c.find({"expert_tensor"})) m.expert_tensor = degree_of(c, "expert_tensor");
        },
        [](const S& m) { return m.expert_tensor_size(); }},
       {"world", read_megatron_world, [](const S& m) { return m.world; }},
       field::flag("sequence", &S::sequence),
       field::flag("distributed_optimizer", &S::distributed_optimizer),
       field::flag("overlap", &S::overlap),
       field::flag("fused_gradients", &S::fused_gradients),
       field::flag("fused_loss", &S::fused_loss),
       field::flag("fused_residual", &S::fused_residual),
       field::flag("local", &S::local),
       field::flag("all_to_all", &S::all_to_all),
       field::flag("attention_mask", &S::attention_mask),
       {"layers", read_megatron_layers, [](const S& m) { return m.layers.empty() ? field::left_out() : nlohmann::ordered_json(m.layers); }},
       field::stage<S>(),
       {"attention", read_megatron_attention, attention_name}}};
  return kMapping;
}

}  // namespace

MegatronSettings parse_megatron(const Json& value) { return megatron_mapping().read(value); }
nlohmann::ordered_json to_json(const MegatronSettings& m) { return megatron_mapping().print(m); }

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
