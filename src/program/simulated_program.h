// A program on PyTorch: each process of a job is simulated on its own, those that differ all of them, and the one for which a device must
// have most memory is the answer.
#pragma once

#include "program/program.h"

namespace plimsoll {

class SimulatedProgram : public Program {
 public:
  std::string target_key(const Job& job, const Target& target) const final;
  std::shared_ptr<const Run> execute(const Job& job, const Target& target, const Detail& detail) const final;

  // One process: the one that the job names.
  virtual Simulation simulate(const Job& job, const Detail& detail) const = 0;
};

}  // namespace plimsoll
