// Megatron-LM's own layers, buffers, optimizer and schedule on PyTorch.
#include "program/simulated_program.h"
#include "step/megatron_step.h"

namespace plimsoll {

namespace {

class MegatronProgram final : public SimulatedProgram {
 public:
  const char* name() const override { return "Megatron-LM"; }
  bool takes(const Job& job) const override { return job.program.megatron.has_value(); }

  Problems problems(const Job& job) const override {
    Problems out;
    check_megatron(job, out);
    return out;
  }

  Ranks ranks(const Job& job) const override {
    const MegatronSettings& s = *job.program.megatron;
    return pipeline_ranks(s.pipeline, s.stage, [](Job& j, int64_t stage) { j.program.megatron->stage = stage; });
  }

  Simulation simulate(const Job& job, const Detail& detail) const override { return simulate_megatron(job, detail.shapes, detail.work); }
};

}  // namespace

const Program& megatron_program() {
  static const MegatronProgram kProgram;
  return kProgram;
}

}  // namespace plimsoll
