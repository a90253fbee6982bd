#include "job/parallel.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "job/processes.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr double kLargestBucket = 1 << 20;  // MiB: a tebibyte, more than any device has

// reshard_after_forward: true, false, or a number of processes.
void read_reshard(const Config& c, FsdpSettings& f) {
  const Json* value = c.find({"reshard"});
  if (!value || !value->is_number_integer()) {
    f.reshard = c.flag({"reshard"}, true);
    return;
  }
  const int64_t to = c.integer({"reshard"}, 1);
  if (to < 1 || f.shards() % to != 0)
    throw Error(fmt::format("[fsdp] reshard {} does not divide the {} shards", to, f.shards()),
                "take true, false, or one of " + divisors_of(f.shards()));
  f.reshard = to > 1;
  if (to == f.shards() && to > 1)
    f.reshard_root = true;
  else if (to > 1)
    f.reshard_to = to;
}

std::optional<double> bucket_of(const Config& c) {
  if (!c.find({"bucket_mb"})) return std::nullopt;
  const double mb = c.number({"bucket_mb"}, 0);
  if (!(mb > 0 && mb <= kLargestBucket))
    throw Error(fmt::format("[{}] bucket_mb {} is not between 0 and {}", c.source(), mb, kLargestBucket),
                "leave it out for PyTorch's default: 1 MiB for the first bucket, then 25");
  return mb;
}

}  // namespace

int64_t ParallelSettings::world() const {
  if (megatron) return megatron->world;
  if (torchtitan) return torchtitan->world;
  const int64_t outer = ddp         ? ddp->world
                        : zero1     ? zero1->world
                        : fsdp      ? fsdp->world
                        : fsdp1     ? fsdp1->world
                        : deepspeed ? deepspeed->world
                                    : 1;
  return outer * (tensor ? tensor->world : 1);
}

int64_t ParallelSettings::replicas() const {
  if (megatron) return megatron->data();
  return torchtitan ? torchtitan->data() : world() / (tensor ? tensor->world : 1);
}

std::optional<DdpSettings> ParallelSettings::reducer() const {
  if (ddp || !zero1 || !zero1->ddp) return ddp;
  DdpSettings d;
  d.world = zero1->world;
  return d;
}

DdpSettings parse_ddp(const Json& value) {
  const Config c = process_fields(
      value, "ddp", {"world", "bucket_mb", "bucket_view", "find_unused_parameters", "static_graph", "broadcast_buffers", "no_sync"});
  DdpSettings d;
  d.world = world_of(c);
  d.bucket_mb = bucket_of(c);
  d.bucket_view = c.flag({"bucket_view"}, false);
  d.find_unused_parameters = c.flag({"find_unused_parameters"}, false);
  d.static_graph = c.flag({"static_graph"}, false);
  d.broadcast_buffers = c.flag({"broadcast_buffers"}, true);
  d.no_sync = c.flag({"no_sync"}, true);
  return d;
}

Zero1Settings parse_zero1(const Json& value) {
  const Config c = process_fields(value, "zero1", {"world", "rank", "ddp", "parameter_view"});
  Zero1Settings z;
  z.world = world_of(c);
  z.rank = rank_of(c, z.world, "ranks count from 0; rank 0 has the largest parameter");
  z.ddp = c.flag({"ddp"}, true);
  z.parameter_view = c.flag({"parameter_view"}, false);
  return z;
}

FsdpSettings parse_fsdp(const Json& value) {
  const Config c = process_fields(value, "fsdp",
                                  {"world", "rank", "replicas", "reshard", "reshard_root", "param_dtype", "reduce_dtype", "no_sync",
                                   "wrap_embedding", "checkpoint_inside", "keep_last"});
  FsdpSettings f;
  f.world = world_of(c);
  f.replicas = replicas_of(c, f.world);
  f.rank = rank_of(c, f.shards(), "ranks count from 0 among those that share one copy of the weights; rank 0 has the largest shards");
  read_reshard(c, f);
  if (c.find({"reshard_root"})) f.reshard_root = c.flag({"reshard_root"}, false);
  f.param_dtype = parse_wire_type(c, "param_dtype", WireType::own);
  f.reduce_dtype = parse_wire_type(c, "reduce_dtype", WireType::own);
  f.no_sync = c.flag({"no_sync"}, false);
  f.wrap_embedding = c.flag({"wrap_embedding"}, false);
  f.checkpoint_inside = c.flag({"checkpoint_inside"}, false);
  f.keep_last = c.flag({"keep_last"}, false);
  return f;
}

