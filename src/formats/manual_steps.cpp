#include "formats/manual_steps.h"

#include <fmt/format.h>

#include "job/megatron_arguments.h"
#include "job/packed_storage.h"
#include "job/quantization_kind.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

std::string python(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "None";
  if (!value.is_array()) return dump(value);
  std::string out;
  for (const Json& item : value) out += (out.empty() ? "" : ", ") + python(item);
  return "[" + out + "]";
}

std::string keywords(const Json& args) {
  std::string out;
  for (const auto& item : args.items()) out += fmt::format(", {}={}", item.key(), python(item.value()));
  return out;
}

std::string precision(const Job& job) {
  switch (job.precision) {
    case Precision::fp32: return "load the model with dtype=torch.float32 and use no autocast";
    case Precision::amp: return "keep the weights in fp32 and run forward in `with torch.autocast(\"cuda\", dtype=torch.bfloat16):`";
    case Precision::amp_fp16:
      return "keep the weights in fp32, run forward in `with torch.autocast(\"cuda\", dtype=torch.float16):` and scale the loss with "
             "torch.amp.GradScaler";
    case Precision::bf16: return "`model.to(torch.bfloat16)` before the optimizer is made";
    case Precision::fp16: return "`model.to(torch.float16)` before the optimizer is made";
  }
  return "";
}

std::string optimizer(const Job& job) {
  const std::string& name = job.optimizer.name;
  const std::string args = keywords(job.optimizer.args.values());
  if (name.starts_with("torchao.")) return fmt::format("`optimizer = torchao.optim.{}(model.parameters(), lr=lr{})`", name.substr(8), args);
  if (name.ends_with("bit") || name == "Lion" || name.starts_with("Paged"))
    return fmt::format("`optimizer = bitsandbytes.optim.{}(model.parameters(), lr=lr{})`", name, args);
  if (name == "TransformersAdafactor") return fmt::format("`optimizer = transformers.Adafactor(model.parameters(){})`", args);
  return fmt::format("`optimizer = torch.optim.{}(model.parameters(), lr=lr{})`", name, args);
}

std::string checkpointing(const Job& job) {
  const Checkpointing& c = job.checkpointing;
  if (!c.on) return "leave `gradient_checkpointing_enable()` out";
  const std::string call = fmt::format("torch.utils.checkpoint.checkpoint(block, x, use_reentrant={})", c.reentrant ? "True" : "False");
  if (!c.modules.empty()) return fmt::format("call {} as `{}`", join(c.modules, ", "), call);
  if (!c.save.empty())
    return fmt::format(
        "call each block as `torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False, context_fn=...)` with "
        "create_selective_checkpoint_contexts that keeps {}",
        join(c.save, ", "));
  if (c.every > 1) return fmt::format("call one block of every {} as `{}`", c.every, call);
  return fmt::format(
      "`model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={{\"use_reentrant\": {}}})`, or call each block as `{}`",
      c.reentrant ? "True" : "False", call);
}

std::string adapter(const Job& job) {
  if (!job.tuning.adapter) return "train the model itself: no `get_peft_model`";
  const AdapterSettings& a = *job.tuning.adapter;
  if (a.kind != AdapterKind::lora) return "`model = peft.get_peft_model(model, config)` with PEFT's configuration of that kind";
  const Json targets = a.target_modules.empty() ? Json() : Json(to_json(a.target_modules));
  return fmt::format("`model = peft.get_peft_model(model, peft.LoraConfig(r={}, lora_alpha={:g}, lora_dropout={:g}{}))`", a.r, a.alpha,
                     a.dropout, targets.is_null() ? "" : ", target_modules=" + python(targets));
}

std::string quantization(const Job& job) {
  if (!job.tuning.quantization) return "load the model without quantization_config";
  const QuantizationSettings& q = *job.tuning.quantization;
  if (q.type == "int8") return "load the model with quantization_config=BitsAndBytesConfig(load_in_8bit=True)";
  if (q.type.rfind("gptq", 0) == 0) return "`GPTQConfig(bits=4, use_exllama=False)` for a checkpoint that is quantised already";
  if (q.type == "qfloat8") return "`optimum.quanto.quantize(model, weights=optimum.quanto.qfloat8)`";
  if (!is_bitsandbytes(q)) return fmt::format("`qtype: {}` beside `quantize: true`, in the AI Toolkit's model section", q.type);
  const auto of_torch = [](const std::string& type) { return type == "bf16" ? "bfloat16" : type == "fp16" ? "float16" : "float32"; };
  const std::optional<WireType> storage = packed_storage(q);
  return fmt::format(
      "load the model with quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"{}\", "
      "bnb_4bit_use_double_quant={}, bnb_4bit_compute_dtype=torch.{}{})",
      q.type.substr(0, 3), q.double_quant ? "True" : "False", of_torch(q.compute_dtype),
      storage ? fmt::format(", bnb_4bit_quant_storage=torch.{}", of_torch(to_string(*storage))) : "");
}

std::string loss_kernel(const Job& job) {
  switch (job.loss_settings.kernel) {
    case LossKernel::model: return "let the model compute its own loss";
    case LossKernel::liger:
      return "`liger_kernel.transformers.LigerFusedLinearCrossEntropyLoss`, or AutoLigerKernelForCausalLM for the whole model";
    case LossKernel::chunked: return "torchtune's LinearCrossEntropyLoss: `loss = loss_fn(lm_head.weight, hidden, labels)`";
    case LossKernel::chunked_output: return "torchtune's CEWithChunkedOutputLoss over logits in chunks";
    case LossKernel::cut: return "`from cut_cross_entropy.transformers import cce_patch; model = cce_patch(model)`";
  }
  return "";
}

