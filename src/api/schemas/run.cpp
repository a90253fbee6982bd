// What `run` says: beforehand, and of each of its decisions.
#include "api/schemas/parts.h"
#include "api/schemas/schemas.h"
#include "supervise/failure.h"

namespace plimsoll {

namespace {

using namespace shape;

// A line of events.jsonl: when, which event, in which start of the command.
Shape event(std::vector<std::string> names, const ShapeMembers& members) {
  return object(ShapeMembers{{"time", text("when, in UTC: 2026-11-16T15:32:58.802Z")},
                             {"event", word(std::move(names), "what happened")},
                             {"attempt", integer("starts of the command so far")}} +
                members);
}

const ShapeMember kReason{"reason", text("why, in one sentence")};
ShapeMember settings_member() { return {"settings", text("micro-batch x accumulation and workers; empty: not known")}; }
Shape words_of_command() { return texts("the command's words"); }

Shape end_of_attempt() {
  return event({"end"}, {{"exit_code", integer("the command's; 128 + the signal that ended it")},
                         {"seconds", number("how long it ran")},
                         {"kind", word(names_up_to(FailureKind::other), "why it ended")},
                         kReason,
                         {"sources", texts("what said so")},
                         {"ranks", list(integer("a rank"), "ranks that ran out of memory, where they are known"), kSometimes},
                         {"step", integer("the last step that its output told"), kSometimes},
                         {"limit", bytes("memory of the device that the command could have"), kSometimes},
                         {"left_behind", integer("processes that it left behind and that were ended"), kSometimes}});
}

}  // namespace

Shape run_shape() {
  const auto known = [](const char* meaning) { return null_or(integer(std::string(meaning) + "; null: the command does not say it")); };
  return answer_shape(
      "run", 1,
      {{"settings", object({{"batch", known("samples per micro-batch")},
                            {"accumulation", known("micro-batches per step")},
                            {"workers", known("workers of the loader")}},
                           "what the command says")},
       {"written_as", text("how the command is given other settings; empty: it cannot be")},
       {"taken_by_name", text("flags that were taken for a setting by their name alone; empty: none")},
       {"unchangeable", text("why it cannot be given other settings; empty: it can")},
       {"sizes", list(object({{"batch", integer("samples per micro-batch")}, {"accumulation", integer("micro-batches per step")}}),
                      "the size to begin with, then those that follow an out-of-memory error each; empty: not known")},
       {"simulated", flag("whether the largest size that fits by simulation is tried first")},
       {"resume_flag", text("the flag with which the command goes on from its last checkpoint; empty: as it does by itself")},
       {"state", text("the folder of the run's state and events")},
       {"notes", texts("what the first estimate says")}});
}

Shape run_events_shape() {
  return one_of({
      event({"begin"},
            {{"command", words_of_command()}, settings_member(), kReason, {"resumes_by", text("how it goes on; empty: by itself")}}),
      event({"go_on", "gave_up", "finished"}, {settings_member(), kReason}),
      event({"start"}, {{"command", words_of_command()},
                        settings_member(),
                        {"written", texts("files that were written with other settings")},
                        {"environment", map(text("its value"), "variables that were set")}}),
      end_of_attempt(),
      event({"decision"}, {settings_member(), {"allocator", text("PYTORCH_CUDA_ALLOC_CONF from now on; empty: as it was")}, kReason}),
      event({"measured"}, {kReason, {"device", text("the device's name")}, {"bytes", bytes("the most that the run had there")}}),
      event({"wait"}, {{"seconds", number("until the next start")}, kReason}),
      event({"state_lost"}, {kReason, {"kept", text("where the old state is"), kSometimes}}),
      event({"estimate", "warning", "hung", "not_started", "stopped", "requeue"}, {kReason}),
  });
}

}  // namespace plimsoll
