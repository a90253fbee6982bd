#include "xla/program.h"

namespace plimsoll {

// Operands come before the ops that read them, so one pass from the end is enough. Constants that nothing reads are none of the
// arguments; parameters and the batch are, as the caller holds them.
void remove_unused(XlaProgram& program) {
  program.used.assign(program.ops.size(), false);
  for (const XlaOutput& out : program.outputs) program.used[out.op] = true;
  for (size_t i = program.ops.size(); i-- > 1;)
    if (program.used[i])
      for (const OpId operand : program.ops[i].operands) program.used[operand] = true;
  std::erase_if(program.arguments, [&](OpId id) { return !program.used[id] && program.ops[id].category == Category::buffer; });
}

}  // namespace plimsoll
