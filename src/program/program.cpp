#include "program/program.h"

#include <algorithm>

namespace plimsoll {

const std::vector<const Program*>& programs() {
  static const std::vector<const Program*> kPrograms{&captured_program(), &jax_program(), &megatron_program(), &torchtitan_program(),
                                                     &pytorch_program()};
  return kPrograms;
}

const Program& program_of(const Job& job) {
  return **std::find_if(programs().begin(), programs().end() - 1, [&](const Program* p) { return p->takes(job); });
}

Problems problems(const Job& job) {
  Problems out;
  check_collation(job.collation, 0, out);
  check(job.host, out);
  check_framework(job, out);
  for (Problem& p : program_of(job).problems(job)) out.push_back(std::move(p));
  return out;
}

}  // namespace plimsoll
