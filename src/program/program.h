// What can be executed: a simulated model under one of the engines that train it. A program judges a job by its settings, says which of
// its ranks differ, and runs it; nobody above sees which program it is. One file each, and a line in programs().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "job/job.h"
#include "program/run.h"

namespace plimsoll {

class Program {
 public:
  virtual ~Program() = default;
  virtual const char* name() const = 0;
  virtual bool takes(const Job& job) const = 0;
  // Every reason that settings and configuration tell why it cannot execute the job.
  virtual Problems problems(const Job& job) const = 0;
  virtual Ranks ranks(const Job&) const { return {}; }  // by default all are alike
  // What of the device decides about memory: jobs that differ in nothing else are one execution.
  virtual std::string target_key(const Job& job, const Target& target) const = 0;
  // Of a job that has no problems, for that target.
  virtual std::shared_ptr<const Run> execute(const Job& job, const Target& target, const Detail& detail) const = 0;
};

const std::vector<const Program*>& programs();
// The first that takes the job; the last takes any.
const Program& program_of(const Job& job);

// The only judge of what is possible: every problem at once, none of them found by executing. The first is what execute() throws. What only
// building or running the model can tell is left to attempt() (program/run.h).
Problems problems(const Job& job);

const Program& pytorch_program();
const Program& torchtitan_program();
const Program& megatron_program();
const Program& jax_program();
const Program& captured_program();

}  // namespace plimsoll