TensorParallelSettings parse_tensor_parallel(const Json& value) {
  const Config c = process_fields(value, "tensor_parallel", {"world", "rank", "sequence", "loss_parallel"});
  TensorParallelSettings t;
  t.world = world_of(c);
  t.rank = rank_of(c, t.world, "ranks count from 0");
  t.sequence = c.flag({"sequence"}, false);
  t.loss_parallel = c.flag({"loss_parallel"}, false);
  return t;
}

void check(const ParallelSettings& p) {
  std::vector<std::string> kinds;
  if (p.ddp || p.zero1) kinds.push_back(p.ddp ? "ddp" : "zero1");
  if (p.fsdp) kinds.push_back("fsdp");
  if (p.fsdp1) kinds.push_back("fsdp1");
  if (p.deepspeed) kinds.push_back("zero");
  if (p.tensor && !p.fsdp) kinds.push_back("tensor_parallel");  // a mesh of fully_shard and tensor parallelism is
  if (kinds.size() > 1) throw Error("[job] " + kinds[0] + " with " + kinds[1] + " is not simulated", "leave one of them out");
  if (!p.ddp || !p.zero1) return;
  if (p.ddp->world != p.zero1->world)
    throw Error(fmt::format("[zero1] world {} is not that of ddp, {}", p.zero1->world, p.ddp->world),
                "the same processes reduce gradients and share the optimizer's states");
  if (!p.zero1->ddp) throw Error("[zero1] ddp: false, but the job has a ddp setting", "leave one of them out");
}

nlohmann::ordered_json to_json(const DdpSettings& d) {
  return {{"world", d.world},
          {"bucket_mb", d.bucket_mb ? nlohmann::ordered_json(*d.bucket_mb) : nlohmann::ordered_json(nullptr)},
          {"bucket_view", d.bucket_view},
          {"find_unused_parameters", d.find_unused_parameters},
          {"static_graph", d.static_graph},
          {"broadcast_buffers", d.broadcast_buffers},
          {"no_sync", d.no_sync}};
}

nlohmann::ordered_json to_json(const Zero1Settings& z) {
  return {{"world", z.world}, {"rank", z.rank}, {"ddp", z.ddp}, {"parameter_view", z.parameter_view}};
}

nlohmann::ordered_json to_json(const FsdpSettings& f) {
  nlohmann::ordered_json j{{"world", f.world}, {"rank", f.rank}, {"replicas", f.replicas}};
  if (f.reshard_to > 0)
    j["reshard"] = f.reshard_to;
  else
    j["reshard"] = f.reshard;
  if (f.reshard_root) j["reshard_root"] = *f.reshard_root;
  j["param_dtype"] = to_string(f.param_dtype);
  j["reduce_dtype"] = to_string(f.reduce_dtype);
  j["no_sync"] = f.no_sync;
  j["wrap_embedding"] = f.wrap_embedding;
  j["checkpoint_inside"] = f.checkpoint_inside;
  j["keep_last"] = f.keep_last;
  return j;
}

nlohmann::ordered_json to_json(const TensorParallelSettings& t) {
  return {{"world", t.world}, {"rank", t.rank}, {"sequence", t.sequence}, {"loss_parallel", t.loss_parallel}};
}

std::string to_string(const ParallelSettings& p) {
  if (p.megatron) return to_string(*p.megatron);
  if (p.torchtitan) return to_string(*p.torchtitan);
  if (p.fsdp && p.tensor) return fmt::format("FSDP2 rank {} of {} x tensor parallel on {}", p.fsdp->rank, p.fsdp->world, p.tensor->world);
  if (p.fsdp && p.fsdp->replicas > 1) return fmt::format("HSDP, {} copies of {} shards", p.fsdp->replicas, p.fsdp->shards());
  if (p.fsdp) return fmt::format("FSDP2 rank {} of {}", p.fsdp->rank, p.fsdp->world);
  if (p.fsdp1) return to_string(*p.fsdp1);
  if (p.deepspeed) return to_string(*p.deepspeed);
  if (p.tensor) return fmt::format("tensor parallel on {}{}", p.tensor->world, p.tensor->sequence ? " with sequence parallel" : "");
  if (p.zero1) return fmt::format("ZeRO-1 rank {} of {}", p.zero1->rank, p.zero1->world);
  return p.ddp ? fmt::format("DDP on {}", p.ddp->world) : "";
}

}  // namespace plimsoll
