#include "api/schemas/parts.h"
#include "api/schemas/schemas.h"
#include "diagnose/diagnosis.h"
#include "report/schema_versions.h"

namespace plimsoll {

namespace {

using namespace shape;

Shape bundle() {
  return object({{"path", text("where it was written")},
                 {"files", texts("the files in it")},
                 {"left_out", texts("what was removed, for example tokens and names")}},
                "the archive to ask for help with");
}

Shape explained_values(const char* meaning) {
  return list(object({{"name", text("the key")}, {"value", text("its value")}, {"origin", text("who gave it")}}), meaning);
}

Shape job_answer() {
  return answer_shape("explain", kExplainSchema, {"job"},
                      {{"job", job("the run that was executed")},
                       {"trainer", text("whose defaults hold; empty: none")},
                       {"settings", explained_values("settings that say something, with their origin")},
                       {"config", explained_values("keys of the model's configuration that were read")},
                       {"captured", captured(), kSometimes},
                       {"findings", findings()},
                       {"parameters", integer("parameters of the model, on this rank")},
                       {"peak_bytes", bytes("the most that tensors hold at once")},
                       {"memory", null_or(object({{"device", range("device memory of the process")}}, "null: there is no such device"))},
                       {"fits", fits("a verdict for each device that was asked about")},
                       {"bundle", bundle(), kSometimes}});
}

Shape frame(const char* meaning) {
  return null_or(part("frame",
                      object({{"file", text("the file")},
                              {"line", integer("the line")},
                              {"function", text("the function")},
                              {"statement", text("the line's text; empty: not shown")}},
                             "a line of a traceback"),
                      meaning));
}

Shape log_answer() {
  const auto said = [](const char* meaning) { return null_or(bytes(std::string(meaning) + "; null: the log does not say")); };
  return answer_shape(
      "explain", kExplainSchema, {"log"},
      {{"is_oom", flag("whether memory ran out")},
       {"symptom", null_or(text("whose wording it is: pytorch_cuda, kernel_oom; null: none was found"))},
       {"framework", null_or(text("whose error it is; null: not known"))},
       {"memory", word(names_up_to(Memory::none), "which memory ran out")},
       {"certainty", null_or(word(names_up_to(Certainty::possible), "how sure that is; null: there is no symptom"))},
       {"device_index", null_or(integer("the device's number; null: not said"))},
       {"rank", null_or(integer("the rank that failed; null: not said"))},
       {"tried_bytes", said("what was asked for")},
       {"total_bytes", said("memory in all")},
       {"free_bytes", said("what was free")},
       {"allocated_bytes", said("what tensors had")},
       {"reserved_bytes", said("what the allocator held")},
       {"allowed_bytes", said("a limit below the device's size")},
       {"process_bytes", said("all that the process had on the device")},
       {"private_pool_bytes", said("of the allocated memory, in CUDA graphs' pools")},
       {"others_bytes", null_or(bytes("what other processes use there; null: not known"))},
       {"processes",
        list(object({{"pid", integer("a process")}, {"bytes", bytes("what it has on the device")}}), "processes that the error lists")},
       {"shape", null_or(text("of the tensor that was asked for; null: not said"))},
       {"note", null_or(text("what else the error says; null: nothing"))},
       {"fragmentation",
        null_or(word(names_up_to(Fragmentation::unknown), "whether enough was held, but in pieces; null: there is no symptom"))},
       {"phase", null_or(text("what the run was doing; null: not known"))},
       {"first_step", null_or(flag("whether it was the first step; null: not known"))},
       {"progress", null_or(object({{"done", null_or(integer("steps that were done; null: not said"))},
                                    {"total", null_or(integer("steps in all; null: not said"))}},
                                   "null: no step was logged"))},
       {"frame", frame("the innermost line of the user's code; null: no traceback")},
       {"model_frame", frame("the innermost line of the model's code; null: no traceback")},
       {"line", null_or(integer("the log's line; null: there is no symptom"))},
       {"lines", integer("lines of the log")},
       {"text", null_or(text("the error as it is; null: there is no symptom"))},
       {"occurrences", integer("texts that say so")},
       {"ranks", list(integer("a rank"), "ranks that say so")},
       {"recovered", flag("whether steps follow: it was caught")},
       {"run", null_or(object({{"job", job("the run that was executed")},
                               {"device_bytes", bytes("device memory that it needs")},
                               {"peak_bytes", bytes("the most that tensors hold at once")},
                               {"tensors_of_that_size", texts("tensors of the size that was asked for")},
                               {"verdict", null_or(verdict("whether it fits the device of the log; null: its size is not known"))}},
                              "the run whose log it is; null: not named"))},
       {"causes", texts("why, the likeliest first")},
       {"fixes", list(object({{"change", text("what to change")},
                              {"why", text("why it helps")},
                              {"flags", text("the change as flags of plimsoll"), kSometimes},
                              {"saving_bytes", bytes("what it saves"), kSometimes},
                              {"verdict", verdict("whether the run then fits"), kSometimes}}),
                      "what to change, in this order")},
       {"bundle", bundle(), kSometimes}});
}

Shape stats_answer() {
  return answer_shape("explain", kExplainSchema, {"memory_stats"},
                      {{"allocated_bytes", bytes("what tensors have now")},
                       {"allocated_peak_bytes", bytes("torch.cuda.max_memory_allocated()")},
                       {"reserved_bytes", bytes("what the allocator holds now")},
                       {"reserved_peak_bytes", bytes("torch.cuda.max_memory_reserved()")},
                       {"requested_bytes", null_or(bytes("what tensors asked for"))},
                       {"active_bytes", null_or(bytes("blocks that are in use, or wait for a stream"))},
                       {"inactive_split_bytes", null_or(bytes("free pieces of segments in use"))},
                       {"fragmentation_bytes", bytes("held now and in no tensor")},
                       {"segments", null_or(integer("segments that the allocator holds"))},
                       {"retries", null_or(integer("times the cache was emptied to make room"))},
                       {"out_of_memory", null_or(integer("times that was not enough"))},
                       {"findings", texts("what stands out")}});
}

Shape snapshot_answer() {
  const auto holders = [](const char* meaning) {
    return list(
        object(
            {{"name", text("a place in the user's program, or a file")}, {"bytes", bytes("what it holds")}, {"blocks", integer("blocks")}}),
        meaning);
  };
  return answer_shape(
      "explain", kExplainSchema, {"snapshot"},
      snapshot_replay_members() +
          ShapeMembers{
              {"holders", holders("who holds memory at the peak, the largest first")},
              {"holders_by_file", holders("the same, file by file")},
              {"marks",
               object({{"operations", list(integer("an operation"), "where steps begin")}, {"source", text("who says so")}}, "the steps")},
              {"leaks", list(object({{"place", text("a place in the user's program")},
                                     {"bytes", bytes("what is alive at the end")},
                                     {"blocks", integer("blocks")},
                                     {"steps", integer("steps in which they were born")},
                                     {"bytes_per_step", bytes("what a step adds")}}),
                             "what grows from step to step")},
              {"segments_at_end", list(object({{"size_bytes", bytes("the segment")},
                                               {"pool", word({"small", "large"}, "the pool it is in")},
                                               {"used_bytes", bytes("what tensors have of it")},
                                               {"holes", integer("free pieces")},
                                               {"largest_hole_bytes", bytes("the largest of them")},
                                               {"blocks", integer("pieces in all")}}),
                                       "segments at the end")},
              {"other_settings", list(object({{"alloc_conf", text("PYTORCH_CUDA_ALLOC_CONF; empty: the defaults")},
                                              {"reserved_peak_bytes", bytes("torch.cuda.max_memory_reserved()")},
                                              {"retries", integer("times the cache was emptied to make room")},
                                              {"runs_out", flag("whether memory runs out")}}),
                                      "the same operations under other settings")}});
}

}  // namespace

Shape explain_shape() {
  return one_of({job_answer(), log_answer(), snapshot_answer(), stats_answer(),
                 answer_shape("explain", kExplainSchema, {"trace", "profile", "timeline"}, page_members())});
}

}  // namespace plimsoll
