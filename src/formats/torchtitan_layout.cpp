// torchtitan: distributed/parallel_dims.py and distributed/pipeline_parallel.py. Degrees are under [parallelism] since 2025-03 (pull 980);
// before they were under [training] and [experimental].
#include "formats/torchtitan_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/launch.h"
#include "formats/trainer.h"
#include "job/settings.h"
#include "util/checked.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr const char* kDefault = "default of torchtitan";
constexpr const char* kLastOfOldNames = "2025-02";

// Where the file has it, under whichever name.
std::string place_of(Reader& r, const std::string& key) {
  for (const char* section : {"training.", "experimental."})
    if (r.has(section + key)) return section + key;
  return "parallelism." + key;
}

bool has_old_names(Reader& r) {
  for (const char* key : {"tensor_parallel_degree", "data_parallel_degree", "data_parallel_shard_degree", "data_parallel_replicate_degree",
                          "pipeline_parallel_degree", "context_parallel_degree"})
    if (r.has(std::string("training.") + key) || r.has(std::string("experimental.") + key)) return true;
  return false;
}

int64_t degree_of(Reader& r, const std::string& key, int64_t fallback) { return r.integer(place_of(r, key), fallback); }

struct Degrees {
  int64_t world = 1, replicas = 1, shards = 1, tensor = 1, pipeline = 1, context = 1;
  std::string shards_from;  // the path of its key
};

// One of the degrees of data parallelism may be -1, which is what the others leave of the processes. Without a launcher the degrees say
// how many there are.
Degrees degrees_of(Reader& r) {
  Degrees d;
  const auto degree = [&](const char* key) { return std::max<int64_t>(1, degree_of(r, key, 1)); };
  d.tensor = degree("tensor_parallel_degree");
  d.pipeline = degree("pipeline_parallel_degree");
  d.context = degree("context_parallel_degree");
  d.replicas = degree("data_parallel_replicate_degree");
  d.shards_from = place_of(r, r.has("training.data_parallel_degree") ? "data_parallel_degree" : "data_parallel_shard_degree");
  d.shards = r.integer(d.shards_from, -1);
  const int64_t others = checked_mul(checked_mul(d.tensor, d.replicas), checked_mul(d.pipeline, d.context));
  const bool launched = r.job.parallel.ddp.has_value();
  d.world = launched ? r.job.parallel.ddp->world : checked_mul(others, std::max<int64_t>(1, d.shards));
  if (!launched && d.shards < 1)
    r.note(Effect::note, fmt::format("how many processes there are is not said: the answer is for {}", d.world),
           "ask with torchrun's command line, or set parallelism.data_parallel_shard_degree");
  if (d.shards < 1) d.shards = std::max<int64_t>(1, d.world / others);
  if (checked_mul(others, d.shards) != d.world)
    r.finding(Effect::refused, d.shards_from, fmt::format("there are {} processes", d.world),
              "ParallelDims asserts that the degrees multiply to them");
  return d;
}

std::string param_type(Reader& r) { return short_type(r.text("training.mixed_precision_param", "bfloat16")); }
std::string reduce_type(Reader& r) { return short_type(r.text("training.mixed_precision_reduce", "float32")); }
std::string reshard_policy(Reader& r) { return lower(r.text(place_of(r, "fsdp_reshard_after_forward"), "default")); }
bool loss_is_parallel(Reader& r) {
  return !r.flag("parallelism.disable_loss_parallel",
                 !r.flag("training.enable_loss_parallel", !r.flag("training.disable_loss_parallel", false)));
}

// Its trainer: fp32 shards, gathered in bf16, reduced in fp32, and a model that it has.
bool is_simulated(Reader& r, const Degrees& d, bool knows_model) {
  const bool types = r.job.precision == Precision::amp && param_type(r) == "bf16" && reduce_type(r) == "fp32";
  const bool fits = d.world == d.shards * d.replicas * d.tensor * d.pipeline * d.context;
  return knows_model && types && fits && d.shards * d.context > 1 && !r.flag("optimizer.early_step_in_backward", false);
}

