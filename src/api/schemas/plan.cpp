#include "api/schemas/parts.h"
#include "api/schemas/schemas.h"
#include "plan/layout_kinds.h"
#include "plan/levers.h"
#include "plan/search.h"
#include "report/schema_versions.h"

namespace plimsoll {

namespace shape {

namespace {

Shape lever_kind() { return word(names_up_to(LeverKind::different_training), "what the change does to the result of training"); }
Shape lever_outcome() { return word(names_up_to(LeverOutcome::impossible), "what the change does to memory"); }

ShapeMembers planned_members() {
  return {{"changes", settings("what differs from the run as it is")},
          {"flags", text("the same as flags of plimsoll")},
          {"batch", integer("samples of a micro-batch on one device")},
          {"accumulation", integer("micro-batches of an optimizer step")},
          {"devices", integer("devices that train together")},
          {"global_batch", integer("samples of an optimizer step, all devices together")},
          {"seq", integer("the sequence length, or the side of an image")},
          {"device_peak", range("device memory of the process at the peak")},
          {"allocated_bytes", bytes("allocated memory at the peak")},
          {"verdict", verdict("whether it fits")},
          {"extrapolated", flag("whether the figures are drawn from shorter runs")},
          {"time", step_time()}};
}

Shape with_kind(std::string meaning, const ShapeMembers& more = {}) {
  return object(planned_members() + ShapeMembers{{"kind", lever_kind()}} + more, std::move(meaning));
}

Shape rungs(std::string meaning) {
  return list(object(planned_members() + ShapeMembers{{"name", text("safe, or what is done")},
                                                      {"share", number("of the device, at the upper end of the need")}}),
              std::move(meaning));
}

Shape fixes() {
  return list(object({{"name", text("the change")},
                      {"knob", text("the knob that it turns, as in --keep")},
                      {"outcome", lever_outcome()},
                      {"kind", lever_kind()},
                      {"flags", text("the change as flags of plimsoll")},
                      {"saving_bytes", bytes("device memory that it saves; negative: it takes more"), kSometimes},
                      {"slower", null_or(number("time per sample added, as a part of what it is; null: not known")), kSometimes},
                      {"why", text("why it does not help, or cannot be done"), kSometimes}}),
              "each change alone, on top of the run as it is");
}

Shape shortage() {
  return null_or(object(
      {{"missing_bytes", bytes("what the smallest candidate lacks")},
       {"smallest", planned_run("what needs the least of all that is allowed")},
       {"would_fit",
        list(object({{"what", text("a smaller goal")}, {"flags", text("how to ask for it")}, {"run", planned_run("what then fits")}}),
             "smaller goals that would fit")}},
      "nothing that may be changed makes it fit"));
}

std::vector<std::string> layout_titles() {
  std::vector<std::string> out;
  for (const LayoutKind& k : layout_kinds()) out.emplace_back(k.title);
  return out;
}

Shape layout(std::string meaning) {
  return part("layout",
              object({{"kind", word(layout_titles(), "the way it is spread over devices")},
                      {"all_ranks", flag("whether every rank that differs was executed; else the first alone")},
                      {"changes", settings("what differs from the run as it is")},
                      {"flags", text("the same as flags of plimsoll")},
                      {"tensor", integer("devices that share a layer")},
                      {"pipeline", integer("stages")},
                      {"context", integer("devices that share a sequence")},
                      {"expert", integer("devices that share the experts")},
                      {"data", integer("parts that the batch is cut into")},
                      {"virtual_stages", integer("chunks of layers on a stage")},
                      {"batch", integer("samples on one device")},
                      {"accumulation", integer("times that a step goes through them")},
                      {"micro_batch", integer("samples that go through the model at once")},
                      {"global_batch", integer("samples of an optimizer step, all devices together")},
                      {"recompute", word({"none", "full", "selective"}, "activation checkpointing")},
                      {"allocated_bytes", bytes("allocated memory at the peak, on the largest rank")},
                      {"device_peak", range("device memory of the process at the peak, on the largest rank")},
                      {"verdict", verdict("whether it fits")},
                      {"margin_bytes", bytes("what is left at the upper end of the need; negative: missing")},
                      {"time", step_time()}},
                     "one way to spread the run over devices"),
              std::move(meaning));
}

Shape layouts_answer() {
  return answer_shape(
      "plan", kPlanSchema, {"layouts"},
      {{"device", text("the device's name")},
       {"world", integer("devices")},
       {"node", integer("devices of a node")},
       {"network_bytes_per_second", number("what a device reaches other nodes with, in bytes a second")},
       {"global_batch", integer("samples of an optimizer step that were asked for")},
       {"possible", integer("layouts that there are")},
       {"executed", integer("layouts that were executed")},
       {"layouts", list(layout(""), "those that fit, the fastest first")},
       {"would_fit", list(object({{"what", text("a larger cluster or device")},
                                  {"flags", text("how to ask for it")},
                                  {"layout", layout("what then fits")}}),
                          "where nothing fits: on what it would")},
       {"left_out", list(object({{"kind", word(layout_titles(), "a kind of layout")}, {"why", text("why it was not tried")}}),
                         "kinds that were not tried")},
       {"smallest", null_or(layout("what needs the least of all that was executed; null: nothing was"))}});
}

Shape matrix_answer() {
  const Shape row = object({{"device", text("the device's name")},
                            {"settings", settings("of this run, on top of what was asked for")},
                            {"impossible", text("why it cannot be run"), kSometimes},
                            {"device_peak", range("device memory of the process at the peak"), kSometimes},
                            {"verdict", verdict("whether it fits"), kSometimes},
                            {"step_seconds", null_or(number("seconds of an optimizer step; null: not known")), kSometimes}});
  return answer_shape("plan", kPlanSchema, {"matrix"}, {{"matrix", list(row, "each run on each device")}});
}

Shape file_answer() {
  const Shape values = object({{"setting", text("a setting")}, {"before", any("its value in the file")}, {"after", any("its value then")}});
  return answer_shape(
      "plan", kPlanSchema, {"file"},
      {{"path", text("where it was written; empty: nowhere")},
       {"text", text("the whole new file")},
       {"written",
        list(object({{"key", text("a key of the file, or a flag of the command")},
                     {"before", any("its value in the file")},
                     {"after", any("its new value")}}),
             "what differs"),
        kSometimes},
       {"not_written",
        list(object({{"setting", text("a setting")},
                     {"value", any("its value in the plan")},
                     {"instead", text("how to have it all the same")}}),
             "what the file has no word for"),
        kSometimes},
       {"consequences", list(values, "settings that the trainer derives from what was written"), kSometimes},
       {"environment", map(text("its value"), "variables to set beside it"), kSometimes},
       {"plan", planned_run("what the file stands for"), kSometimes},
       {"layout", layout("what the file stands for"), kSometimes},
       {"class", lever_kind(), kSometimes},
       {"start", text("the command that a generated file is for"), kSometimes},
       {"diff", text("the difference from the user's file, line by line"), kSometimes},
       {"as_written",
        object({{"device_peak", range("device memory of the process at the peak")}, {"verdict", verdict("whether it fits")}},
               "the new file, read and executed"),
        kSometimes}});
}

}  // namespace

Shape what_if() {
  return object({{"device_bytes", bytes("device memory as it is")},
                 {"allocated_bytes", bytes("allocated memory as it is")},
                 {"peak_phase", phase("where the peak is")},
                 {"target", text("the device that verdicts are for; empty: none")},
                 {"levers", list(object({{"name", text("the change")},
                                         {"outcome", lever_outcome()},
                                         {"settings", settings("the change as settings")},
                                         {"flags", text("the change as flags of plimsoll")},
                                         {"kind", lever_kind()},
                                         {"cost", text("what it does to the time of a step")},
                                         {"reason", text("why it cannot be done"), kSometimes},
                                         {"saving_bytes", bytes("device memory that it saves; negative: it takes more"), kSometimes},
                                         {"device_bytes", bytes("device memory with it"), kSometimes},
                                         {"allocated_bytes", bytes("allocated memory with it"), kSometimes},
                                         {"verdict", verdict("whether it then fits the target"), kSometimes}}),
                                 "each change alone, executed")},
                 {"left_out", left_out()}},
                "what each change would save");
}

Shape left_out() {
  return null_or(object({{"why", text("the reason")}, {"levers", texts("the changes")}}, "changes that were left out; null: none"));
}

Shape step_time() {
  return null_or(part("step_time",
                      object({{"step_seconds", number("an optimizer step, in seconds: the sum of the parts below")},
                              {"forward", number("seconds of forward")},
                              {"recompute", number("seconds of forward again in backward")},
                              {"backward", number("seconds of backward")},
                              {"optimizer", number("seconds of the update, with clipping and the average of the weights")},
                              {"transfers", number("seconds of transfers between host and device that nothing hides")},
                              {"communication", number("seconds of traffic between devices that nothing hides")},
                              {"bubble", number("seconds in which a pipeline's stage waits")},
                              {"launch", number("seconds that the host needs beyond what the kernels take")},
                              {"flops", number("floating-point operations of a step")},
                              {"bytes", number("bytes that kernels read and write")},
                              {"utilisation", number("the model's operations as a part of what the device could do in that time")},
                              {"samples_per_second", number("samples a second, all devices together")},
                              {"tokens_per_second", number("tokens a second, all devices together; 0: no text")},
                              {"assumptions", texts("figures that stand for missing ones")}},
                             "how long a step takes, by a roofline"),
                      "the time of a step; null: the device's figures are not known"));
}

Shape planned_run(std::string meaning) {
  return part("planned_run", object(planned_members(), "a run that was executed"), std::move(meaning));
}

ShapeMembers plan_members() {
  std::vector<std::string> goals = names_up_to(Objective::sequence);
  goals.emplace_back("gpus");
  return {{"device", text("the device's name")},
          {"device_id", text("its id in the catalogue; empty: it is only a size")},
          {"capacity_bytes", null_or(bytes("memory that a process can have there; null: not known"))},
          {"others_bytes", bytes("what other processes use there")},
          {"limit_bytes", bytes("what the upper end of a need may reach")},
          {"goal", word(goals, "what was optimized")},
          {"global_batch", null_or(integer("samples of an optimizer step that were to be kept; null: any"))},
          {"job", job("the run as it is")},
          {"as_is", object(planned_members() + ShapeMembers{{"impossible", text("why it cannot be run"), kSometimes}},
                           "the run as it is, executed")},
          {"plan", null_or(with_kind("the answer; null: nothing fits", {{"job", job("the run with these changes")}}))},
          {"alternatives", list(with_kind(""), "faster, but more of a change")},
          {"trainer", null_or(text("whose words the plan is in; null: plimsoll's own"))},
          {"beyond", null_or(with_kind("better, with settings that the trainer has no word for; null: nothing is, or nobody asked"))},
          {"shortage", shortage()},
          {"unanswered", null_or(text("why there is neither a plan nor a shortage"))},
          {"front", list(with_kind(""), "memory against time: nothing of its kind, or of less of a change, is both smaller and faster")},
          {"ladder", rungs("the same recipe, closer and closer to the edge")},
          {"after_oom", rungs("what to do after an out-of-memory, one step after the other")},
          {"fixes", fixes()},
          {"left_out", left_out()},
          {"sensitivity", map(bytes("allocated memory"), "what one more sample, token, layer or rank costs")},
          {"batch", null_or(object({{"maximum", integer("samples with which the best estimate fits; 0: not even one")},
                                    {"recommended", integer("samples with which nine tenths of the device are enough, at the upper end")},
                                    {"note", text("what so small a batch does to training; empty: nothing")}},
                                   "the batch; null: not asked for"))},
          {"calibration", null_or(text("what ties times to this machine; null: nothing does"))},
          {"shortened", flag("whether ladders and quick fixes were left out, because a candidate takes seconds")},
          {"extrapolated_from",
           null_or(list(integer("tokens"), "lengths of the short runs that figures are drawn from; null: all were executed in full"))},
          {"executed", integer("candidates that were executed, of all devices together")}};
}

}  // namespace shape

Shape plan_shape() {
  using namespace shape;
  const Shape row =
      object(plan_members() + ShapeMembers{{"command", null_or(text("the training command with the plan's changes; null: nothing fits"))}});
  return one_of(
      {answer_shape("plan", kPlanSchema, {"plan"}, plan_members() + ShapeMembers{{"host", host(), kSometimes}}),
       answer_shape("plan", kPlanSchema, {"plans"}, {{"plans", list(row, "a plan for each device")}}), layouts_answer(), matrix_answer(),
       answer_shape("plan", kPlanSchema, {"flags"},
                    {{"flags", text("what changes, as flags of the trainer or of plimsoll")},
                     {"class", word(names_up_to(LeverKind::different_training), "what the changes do to the result of training")}}),
       file_answer()});
}

}  // namespace plimsoll
