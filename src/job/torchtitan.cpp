#include "job/torchtitan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "job/processes.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr const char* kTorchtitanExample = "e.g. torchtitan: {world: 64, tensor: 8} or --torchtitan world=64,tensor=8";

constexpr const char* kExpertsInMegatron =
    "Megatron-LM's layout has expert parallelism, e.g. --megatron world=64,expert=8; torchtitan's dense models are llama and qwen3";

constexpr std::pair<const char*, PipelineKind> kSchedules[]{
    {"gpipe", PipelineKind::gpipe}, {"1f1b", PipelineKind::one_f_one_b}, {"interleaved", PipelineKind::interleaved}};
constexpr std::pair<const char*, ReshardPolicy> kPolicies[]{
    {"default", ReshardPolicy::by_default}, {"always", ReshardPolicy::always}, {"never", ReshardPolicy::never}};

template <class T, size_t N>
T one_of(const Config& c, const char* key, const std::pair<const char*, T> (&names)[N], const char* fallback) {
  const std::string text = c.text({key}, fallback);
  std::string known;
  for (const auto& [name, value] : names) {
    if (text == name) return value;
    known += (known.empty() ? "known: " : ", ") + std::string(name);
  }
  throw Error(fmt::format("[torchtitan] {} '{}' is not known", key, text.substr(0, 80)), known);
}

template <class T, size_t N>
const char* name_of(T value, const std::pair<const char*, T> (&names)[N]) {
  for (const auto& [name, v] : names)
    if (v == value) return name;
  return "";
}

// "2025-09"
Version month_of(const Config& c, Version fallback) {
  const std::string text = c.text({"version"}, fmt::format("{}-{:02}", fallback.major, fallback.minor));
  int year = 0, month = 0, used = 0;
  const bool read = std::sscanf(text.c_str(), "%4d-%2d%n", &year, &month, &used) == 2 && used == static_cast<int>(text.size());
  if (!read || year < 2024 || year > 2100 || month < 1 || month > 12)
    throw Error(fmt::format("[torchtitan] version '{}' is no month since 2024", text.substr(0, 40)),
                "year and month of its code, e.g. 2025-09");
  return {year, month};
}

std::vector<int64_t> layers_of(const Config& c, const TorchtitanSettings& t) {
  std::vector<int64_t> out;
  const Json* list = c.find({"layers"});
  if (!list) return out;
  const char* hint = "one number for each stage, e.g. layers: [7, 8, 8, 7], or layers=7+8+8+7";
  if (!list->is_array()) throw Error("[torchtitan] layers is no list", hint);
  for (const Json& n : *list) {
    if (!n.is_number_integer() || n.get<int64_t>() < 1 || n.get<int64_t>() > 100000)
      throw Error("[torchtitan] layers: " + n.dump() + " is no number of layers, and every stage has one at least", hint);
    out.push_back(n.get<int64_t>());
  }
  const int64_t parts = t.pipeline * t.virtual_stages;
  if (static_cast<int64_t>(out.size()) != parts)
    throw Error(
        fmt::format("[torchtitan] layers has {} numbers, but there are {} stages of {} chunks", out.size(), t.pipeline, t.virtual_stages),
        fmt::format("give {} numbers", parts));
  return out;
}

void check_world(const TorchtitanSettings& t) {
  const int64_t model = t.tensor * t.pipeline * t.context;
  if (t.world % model != 0)
    throw Error(fmt::format("[torchtitan] world {} is no multiple of tensor {} x pipeline {} x context {}", t.world, t.tensor, t.pipeline,
                            t.context),
                nearest_multiples(model, t.world));
  if (t.data() % t.replicas != 0)
    throw Error(fmt::format("[torchtitan] {} data ranks are no multiple of replicas {}", t.data(), t.replicas),
                nearest_multiples(t.replicas, t.data()));
}