// "1F1B", "GPipe" and "Interleaved1F1B"; others have more than one stage on a rank, as the last.
std::string schedule_of(Reader& r) {
  const std::string path = place_of(r, "pipeline_parallel_schedule"), name = lower(r.text(path, "1F1B"));
  if (name == "gpipe" || name == "1f1b") return name;
  if (name != "interleaved1f1b")
    r.finding(Effect::unknown, path, "this schedule is not simulated: Interleaved1F1B stands in, with two stages on a rank");
  return "interleaved";
}

// 0: as its code of that time has it.
int64_t micro_batches_of(Reader& r) {
  const std::string old = place_of(r, "pipeline_parallel_microbatches");
  if (r.has(old) || has_old_names(r)) return r.integer(old, 0);
  const std::string path = place_of(r, "pipeline_parallel_microbatch_size");
  const int64_t batch = r.integer("training.local_batch_size", r.integer("training.batch_size", 8)), size = r.integer(path, 1);
  if (size >= 1 && batch % size == 0) return batch / size;
  throw Error(fmt::format("[{}] a batch of {} cannot be cut into micro-batches of {}", r.origin(path), batch, size),
              "torchtitan refuses it: take a divisor of the batch");
}

// Names of modules for every stage, of which the layers count.
Json layers_of(const Json& parts, const std::string& origin) {
  Json layers = Json::array();
  for (const Json& part : parts) {
    if (!part.is_array()) throw Error("[" + origin + "] is no list of lists of names", "e.g. [[\"tok_embeddings\", \"layers.0\"], [...]]");
    layers.push_back(std::count_if(part.begin(), part.end(),
                                   [](const Json& name) { return name.is_string() && name.get<std::string>().rfind("layers.", 0) == 0; }));
  }
  return layers;
}

void read_pipeline(Reader& r, const Degrees& d, Json& t) {
  t["schedule"] = schedule_of(r);
  if (const int64_t n = micro_batches_of(r); n > 0) t["micro_batches"] = n;
  if (t["schedule"] == "interleaved") t["virtual_stages"] = 2;
  if (const Json* parts = r.find("parallelism.module_fqns_per_model_part"); parts && parts->is_array()) {
    t["layers"] = layers_of(*parts, r.origin("parallelism.module_fqns_per_model_part"));
    if (const auto n = static_cast<int64_t>(parts->size()); n > d.pipeline && n % d.pipeline == 0) t["virtual_stages"] = n / d.pipeline;
  }
  for (const char* key :
       {"pipeline_parallel_split_points", "pipeline_parallel_layers_per_stage", "pipeline_parallel_first_stage_less_layers",
        "pipeline_parallel_last_stage_less_layers", "pipeline_parallel_schedule_csv"})
    if (const std::string path = place_of(r, key); r.has(path) && r.text(path, "x") != "")
      r.finding(Effect::unknown, path, "layers are spread as torchtitan does by default: give them with --torchtitan layers=7+8+8+7");
}

bool has_float8(Reader& r) {
  const Json* converters = r.find("model.converters");
  return converters && converters->dump().find("float8") != std::string::npos;
}

