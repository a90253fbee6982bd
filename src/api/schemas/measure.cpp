// What `measure --json` prints: a program of its own, which trains for real.
#include "api/schemas/parts.h"
#include "api/schemas/schemas.h"
#include "trace/trace.h"

namespace plimsoll {

namespace {

using namespace shape;

Shape measured_step() {
  const Shape evaluation = object({{"loss", number("its mean loss")},
                                   {"peak", bytes("the most that was alive in it")},
                                   {"batch", integer("samples per batch")},
                                   {"out_of_memory", integer("times that memory ran out in it")}},
                                  "the evaluation after the step");
  return object({{"step", integer("its number, from 1")},
                 {"loss", null_or(number("mean loss of the step; null: not a number"))},
                 {"seconds", number("how long it took")},
                 {"peak", bytes("the most that was alive in it")},
                 {"phases", bytes_by(names_up_to(static_cast<Phase>(kPhases - 1), phase_name), "the peak of each phase")},
                 {"micro_batch", integer("samples per micro-batch")},
                 {"out_of_memory", integer("times that memory ran out in it")},
                 {"limit", bytes("what it could have; 0: no limit")},
                 {"decision", text("what changes for the next step, and why; empty: nothing")},
                 {"evaluation", evaluation, kSometimes}});
}

}  // namespace

Shape measure_shape() {
  const Shape recipe = object({{"lr", number("learning rate")},
                               {"weight_decay", number("weight decay")},
                               {"betas", list(number("a decay"), "decays of Adam's averages")},
                               {"eps", number("added to the denominator")}},
                              "arguments of the optimizer");
  const Shape before = object({{"bytes", bytes("what they took beyond their simulation")}, {"runs", integer("how many")}},
                              "like runs that were measured on this machine");
  const Shape expected = object({{"bytes", bytes("the peak, as simulated and corrected")},
                                 {"simulated_bytes", bytes("the peak as simulated")},
                                 {"measured_before", before, kSometimes},
                                 {"step_seconds", number("time of a step of the same job when it was last measured"), kSometimes}},
                                "what was expected of the run");
  const Shape row = object({{"what", text("a step and phase, or a category at the peak")},
                            {"measured", bytes("what the training had")},
                            {"simulated", bytes("what the simulation has")}});
  return answer_shape("measure", 1,
                      {{"model", text("the model")},
                       {"parameters", integer("its parameters")},
                       {"trainable", integer("of them, those that are trained")},
                       {"recipe", recipe},
                       {"limit", bytes("memory of the virtual device; 0: no limit")},
                       {"peak", bytes("the most that was alive")},
                       {"expected", expected},
                       {"steps", list(measured_step(), "the steps of the run")},
                       {"simulated",
                        object({{"equal", flag("whether all rows are equal")}, {"rows", list(row, "peaks and what they are made of")}},
                               "the same job in the simulator, with --compare"),
                        kSometimes},
                       {"first_difference", text("the first allocation that differs, with --walk; empty: none does"), kSometimes}});
}

}  // namespace plimsoll
