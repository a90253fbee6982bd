#include "api/schemas/parts.h"
#include "api/schemas/schemas.h"
#include "report/schema_versions.h"

namespace plimsoll {

namespace shape {

namespace {

ShapeMembers device_members() {
  return {{"device_memory_bytes", null_or(bytes("memory of the device; null: as the recording shows, or no limit"))},
          {"in_use_bytes", bytes("of it, what others use")}};
}

ShapeMembers message_members() {
  return {{"tried_bytes", bytes("what the allocator asked the device for")},
          {"device_free_bytes", bytes("what was free there")},
          {"allocated_bytes", bytes("what tensors had")},
          {"unallocated_bytes", bytes("what the allocator held and no tensor had")},
          {"message", text("PyTorch's message as it would be")}};
}

Shape column() {
  const Shape check = object({{"equal", flag("whether the replay is the recording, byte by byte")},
                              {"allocations", integer("allocations of the recording")},
                              {"allocations_equal", integer("of them, those at the recorded address")},
                              {"operations", integer("operations of the recording")},
                              {"reserved_equal", integer("of them, those after which the reserved bytes agree")},
                              {"first_difference_entry", null_or(integer("the entry that differs first; null: none"))}},
                             "the replay beside what was recorded");
  return object({{"name", word({"recorded", "afresh", "asked"}, "which replay it is")},
                 {"alloc_conf", text("its PYTORCH_CUDA_ALLOC_CONF; empty: the defaults")},
                 {"start", word({"as recorded", "afresh"}, "where blocks that were there at the start lie")},
                 {"allocated_peak_bytes", bytes("torch.cuda.max_memory_allocated()")},
                 {"reserved_peak_bytes", bytes("torch.cuda.max_memory_reserved()")},
                 {"retries", integer("times the cache was emptied to make room")},
                 {"recorded_failures_repeated", integer("failures of the recording that also happen here")},
                 {"recorded_failures_avoided", integer("failures of the recording that do not happen here")},
                 {"at_start", moment(false, "when the recording began")},
                 {"at_allocated_peak", moment(false, "at the peak of allocated memory")},
                 {"at_reserved_peak", moment(false, "at the peak of reserved memory")},
                 {"end", moment(false, "at the end")},
                 {"out_of_memory", null_or(object(failed_allocation_members(false), "the allocation that failed; null: none did"))},
                 {"check", check, kSometimes}});
}

Shape figures_answer(const char* allocator, const ShapeMembers& figures) {
  return answer_shape("replay", kReplaySchema, {allocator},
                      device_members() + ShapeMembers{{"events", integer("events of the trace")}} + figures +
                          ShapeMembers{{"out_of_memory", null_or(object({{"event", integer("the event that failed")},
                                                                         {"requested_bytes", bytes("what it asked for")},
                                                                         {"module", text("the module that asked")},
                                                                         {"op", text("the op that asked")}},
                                                                        "the allocation that failed; null: none did"))}});
}

}  // namespace

Shape moment(bool of_trace, std::string meaning) {
  ShapeMembers where;
  if (of_trace) {
    where.push_back({"event", integer("the event that led there; -1: the start")});
  } else {
    where.push_back({"entry", null_or(integer("the entry of the recording that led there; null: the start"))});
    where.push_back({"place", null_or(text("the line of the user's program; null: not known"))});
  }
  const ShapeMembers figures{
      {"allocated_bytes", bytes("what tensors have, in blocks")},  {"reserved_bytes", bytes("what the allocator holds")},
      {"requested_bytes", bytes("what tensors asked for")},        {"inactive_split_bytes", bytes("free pieces of segments in use")},
      {"fragmentation_bytes", bytes("reserved but in no tensor")}, {"segments", integer("segments that the allocator holds")}};
  return part(of_trace ? "moment" : "recorded_moment", object(where + figures, "the allocator at one moment"), std::move(meaning));
}

ShapeMembers failed_allocation_members(bool of_trace) {
  ShapeMembers where;
  if (of_trace) {
    where.push_back({"event", integer("the event that failed")});
    where.push_back({"requested_bytes", bytes("what it asked for")});
    where.push_back({"module", text("the module that asked")});
    where.push_back({"op", text("the op that asked")});
  } else {
    where.push_back({"entry", null_or(integer("the entry of the recording; null: before the first"))});
    where.push_back({"place", null_or(text("the line of the user's program; null: not known"))});
    where.push_back({"requested_bytes", bytes("what it asked for")});
  }
  return where + message_members();
}

ShapeMembers snapshot_replay_members() {
  const auto state = [](const char* meaning, bool blocks) {
    ShapeMembers members{{"segments", integer("segments")}};
    if (blocks) members.push_back({"blocks", integer("blocks in use")});
    return object(
        members + ShapeMembers{{"allocated_bytes", bytes("what tensors had")}, {"reserved_bytes", bytes("what the allocator held")}},
        meaning);
  };
  const Shape limit = null_or(object({{"least_bytes", bytes("PyTorch held as much")},
                                      {"most_bytes", bytes("and could not have that")},
                                      {"taken_bytes", bytes("what is taken for the limit")}},
                                     "what PyTorch could have when an allocation failed; null: none did"));
  return ShapeMembers{{"device", integer("the device that is looked at")},
                      {"devices", list(integer("a device"), "devices that have events")}} +
         device_members() +
         ShapeMembers{{"recording", object({{"entries", integer("entries of the recording")},
                                            {"microseconds", integer("its length, in microseconds")},
                                            {"streams", integer("streams that allocated")},
                                            {"private_pools", integer("pools of CUDA graphs and the like")},
                                            {"nothing_recorded", flag("whether only the final state is known")},
                                            {"from_the_beginning", flag("whether it begins with an empty allocator")},
                                            {"start", state("when it began", true)},
                                            {"end", state("when it ended", false)},
                                            {"reserved_peak_bytes", bytes("torch.cuda.max_memory_reserved()")},
                                            {"retries", integer("times the cache was emptied to make room")},
                                            {"out_of_memory", integer("allocations that failed")},
                                            {"empty_cache", integer("calls of torch.cuda.empty_cache()")},
                                            {"limit", limit},
                                            {"left_out", integer("entries that do not fit the final state")},
                                            {"unknown_actions", integer("actions of a later PyTorch, ignored")},
                                            {"alloc_conf", text("PYTORCH_CUDA_ALLOC_CONF as recorded; empty: the defaults")},
                                            {"alloc_conf_note", null_or(text("settings that are not replayed; null: none"))}},
                                           "what the snapshot says")},
                      {"replays", list(column(), "the recording, and the same operations under other settings")}};
}

}  // namespace shape

Shape replay_shape() {
  using namespace shape;
  const Shape steps = list(object({{"allocated_peak_bytes", bytes("allocated memory of that step")},
                                   {"reserved_peak_bytes", bytes("reserved memory of that step")}}),
                           "the peaks of each step");
  const Shape trace = answer_shape(
      "replay", kReplaySchema, {"trace"},
      ShapeMembers{{"alloc_conf", text("PYTORCH_CUDA_ALLOC_CONF; empty: the defaults")}} + device_members() +
          ShapeMembers{{"events", integer("events of the trace")},
                       {"allocated_peak_bytes", bytes("torch.cuda.max_memory_allocated()")},
                       {"reserved_peak_bytes", bytes("torch.cuda.max_memory_reserved()")},
                       {"retries", integer("times the cache was emptied to make room")},
                       {"at_allocated_peak", moment(true, "at the peak of allocated memory")},
                       {"at_reserved_peak", moment(true, "at the peak of reserved memory")},
                       {"end", moment(true, "at the end")},
                       {"steps", steps},
                       {"out_of_memory", null_or(object(failed_allocation_members(true), "the allocation that failed; null: none did"))}});
  return one_of({trace, answer_shape("replay", kReplaySchema, {"snapshot"}, snapshot_replay_members()),
                 figures_answer("ideal", {{"tensors_peak_bytes", bytes("the most that is alive at once")},
                                          {"tensors_end_bytes", bytes("what is alive at the end")}}),
                 figures_answer("bfc", {{"in_use_peak_bytes", bytes("the most that chunks in use have")},
                                        {"pool_peak_bytes", bytes("regions taken from the device")},
                                        {"fragmentation_bytes", bytes("in the pool and in no chunk in use, at the peak")},
                                        {"rounding_bytes", bytes("chunks larger than their tensors, at the peak")},
                                        {"largest_free_bytes", bytes("the largest free chunk, at the peak")},
                                        {"regions", integer("regions")}}),
                 figures_answer("pinned", {{"allocated_peak_bytes", bytes("blocks of powers of two")},
                                           {"reserved_peak_bytes", bytes("page-locked memory")},
                                           {"cached_bytes", bytes("reserved and in no tensor, at the peak")},
                                           {"rounding_bytes", bytes("blocks larger than their tensors, at the peak")}})});
}

}  // namespace plimsoll