void set_torchtitan(Reader& r, const Degrees& d) {
  Json t{{"world", d.world},
         {"tensor", d.tensor},
         {"pipeline", d.pipeline},
         {"context", d.context},
         {"replicas", d.replicas},
         {"reshard", reshard_policy(r)},
         {"loss_parallel", loss_is_parallel(r)},
         {"float8", has_float8(r)}};
  t["rotate"] = lower(r.text(place_of(r, "context_parallel_rotate_method"), "allgather"));
  const std::string async = place_of(r, "enable_async_tensor_parallel");
  t["async_tensor"] = r.flag(async, false);
  if (t["async_tensor"] == true)
    r.finding(Effect::partial, async, "executed as the synchronous kind: its buffers in symmetric memory are not counted");
  if (t["float8"] == true)
    r.finding(Effect::partial, "model.converters", "float8 layers are executed as bf16 ones, which is what they keep of their inputs");
  if (d.pipeline > 1) read_pipeline(r, d, t);
  if (has_old_names(r)) t["version"] = kLastOfOldNames;
  const std::string origin = r.has(d.shards_from) ? r.origin(d.shards_from) : kDefault;
  if (r.job.parallel.ddp) apply_setting(r.job, "ddp", false, kDefault);
  apply_setting(r.job, "precision", "fp32", r.job.origin["precision"]);
  apply_setting(r.job, "torchtitan", t, origin);
}

// parallelize_llama: fully_shard with mixed_precision_param and _reduce, and reshard_after_forward unless it is "never".
void set_fsdp(Reader& r, const Degrees& d) {
  Json fsdp{{"world", d.replicas * d.shards}, {"reshard", reshard_policy(r) != "never"}};
  if (d.replicas > 1) fsdp["replicas"] = d.replicas;
  const bool half = r.job.precision == Precision::bf16;  // of the weights
  const char* const own = half ? "bf16" : "fp32";
  if (param_type(r) != own) fsdp["param_dtype"] = param_type(r);
  if (reduce_type(r) != own || (!half && param_type(r) == "bf16")) fsdp["reduce_dtype"] = reduce_type(r);
  apply_setting(r.job, "precision", own, r.job.origin["precision"]);
  apply_setting(r.job, "fsdp", fsdp, r.has(d.shards_from) ? r.origin(d.shards_from) : kDefault);
}

// With the code of transformers, where torchtitan's own is not simulated.
void set_nearest(Reader& r, const Degrees& d) {
  const bool launched = r.job.parallel.ddp.has_value();
  const std::string tensor = place_of(r, "tensor_parallel_degree");
  bool other = d.tensor > 1 && d.world > d.tensor;
  if (other) not_simulated(r, tensor, "tensor beside data parallelism");
  for (const char* key : {"pipeline_parallel_degree", "context_parallel_degree"})
    if (const std::string path = place_of(r, key); r.integer(path, 1) > 1) {
      not_simulated(r, path, "this kind of parallelism");
      other = true;
    }
  if (other) return;
  if (launched && (d.tensor > 1 || d.shards > 1)) apply_setting(r.job, "ddp", false, kDefault);
  if (d.tensor > 1)
    apply_setting(r.job, "tensor_parallel", {{"world", d.tensor}, {"sequence", true}, {"loss_parallel", loss_is_parallel(r)}},
                  r.origin(tensor));
  else if (d.shards > 1)
    set_fsdp(r, d);
  else if (d.replicas > 1 && !launched)
    set_world(r, d.replicas, 1, r.origin(place_of(r, "data_parallel_replicate_degree")));
}

}  // namespace

void read_torchtitan_layout(Reader& r, bool knows_model) {
  const Degrees d = degrees_of(r);
  if (const std::string path = place_of(r, "expert_parallel_degree"); r.integer(path, 1) > 1) {
    if (!knows_model)
      throw Error(fmt::format("[{}] is {}: experts of torchtitan's models are not simulated", r.origin(path), r.integer(path, 1)),
                  fmt::format("Megatron-LM's layout has them: plimsoll estimate deepseek-v3 --megatron world={},expert={}", d.world,
                              r.integer(path, 1)));
    r.finding(Effect::none, path, "the model has no experts");
  }
  if (is_simulated(r, d, knows_model)) {
    set_torchtitan(r, d);
  } else {
    if (knows_model) r.note(Effect::note, "simulated with transformers' code of the model: torchtitan has its own of the same shape");
    set_nearest(r, d);
  }
  r.ignore({"parallelism", "experimental"});
}

}  // namespace plimsoll