std::string fsdp(const FsdpSettings& f) {
  const auto type = [](WireType t) {
    return t == WireType::own ? "None" : t == WireType::fp32 ? "torch.float32" : t == WireType::bf16 ? "torch.bfloat16" : "torch.float16";
  };
  const std::string mesh = f.replicas > 1 ? fmt::format("({}, {}), mesh_dim_names=('replicate', 'shard')", f.replicas, f.shards())
                                          : fmt::format("({},)", f.world);
  return fmt::format(
      "`fully_shard` on every block and then on the model, with `mesh=init_device_mesh('cuda', {})` and "
      "`mp_policy=MixedPrecisionPolicy(param_dtype={}, reduce_dtype={})`",
      mesh, type(f.param_dtype), type(f.reduce_dtype));
}

std::string torchtitan(const Job& job) {
  const TorchtitanSettings& t = *job.program.torchtitan;
  std::string flags = fmt::format("`./run_train.sh --training.local_batch_size {} --training.seq_len {}", job.batch, job.seq);
  const auto add = [&](const char* key, int64_t n) {
    if (n > 1) flags += fmt::format(" --parallelism.{} {}", key, n);
  };
  add("tensor_parallel_degree", t.tensor);
  add("pipeline_parallel_degree", t.pipeline);
  add("context_parallel_degree", t.context);
  add("data_parallel_replicate_degree", t.replicas);
  return flags + "`";
}

// PyTorch's name of it.
const char* upper_strategy(ShardingStrategy s) {
  switch (s) {
    case ShardingStrategy::full_shard: return "FULL_SHARD";
    case ShardingStrategy::shard_grad_op: return "SHARD_GRAD_OP";
    case ShardingStrategy::no_shard: return "NO_SHARD";
    case ShardingStrategy::hybrid_shard: return "HYBRID_SHARD";
    case ShardingStrategy::hybrid_shard_zero2: return "_HYBRID_SHARD_ZERO2";
  }
  return "";
}

std::string parallel(const Job& job) {
  if (job.program.megatron) return fmt::format("`pretrain_gpt.py {}`", join(megatron_layout_arguments(job), " "));
  if (job.program.torchtitan) return torchtitan(job);
  if (job.parallel.fsdp) return fsdp(*job.parallel.fsdp);
  if (job.parallel.fsdp1)
    return fmt::format(
        "`FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.{}, use_orig_params={})` with a policy that wraps every block",
        upper_strategy(job.parallel.fsdp1->strategy), job.parallel.fsdp1->original_parameters ? "True" : "False");
  if (job.parallel.deepspeed)
    return fmt::format("`\"zero_optimization\": {{\"stage\": {}}}` in DeepSpeed's configuration, on {} processes",
                       job.parallel.deepspeed->stage, job.parallel.deepspeed->world);
  if (job.parallel.tensor)
    return fmt::format("`parallelize_module` with ColwiseParallel and RowwiseParallel on `init_device_mesh('cuda', ({},))`",
                       job.parallel.tensor->world);
  if (job.parallel.zero1)
    return "`torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=lr)` around DDP's model";
  if (!job.parallel.ddp) return "start one process";
  const DdpSettings& d = *job.parallel.ddp;
  return fmt::format("`torchrun --nproc_per_node={}` and `DistributedDataParallel(model, gradient_as_bucket_view={})`", d.world,
                     d.bucket_view ? "True" : "False");
}

}  // namespace

std::string manual_step(const std::string& setting, const Job& job) {
  if (setting == "precision" || setting == "autocast") return precision(job);
  if (setting == "optimizer" || setting == "optimizer_args") return optimizer(job);
  if (setting == "checkpointing") return checkpointing(job);
  if (setting == "lora" || setting == "lokr" || setting == "ia3" || setting == "ln_tuning") return adapter(job);
  if (setting == "quantization") return quantization(job);
  if (setting == "loss_kernel" || setting == "liger_kernels" || setting == "loss_chunks") return loss_kernel(job);
  if (setting == "ddp" || setting == "zero1" || setting == "fsdp" || setting == "fsdp1" || setting == "zero" ||
      setting == "tensor_parallel" || setting == "megatron" || setting == "torchtitan")
    return parallel(job);
  if (setting == "offload_activations") return "run forward in `with torch.autograd.graph.save_on_cpu(pin_memory=True):`";
  if (setting == "offload_optimizer")
    return fmt::format("`torchao.optim.CPUOffloadOptimizer(model.parameters(), torch.optim.AdamW, offload_gradients={}, lr=lr)`",
                       job.offload_optimizer && job.offload_optimizer->gradients ? "True" : "False");
  if (setting == "optimizer_in_backward")
    return "an optimizer for each parameter, which `parameter.register_post_accumulate_grad_hook` steps and whose gradient it drops";
  if (setting == "compile") return job.compile ? "`model = torch.compile(model)`" : "leave `torch.compile` out";
  if (setting == "drop_output") return "`loss = out.loss; del out` before `loss.backward()`";
  if (setting == "drop_after") return "`del out, loss` after `loss.backward()`";
  if (setting == "accumulation") return fmt::format("call `optimizer.step()` after every {} batches", job.accumulation);
  if (setting == "batch") return fmt::format("DataLoader(batch_size={})", job.batch);
  if (setting == "seq") return fmt::format("samples of at most {}: tokenize with truncation and max_length, or resize", job.seq);
  if (setting == "workers") return fmt::format("DataLoader(num_workers={})", job.host.workers);
  if (setting == "ema" && !job.ema) return "keep no moving average";
  if (setting == "clip" && job.clip)
    return fmt::format("`torch.nn.utils.clip_grad_norm_(model.parameters(), {})` before the step", *job.clip);
  return fmt::format("have {} {} in the training program itself", setting, dump(value_of(job, setting)));
}

}  // namespace plimsoll