void check_schedule(const TorchtitanSettings& t) {
  const bool several = t.virtual_stages > 1;
  if (several && !t.pipelined())
    throw Error(fmt::format("[torchtitan] virtual_stages {} without a pipeline", t.virtual_stages), "set pipeline too, or leave it out");
  if (several != (t.schedule == PipelineKind::interleaved))
    throw Error(fmt::format("[torchtitan] schedule {} with virtual_stages {}", name_of(t.schedule, kSchedules), t.virtual_stages),
                several ? "schedule: interleaved, which has several chunks on a stage" : "set virtual_stages to 2 or more");
}

constexpr std::pair<const char*, bool> kRotations[]{{"allgather", true}, {"alltoall", false}};

void refuse_experts(TorchtitanSettings&, const Config& c) {
  if (const int64_t expert = degree_of(c, "expert"); expert > 1)
    throw Error(fmt::format("[torchtitan] expert {}: experts of its models are not simulated", expert), kExpertsInMegatron);
}

void read_torchtitan_world(TorchtitanSettings& t, const Config& c) {
  t.world = c.find({"world"}) ? degree_of(c, "world") : t.tensor * t.pipeline * t.context;
  check_world(t);
}

void read_torchtitan_schedule(TorchtitanSettings& t, const Config& c) {
  t.schedule = one_of(c, "schedule", kSchedules, t.virtual_stages > 1 ? "interleaved" : "1f1b");
  check_schedule(t);
}

const Mapping<TorchtitanSettings>& torchtitan_mapping() {
  using S = TorchtitanSettings;
  static const Mapping<S> kMapping{
      "torchtitan",
      kTorchtitanExample,
      {{"expert", refuse_experts},
       field::degree("tensor", &S::tensor),
       field::degree("pipeline", &S::pipeline),
       field::degree("virtual_stages", &S::virtual_stages),
       field::degree("context", &S::context),
       field::degree("replicas", &S::replicas),
       {"world", read_torchtitan_world, [](const S& t) { return t.world; }},
       {"schedule", read_torchtitan_schedule, [](const S& t) { return name_of(t.schedule, kSchedules); }},
       {"reshard", [](S& t, const Config& c) { t.reshard = one_of(c, "reshard", kPolicies, "default"); },
        [](const S& t) { return name_of(t.reshard, kPolicies); }},
       field::unless(field::size_or_none("micro_batches", &S::micro_batches), &S::micro_batches, 0),
       field::flag("loss_parallel", &S::loss_parallel),
       {"rotate", [](S& t, const Config& c) { t.gathers_context = one_of(c, "rotate", kRotations, "allgather"); },
        [](const S& t) { return name_of(t.gathers_context, kRotations); }},
       field::flag("float8", &S::float8),
       field::flag("async_tensor", &S::async_tensor),
       field::size("loss_chunks", &S::loss_chunks),
       {"layers", [](S& t, const Config& c) { t.layers = layers_of(c, t); },
        [](const S& t) { return t.layers.empty() ? field::left_out() : nlohmann::ordered_json(t.layers); }},
       {"version", [](S& t, const Config& c) { t.version = month_of(c, t.version); },
        [](const S& t) { return fmt::format("{}-{:02}", t.version.major, t.version.minor); }},
       field::stage<S>()}};
  return kMapping;
}

}  // namespace

TorchtitanSettings parse_torchtitan(const Json& value) { return torchtitan_mapping().read(value); }
nlohmann::ordered_json to_json(const TorchtitanSettings& t) { return torchtitan_mapping().print(t); }

std::string to_string(const TorchtitanSettings& t) {
  std::string out = "torchtitan on " + std::to_string(t.world);
  const auto add = [&](const char* name, int64_t n) {
    if (n > 1) out += fmt::format("{} {} {}", out.find(':') == std::string::npos ? ":" : " x", name, n);
  };
  add("tensor", t.tensor);
  add("pipeline", t.pipeline);
  add("context", t.context);
  add("data", t.data());
  if (t.float8) out += ", float8 layers taken as bf16";
  if (t.async_tensor) out += ", asynchronous tensor parallelism as synchronous";
  return out;
}

}  // namespace plimsoll
