#include "step/stage_result.h"

namespace plimsoll {

Simulation stage_result(Tape& tape, const std::vector<Parameter*>& parameters, Work work, bool details) {
  tape.work = nullptr;
  Simulation result;
  for (const Parameter* p : parameters) result.parameters += p->value.numel();
  result.trainable = result.parameters;
  if (details)
    for (const Parameter* p : parameters)
      result.parameter_list.push_back(
          {tape.trace.scope_path(tape.scope_of(p->value)) + "." + p->name, p->value.numel(), p->value.requires_grad()});
  result.work = std::move(work);
  result.trace = std::move(tape.trace);
  return result;
}

}  // namespace plimsoll
