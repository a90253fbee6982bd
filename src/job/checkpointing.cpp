#include "job/checkpointing.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "job/field.h"
#include "job/fields.h"
#include "job/setting_groups.h"
#include "job/tuning.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr const char* kSource = "checkpointing";
constexpr const char* kExample = "true, false, or e.g. {every: 2}, {modules: [mlp]}, {save: matmuls}, {reentrant: true}";

std::string ordinal(int64_t n) {
  const char* ending = n % 100 / 10 == 1 ? "th" : n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : n % 10 == 3 ? "rd" : "th";
  return std::to_string(n) + ending;
}

// torchtitan, distributed/activation_checkpoint.py: every second product, attention, and what tensor parallelism reduced.
std::vector<std::string> torchtitan_ops() {
  return {"mm/2", "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention", "reduce_scatter_tensor"};
}

std::vector<std::string> saved_ops(const nlohmann::json& value) {
  if (value.is_string() && value.get<std::string>() == "matmuls") return matmul_ops();
  if (value.is_string() && value.get<std::string>() == "torchtitan") return torchtitan_ops();
  const nlohmann::json list = value.is_string() ? parse_flag_value(value.get<std::string>()) : value;
  if (!list.is_array()) return parse_name_list(list, "checkpointing: save");
  static const std::regex kCounted(R"(([^/]+)/\d{1,6})");  // "mm/2" is every second
  nlohmann::json names = list;
  for (nlohmann::json& name : names) {
    std::smatch parts;
    const std::string text = name.is_string() ? name.get<std::string>() : "";
    if (text.size() <= 256 && std::regex_match(text, parts, kCounted)) name = parts[1].str();
  }
  parse_name_list(names, "checkpointing: save");
  return list.get<std::vector<std::string>>();
}

// Names of modules; "layers.0-11" stands for layers.0 to layers.11.
std::vector<std::string> module_list(const nlohmann::json& value) {
  static const std::regex kRange(R"((.+\.)(\d{1,6})-(\d{1,6}))");
  const nlohmann::json list = value.is_string() ? parse_flag_value(value.get<std::string>()) : value;
  nlohmann::json firsts = list.is_array() ? list : nlohmann::json::array({list});
  std::vector<std::string> names;
  for (nlohmann::json& name : firsts) {
    std::smatch parts;
    const std::string text = name.is_string() ? name.get<std::string>() : "";
    names.push_back(text);
    if (text.size() > 256 || !std::regex_match(text, parts, kRange)) continue;
    if (std::stoll(parts[2]) > std::stoll(parts[3]))
      throw Error(fmt::format("[{}] modules: the range '{}' ends before it begins", kSource, text), "e.g. layers.0-11");
    name = parts[1].str() + parts[2].str();
  }
  parse_name_list(firsts, "checkpointing: modules");
  return names;
}

void check_checkpointing(Checkpointing& c, const Config&) {
  if (c.every > 1 && !c.modules.empty())
    throw Error(fmt::format("[{}] every {} counts blocks, and modules are named", kSource, c.every), "leave one of the two out");
  if (c.reentrant && !c.save.empty())
    throw Error("[checkpointing] save: PyTorch's selective checkpoints are not reentrant", "leave reentrant out");
}

const Mapping<Checkpointing>& checkpointing_mapping() {
  using S = Checkpointing;
  static const std::vector<std::string> kNone;
  static const Mapping<S> kMapping{kSource,
                                   kExample,
                                   {field::unless(field::size("every", &S::every), &S::every, 1),
                                    field::unless(field::parsed("modules", module_list, field::kAsItIs, &S::modules), &S::modules, kNone),
                                    field::unless(field::flag("reentrant", &S::reentrant), &S::reentrant, false),
                                    field::unless(field::parsed("save", saved_ops, field::kAsItIs, &S::save), &S::save, kNone)},
                                   check_checkpointing};
  return kMapping;
}

const Mapping<OptimizerOffload>& optimizer_offload_mapping() {
  static const Mapping<OptimizerOffload> kMapping{
      "offload_optimizer", "true, false or {gradients: true}", {field::flag("gradients", &OptimizerOffload::gradients)}};
  return kMapping;
}

}  // namespace

const std::vector<std::string>& matmul_ops() {
  static const std::vector<std::string> kOps{"mm",
                                             "addmm",
                                             "bmm",
                                             "baddbmm",
                                             "convolution",
                                             "_scaled_dot_product_flash_attention",
                                             "_scaled_dot_product_efficient_attention",
                                             "_scaled_dot_product_cudnn_attention"};
  return kOps;
}

Checkpointing parse_checkpointing(const nlohmann::json& value) {
  Checkpointing c;
  if (value.is_boolean()) {
    c.on = value.get<bool>();
    return c;
  }
  const std::string word = value.is_string() ? value.get<std::string>() : "";
  c.on = word != "none" && word != "false";
  if (!c.on || word == "full" || word == "true") return c;
  c = checkpointing_mapping().read(value);
  c.on = true;
  return c;
}

nlohmann::ordered_json to_json(const Checkpointing& c) {
  if (!c.on) return false;
  nlohmann::ordered_json j = checkpointing_mapping().print(c);
  if (j.empty()) return true;
  return j;
}

std::string to_string(const Checkpointing& c) {
  if (!c.on) return "";
  std::string out = c.reentrant ? "reentrant checkpointing" : c.save.empty() ? "checkpointing" : "selective checkpointing";
  if (c.every > 1) out += " of every " + ordinal(c.every) + " block";
  if (!c.modules.empty()) out += " of " + join(c.modules, ", ");
  return out;
}

Offload parse_offload(const nlohmann::json& value, const std::string& source) {
  if (value.is_boolean()) return value.get<bool>() ? Offload::pinned : Offload::none;
  const std::string text = value.is_string() ? value.get<std::string>() : dump(value);
  for (const Offload m : {Offload::none, Offload::pageable, Offload::pinned})
    if (text == to_string(m)) return m;
  throw Error(fmt::format("[{}] '{}' is not known", source, text.substr(0, 80)), "true, false, pinned or pageable");
}

const char* to_string(Offload m) { return m == Offload::none ? "none" : m == Offload::pinned ? "pinned" : "pageable"; }

std::optional<OptimizerOffload> parse_optimizer_offload(const nlohmann::json& value) {
  if (value.is_null() || value == false) return std::nullopt;
  return optimizer_offload_mapping().read(value);
}

nlohmann::ordered_json to_json(const OptimizerOffload& o) { return optimizer_offload_mapping().print(o); }

}  // namespace plimsoll
