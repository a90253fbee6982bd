#include "step/torchtitan_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/decoder/torchtitan.h"
#include "util/checked.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// Queries are as many for each key and value: what divides these divides those.
void check_heads(int64_t heads, int64_t tensor, Problems& out) {
  if (heads % tensor == 0) return;
  std::vector<std::string> choices;
  for (int64_t n = 1; n <= heads; ++n)
    if (heads % n == 0) choices.push_back(std::to_string(n));
  out.push_back({fmt::format("[torchtitan] {} heads of keys and values cannot be split over tensor {}", heads, tensor),
                 "tensor can be one of " + join(choices, ", ")});
}

void check_pipeline(const Job& job, const TorchtitanConfig& c, Problems& out) {
  const TorchtitanSettings& t = *job.program.torchtitan;
  const int64_t micro = torchtitan_micro_batches(job);
  if (job.batch % micro != 0)
    out.push_back({fmt::format("[torchtitan] a batch of {} is no multiple of {} micro_batches", job.batch, micro),
                   fmt::format("the nearest batches: {} and {}", std::max(micro, job.batch / micro * micro), round_up(job.batch, micro))});
  if (t.schedule != PipelineKind::gpipe && micro < t.pipeline)
    out.push_back({fmt::format("[torchtitan] {} micro-batches are less than {} stages, which 1F1B refuses", micro, t.pipeline),
                   fmt::format("batch {} or more, or schedule gpipe", t.pipeline)});
  if (t.virtual_stages > 1 && micro % t.pipeline != 0)
    out.push_back({fmt::format("[torchtitan] {} micro-batches are no multiple of {} stages", micro, t.pipeline),
                   fmt::format("interleaved schedules want that: {} or {}", micro / t.pipeline * t.pipeline, round_up(micro, t.pipeline))});
  if (t.layers.empty()) {
    succeeds([&] { torchtitan_split(c.layers, t.pipeline * t.virtual_stages, t.counts_ends()); }, out);
    return;
  }
  int64_t layers = 0;
  for (int64_t n : t.layers) layers += n;
  if (layers != c.layers)
    out.push_back({fmt::format("[torchtitan] layers add up to {}, and the model has {}", layers, c.layers), "one number for each stage"});
}

}  // namespace

int64_t torchtitan_micro_batches(const Job& job) {
  const TorchtitanSettings& t = *job.program.torchtitan;
  if (!t.pipelined()) return 1;
  if (t.micro_batches > 0) return t.micro_batches;
  return t.version < Version{2025, 4} ? t.pipeline : job.batch;
}

void check_torchtitan(const Job& job, Problems& out) {
  const TorchtitanSettings& t = *job.program.torchtitan;
  const auto refuse = [&](const std::string& what, const std::string& hint) { out.push_back({"[torchtitan] " + what, hint}); };
  if (job.parallel.any() || job.program.megatron)
    refuse("it has its own data and tensor parallelism", "leave ddp, zero1, fsdp, fsdp1, zero, tensor_parallel and megatron out");
  if (job.precision != Precision::fp32 && job.precision != Precision::amp)
    refuse(fmt::format("precision {} is not its own", to_string(job.precision)), "fp32 weights that are gathered in bf16: precision fp32");
  if (job.tuning.adapter || job.tuning.quantization) refuse("adapters are not simulated", "leave lora and quantization out");
  if (job.ema || job.master_weights || job.optimizer_in_backward)
    refuse("ema, master_weights and optimizer_in_backward are not simulated", "leave them out");
  if (t.shards() < 2)
    refuse(fmt::format("world {} leaves one data and context rank, and fully_shard nothing to shard", t.world),
           fmt::format("world {} or more", 2 * t.tensor * t.pipeline * t.replicas));
  std::optional<TorchtitanConfig> model;
  if (succeeds([&] { model.emplace(job.family, job.config); }, out)) check_heads(model->kv_heads, t.tensor, out);
  const int64_t divisor = t.tensor * (t.context > 1 ? 2 * t.context : 1);  // ParallelDims.seq_len_divisor
  if (job.seq % divisor != 0)
    refuse(fmt::format("{} tokens are no multiple of {}: tensor {}{}", job.seq, divisor, t.tensor,
                       t.context > 1 ? fmt::format(" x 2 x context {}", t.context) : ""),
           fmt::format("the nearest: {} and {}", std::max(divisor, job.seq / divisor * divisor), round_up(job.seq, divisor)));
  if (job.seq / t.context % t.loss_chunks != 0)
    refuse(fmt::format("{} tokens cannot be cut into {} loss_chunks", job.seq / t.context, t.loss_chunks), "take a power of two");
  if (model && t.pipelined()) check_pipeline(job, *model, out);
}

}  // namespace plimsoll
