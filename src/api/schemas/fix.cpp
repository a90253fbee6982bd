#include "api/schemas/parts.h"
#include "api/schemas/schemas.h"
#include "plan/levers.h"

namespace plimsoll {

Shape fix_shape() {
  using namespace shape;
  const std::vector<std::string> classes = names_up_to(LeverKind::different_training);
  const ShapeMembers state{{"verdict", verdict("whether it fits")},
                           {"reason", text("why, in one sentence")},
                           {"device_peak", range("device memory of the process at the peak")}};
  const Shape change = object({{"change", text("the change that it is a part of")},
                               {"setting", text("the setting, as job files have it")},
                               {"from", any("its value as it is")},
                               {"to", any("its value with the change")},
                               {"key", text("what says it in the user's file or command, or as a flag of plimsoll")},
                               {"class", word(classes, "what the change does to the result of training")},
                               {"saving_bytes", null_or(bytes("device memory that it saves on top of those before; null: not known"))},
                               {"slower", null_or(number("time per sample that it adds, as a part of what it was; null: not known"))}});
  return answer_shape(
      "fix", 1,
      {{"device", text("the device's name")},
       {"capacity_bytes", bytes("memory that a process can have there")},
       {"trainer", text("whose words the changes are in")},
       {"before", object(state, "the run as it is")},
       {"after", null_or(object(state, "the changed file or command, read and executed; null: nothing is changed, or nothing fits"))},
       {"class", null_or(word(classes, "the most that the changes do to the result of training; null: there are none"))},
       {"changes", list(change, "what is changed, what disturbs least first")},
       {"plan", null_or(planned_run("the run with the changes; null: there are none"))},
       {"flags", text("flags of plimsoll that say the changes, where a model was named; empty: the file or command does")},
       {"diff", text("the difference of the user's file, line by line; empty: none")},
       {"text", text("the whole file, or the command, with the changes; empty: none")},
       {"environment", map(text("its value"), "variables to set beside it")},
       {"would_fit", list(object({{"what", text("a larger device, a smaller goal, or what the trainer has no word for")},
                                  {"flags", text("how to ask for it")},
                                  {"run", planned_run("what then fits")}}),
                          "where nothing fits: what would")},
       {"every_smaller_one", flag("whether all smaller changes were executed and do not fit; false: there were too many")},
       {"written", text("the file that was changed in place; empty: none")},
       {"backup", text("where what was there is; empty: nothing was written")},
       {"executions", integer("runs that were executed")}});
}

}  // namespace plimsoll
