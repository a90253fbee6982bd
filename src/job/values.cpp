#include "job/values.h"

#include "util/error.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

Json adapter_of(const Job& job, AdapterKind kind) {
  const std::optional<AdapterSettings>& a = job.tuning.adapter;
  return a && a->kind == kind ? Json(to_json(*a)) : Json();
}

template <class T>
Json optional_of(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json bytes_of(const std::optional<Bytes>& value) { return value ? Json(value->count) : Json(); }

Json liger_of(const LigerKernels& liger) {
  Json names = Json::array();
  if (liger.rope) names.push_back("rope");
  if (liger.rms_norm) names.push_back("rms_norm");
  if (liger.swiglu) names.push_back("swiglu");
  return names;
}

void add_training(std::map<std::string, Json>& v, const Job& j) {
  v["model"] = j.model;
  v["config"] = j.config.values();
  v["batch"] = j.batch;
  v["seq"] = j.seq;
  v["lengths"] = j.collation.lengths;
  v["collate"] = to_string(j.collation.collate);
  v["padding"] = to_string(j.collation.padding);
  v["pad_to_multiple_of"] = j.collation.pad_to_multiple_of;
  v["inputs"] = to_string(j.inputs);
  v["precision"] = to_string(j.precision);
  v["autocast"] = j.autocast;
  for (const AdapterKind kind : {AdapterKind::lora, AdapterKind::lokr, AdapterKind::ia3, AdapterKind::ln_tuning})
    v[to_string(kind)] = adapter_of(j, kind);
  v["quantization"] = j.tuning.quantization ? Json(to_json(*j.tuning.quantization)) : Json();
  v["frozen"] = j.tuning.frozen;
  v["trainable"] = j.tuning.trainable;
  v["attention"] = to_string(j.attention);
  v["checkpointing"] = to_json(j.checkpointing);
  v["offload_activations"] = to_string(j.offload_activations);
  v["loss"] = to_string(j.loss);
  v["loss_kernel"] = to_string(j.loss_settings.kernel);
  v["loss_chunks"] = j.loss_settings.chunks;
  v["liger_kernels"] = liger_of(j.loss_settings.liger);
  v["optimizer"] = j.optimizer.name;
  v["optimizer_args"] = j.optimizer.args.values();
  v["accumulation"] = j.accumulation;
  v["clip"] = optional_of(j.clip);
  v["offload_optimizer"] = j.offload_optimizer ? Json{{"gradients", j.offload_optimizer->gradients}} : Json(false);
  v["swap_blocks"] = j.swap_blocks;
  v["optimizer_in_backward"] = j.optimizer_in_backward;
  v["master_weights"] = j.master_weights ? "fp32" : "none";
  v["gradient_dtype"] = to_string(j.gradient_dtype);
  v["ema"] = j.ema;
  v["ema_place"] = to_string(j.averaging.place);
  v["ema_dtype"] = to_string(j.averaging.dtype);
  v["ema_update"] = to_string(j.averaging.update);
  v["loss_scaling"] = j.loss_scaling;
  v["drop_output"] = j.drop_output;
  v["drop_after"] = j.drop_after;
  v["zero_grad"] = to_string(j.zero_grad);
  v["longest"] = j.longest;
  v["eval_batch"] = j.eval_batch;
  v["sample_tokens"] = j.sampling.tokens;
  v["sample_batch"] = j.sampling.batch;
  v["sample_prompt"] = j.sampling.prompt;
  v["steps"] = j.steps;
}

void add_surroundings(std::map<std::string, Json>& v, const Job& j) {
  v["ddp"] = j.parallel.ddp ? Json(to_json(*j.parallel.ddp)) : Json(false);
  v["zero1"] = j.parallel.zero1 ? Json(to_json(*j.parallel.zero1)) : Json(false);
  v["fsdp"] = j.parallel.fsdp ? Json(to_json(*j.parallel.fsdp)) : Json(false);
  v["fsdp1"] = j.parallel.fsdp1 ? Json(to_json(*j.parallel.fsdp1)) : Json(false);
  v["zero"] = j.parallel.deepspeed ? Json(to_json(*j.parallel.deepspeed)) : Json(false);
  v["tensor_parallel"] = j.parallel.tensor ? Json(to_json(*j.parallel.tensor)) : Json(false);
  v["megatron"] = j.parallel.megatron ? Json(to_json(*j.parallel.megatron)) : Json(false);
  v["torchtitan"] = j.parallel.torchtitan ? Json(to_json(*j.parallel.torchtitan)) : Json(false);
  v["compile"] = j.compile;
  v["alloc_conf"] = j.alloc_conf;
  v["torch"] = to_string(j.platform.torch);
  v["transformers"] = to_string(j.platform.transformers);
  v["framework"] = to_string(j.framework);
  v["donate"] = j.jax.donate;
  v["replicas"] = j.jax.replicas;
  v["device_kind"] = j.jax.device_kind ? Json(to_string(*j.jax.device_kind)) : Json();
  v["mem_fraction"] = j.jax.mem_fraction;
  v["preallocate"] = j.jax.preallocate;
  v["workers"] = j.host.workers;
  v["prefetch_factor"] = optional_of(j.host.prefetch_factor);
  v["persistent_workers"] = j.host.persistent_workers;
  v["pin_memory"] = j.host.pin_memory;
  v["start_method"] = to_string(j.host.start_method);
  v["item_bytes"] = bytes_of(j.host.item_bytes);
  v["dataset_size"] = j.host.dataset_size;
  v["dataset_bytes"] = j.host.dataset_bytes.count;
  v["cache"] = to_string(j.host.cache);
  v["cache_item_bytes"] = bytes_of(j.host.cache_item_bytes);
  v["load"] = to_string(j.host.load);
  v["save"] = to_string(j.host.save);
  v["ranks_per_host"] = j.host.ranks_per_host;
}

}  // namespace

std::map<std::string, Json> values_of(const Job& job) {
  std::map<std::string, Json> values;
  add_training(values, job);
  add_surroundings(values, job);
  return values;
}

Json value_of(const Job& job, const std::string& setting) {
  const std::map<std::string, Json> values = values_of(job);
  const auto it = values.find(setting == "global_batch" ? "batch" : setting);
  if (it == values.end()) throw Error("[job] setting '" + setting + "' is not known", "plimsoll list settings names them all");
  return it->second;
}

}  // namespace plimsoll
