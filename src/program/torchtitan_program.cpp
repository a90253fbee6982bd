// torchtitan's own model code and trainer on PyTorch.
#include "program/simulated_program.h"
#include "step/torchtitan_checks.h"
#include "step/torchtitan_step.h"

namespace plimsoll {

namespace {

class TorchtitanProgram final : public SimulatedProgram {
 public:
  const char* name() const override { return "torchtitan"; }
  bool takes(const Job& job) const override { return job.program.torchtitan.has_value(); }

  Problems problems(const Job& job) const override {
    Problems out;
    check_torchtitan(job, out);
    return out;
  }

  Ranks ranks(const Job& job) const override {
    const TorchtitanSettings& s = *job.program.torchtitan;
    return pipeline_ranks(s.pipeline, s.stage, [](Job& j, int64_t stage) { j.program.torchtitan->stage = stage; });
  }

  Simulation simulate(const Job& job, const Detail& detail) const override { return simulate_torchtitan(job, detail.shapes, detail.work); }
};

}  // namespace

const Program& torchtitan_program() {
  static const TorchtitanProgram kProgram;
  return kProgram;
}

}  // namespace plimsoll
