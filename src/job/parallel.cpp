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

const Mapping<DdpSettings>& ddp_mapping() {
  using S = DdpSettings;
  static const Mapping<S> kMapping{
      "ddp",
      process_example("ddp"),
      {field::world<S>(),
       {"bucket_mb", [](S& d, const Config& c) { d.bucket_mb = bucket_of(c); },
        [](const S& d) { return d.bucket_mb ? nlohmann::ordered_json(*d.bucket_mb) : nlohmann::ordered_json(nullptr); }},
       field::flag("bucket_view", &S::bucket_view),
       field::flag("find_unused_parameters", &S::find_unused_parameters),
       field::flag("static_graph", &S::static_graph),
       field::flag("broadcast_buffers", &S::broadcast_buffers),
       field::flag("no_sync", &S::no_sync)}};
  return kMapping;
}

const Mapping<Zero1Settings>& zero1_mapping() {
  using S = Zero1Settings;
  static const Mapping<S> kMapping{
      "zero1",
      process_example("zero1"),
      {field::world<S>(), field::rank<S>([](const S& z) { return z.world; }, "ranks count from 0; rank 0 has the largest parameter"),
       field::flag("ddp", &S::ddp), field::flag("parameter_view", &S::parameter_view)}};
  return kMapping;
}

const Mapping<FsdpSettings>& fsdp_mapping() {
  using S = FsdpSettings;
  static const Mapping<S> kMapping{
      "fsdp",
      process_example("fsdp"),
      {field::world<S>(),
       field::replicas<S>(),
       field::rank<S>([](const S& f) { return f.shards(); },
                      "ranks count from 0 among those that share one copy of the weights; rank 0 has the largest shards"),
       {"reshard", [](S& f, const Config& c) { read_reshard(c, f); },
        [](const S& f) { return f.reshard_to > 0 ? nlohmann::ordered_json(f.reshard_to) : nlohmann::ordered_json(f.reshard); }},
       {"reshard_root",
        [](S& f, const Config& c) {
          if (c.find({"reshard_root"})) f.reshard_root = c.flag({"reshard_root"}, false);
        },
        [](const S& f) { return f.reshard_root ? nlohmann::ordered_json(*f.reshard_root) : field::left_out(); }},
       field::wire_type("param_dtype", &S::param_dtype),
       field::wire_type("reduce_dtype", &S::reduce_dtype),
       field::flag("no_sync", &S::no_sync),
       field::flag("wrap_embedding", &S::wrap_embedding),
       field::flag("checkpoint_inside", &S::checkpoint_inside),
       field::flag("keep_last", &S::keep_last)}};
  return kMapping;
}

const Mapping<TensorParallelSettings>& tensor_parallel_mapping() {
  using S = TensorParallelSettings;
  static const Mapping<S> kMapping{"tensor_parallel",
                                   process_example("tensor_parallel"),
                                   {field::world<S>(), field::rank<S>([](const S& t) { return t.world; }, "ranks count from 0"),
                                    field::flag("sequence", &S::sequence), field::flag("loss_parallel", &S::loss_parallel)}};
  return kMapping;
}

}  // namespace

int64_t ParallelSettings::world() const {
  const int64_t outer = ddp         ? ddp->world
                        : zero1     ? zero1->world
                        : fsdp      ? fsdp->world
                        : fsdp1     ? fsdp1->world
                        : deepspeed ? deepspeed->world
                                    : 1;
  return outer * (tensor ? tensor->world : 1);
}

int64_t ParallelSettings::replicas() const { return world() / (tensor ? tensor->world : 1); }

std::optional<DdpSettings> ParallelSettings::reducer() const {
  if (ddp || !zero1 || !zero1->ddp) return ddp;
  DdpSettings d;
  d.world = zero1->world;
  return d;
}

DdpSettings parse_ddp(const Json& value) { return ddp_mapping().read(value); }
Zero1Settings parse_zero1(const Json& value) { return zero1_mapping().read(value); }
FsdpSettings parse_fsdp(const Json& value) { return fsdp_mapping().read(value); }
TensorParallelSettings parse_tensor_parallel(const Json& value) { return tensor_parallel_mapping().read(value); }

nlohmann::ordered_json to_json(const DdpSettings& d) { return ddp_mapping().print(d); }
nlohmann::ordered_json to_json(const Zero1Settings& z) { return zero1_mapping().print(z); }
nlohmann::ordered_json to_json(const FsdpSettings& f) { return fsdp_mapping().print(f); }
nlohmann::ordered_json to_json(const TensorParallelSettings& t) { return tensor_parallel_mapping().print(t); }

void check(const ParallelSettings& p, Problems& out) {
  std::vector<std::string> kinds;
  if (p.ddp || p.zero1) kinds.push_back(p.ddp ? "ddp" : "zero1");
  if (p.fsdp) kinds.push_back("fsdp");
  if (p.fsdp1) kinds.push_back("fsdp1");
  if (p.deepspeed) kinds.push_back("zero");
  if (p.tensor && !p.fsdp) kinds.push_back("tensor_parallel");  // a mesh of fully_shard and tensor parallelism is
  if (kinds.size() > 1) out.push_back({"[job] " + kinds[0] + " with " + kinds[1] + " is not simulated", "leave one of them out"});
  if (!p.ddp || !p.zero1) return;
  if (p.ddp->world != p.zero1->world)
    out.push_back({fmt::format("[zero1] world {} is not that of ddp, {}", p.zero1->world, p.ddp->world),
                   "the same processes reduce gradients and share the optimizer's states"});
  if (!p.zero1->ddp) out.push_back({"[zero1] ddp: false, but the job has a ddp setting", "leave one of them out"});
}

std::string to_string(const ParallelSettings& p) {
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
