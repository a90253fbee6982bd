// The loop that people write on PyTorch, in one process or under its wrappers: DDP, ZeRO-1, FSDP2, FSDP1, tensor parallelism, DeepSpeed.
#include <algorithm>

#include "program/simulated_program.h"
#include "step/training_checks.h"

namespace plimsoll {

namespace {

constexpr int64_t kMostRanks = 64;

// Where ranks keep different parts (ZeRO-1, FSDP2, DeepSpeed's ZeRO, FSDP1 with original parameters), the number of the rank in question.
int64_t* rank_setting(ParallelSettings& p) {
  if (p.zero1) return &p.zero1->rank;
  if (p.fsdp) return &p.fsdp->rank;
  if (p.fsdp1) return p.fsdp1->sharded() && p.fsdp1->original_parameters ? &p.fsdp1->rank : nullptr;
  return p.deepspeed ? &p.deepspeed->rank : nullptr;
}

int64_t shards_of(const ParallelSettings& p) { return p.fsdp ? p.fsdp->shards() : p.fsdp1 ? p.fsdp1->shards() : p.world(); }

class PytorchProgram final : public SimulatedProgram {
 public:
  const char* name() const override { return "PyTorch"; }
  bool takes(const Job&) const override { return true; }

  Problems problems(const Job& job) const override {
    Problems out;
    check_training(job, out);
    return out;
  }

  // A job that names a rank other than 0, the default, asks about that one.
  Ranks ranks(const Job& job) const override {
    ParallelSettings p = job.parallel;
    Ranks r;
    const int64_t* rank = rank_setting(p);
    if (!rank) return r;
    const int64_t shards = shards_of(p);
    if (*rank != 0) r.named = *rank;
    r.descending = p.fsdp.has_value();  // fully_shard gives a rank as much of each parameter as the one before it has, or less
    r.left_out = r.descending ? 0 : std::max<int64_t>(0, shards - kMostRanks);
    r.count = r.named ? 1 : shards - r.left_out;
    r.choose = [](Job& j, int64_t number) { *rank_setting(j.parallel) = number; };
    return r;
  }

  Simulation simulate(const Job& job, const Detail& detail) const override { return simulate_training(job, detail.shapes, detail.work); }
};

}  // namespace

const Program& pytorch_program() {
  static const PytorchProgram kProgram;
  return kProgram;
}

}  // namespace plimsoll
