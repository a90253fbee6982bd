#include "api/schemas/parts.h"
#include "api/schemas/schemas.h"
#include "estimate/verdict.h"
#include "report/schema_versions.h"

namespace plimsoll {

namespace shape {

namespace {

Shape timeline() {
  return object({{"groups", list(object({{"name", text("its name")},
                                         {"group", text("what people think of it as; of a place its name")},
                                         {"colour", text("of that group, as #rrggbb")}}),
                                 "what the bytes are coloured by")},
                 {"group", list(integer("an index into groups"), "of each change, its group")},
                 {"bytes", list(integer("bytes"), "of each change, what is added; negative: freed")},
                 {"label", list(integer("an index into labels"), "of each change, who made it")},
                 {"marks", list(object({{"at", integer("the change it is before")},
                                        {"kind", word({"step", "phase"}, "what begins")},
                                        {"name", text("its name")}}),
                                "where steps and phases begin")},
                 {"reserved", list(integer("a change, or bytes"), "pairs: a change, and what is reserved from there on in bytes")},
                 {"begins_at", integer("changes that make up what was there before a recording began")},
                 {"peak_at", integer("the change that reaches the peak")},
                 {"peak_bytes", bytes("the most that is alive at once")},
                 {"failures", list(object({{"at", integer("the change it is before")},
                                           {"bytes", bytes("what was asked for")},
                                           {"label", text("who asked; empty: not known")}}),
                                   "allocations of a recording that failed")},
                 {"labels", texts("who allocated: module, op, shape")}},
                "memory change by change");
}

Shape segments() {
  return null_or(
      object({{"count", integer("segments")},
              {"reserved_bytes", bytes("their sum")},
              {"used_bytes", bytes("what tensors have of it")},
              {"free_bytes", bytes("the rest")},
              {"largest_free_bytes", bytes("the largest free piece")},
              {"free_in_used_segments_bytes", bytes("free pieces of segments in use")},
              {"list", list(object({{"size", bytes("the segment")},
                                    {"small", flag("whether it is of the pool for small blocks")},
                                    {"blocks", list(integer("size, group or label"),
                                                    "three numbers for each piece: its size in bytes, its group, its label; -1: free")}}),
                            "each segment")}},
             "the allocator's segments at the peak; null: not known"));
}

Shape numbers() {
  return list(object(ShapeMembers{{"name", text("tensors, allocated, reserved, device or fragmentation")}} + range_members() +
                     ShapeMembers{{"meaning", text("whose counter it is; empty: said by its name")}}),
              "the figures on top");
}

Shape tables() {
  return list(object({{"title", text("its heading")},
                      {"note", text("what it shows")},
                      {"columns", texts("headings of the columns")},
                      {"rows", list(texts("a cell for each column"), "its rows")}}),
              "tables for people");
}

Shape page_verdict() {
  std::vector<std::string> states = names_up_to(Verdict::unknown);
  states.emplace_back("note");
  return object({{"state", word(states, "the verdict; note: none was asked for")},
                 {"sentence", text("the verdict in words")},
                 {"detail", text("the reason; empty: none")}},
                "the first line");
}

ShapeMembers heading() {
  return {{"title", text("the model, or the file")}, {"subtitle", text("the run in short")}, {"verdict", page_verdict()}};
}

Shape bar() {
  return object({{"parts", list(object({{"name", text("what it is")}, {"bytes", bytes("of it")}, {"colour", text("as #rrggbb")}}),
                                "what fills the memory at the peak")},
                 {"limit_bytes", null_or(bytes("what there is; null: not known"))},
                 {"limit_name", text("whose limit it is")}},
                "memory at the peak on one line");
}

Shape measured() {
  return null_or(object(
      {{"source", text("the file, or how it is known")},
       {"numbers", list(object({{"name", text("allocated, reserved or device")}, {"bytes", bytes("measured")}}), "what was measured")},
       {"slices", list(bytes("the most in one part"), "of as many equal parts of the recording; empty: no curve")},
       {"predicted_slices", list(bytes("the most in one part"), "the same of the prediction")}},
      "what a real run needed; null: nobody said"));
}

Shape typed_commands() {
  return null_or(object({{"run", text("the run as it is")},
                         {"levers", texts("of each change of what_if, the run with it")},
                         {"plan", null_or(text("the run with the plan; null: there is none"))}},
                        "what to type; null: a recording has none"));
}

// Of a job and of a recording: what one does not have is null or an empty list.
Shape page() {
  Shape estimate = answer_shape("estimate", kEstimateSchema, estimate_members());
  estimate.meaning = "the estimate; null: a recording has none";
  Shape plan = answer_shape("plan", kPlanSchema, {"plan"}, plan_members());
  plan.meaning = "the plan for the device; null: none was named, or it was not asked for";
  return answer_shape(
      "report", kReportSchema, {"job", "trace", "snapshot", "profile", "timeline"},
      heading() + ShapeMembers{{"headline", text("the answer in one line")},
                               {"capacity", null_or(bytes("memory of the device, or the limit of a recording; null: not known"))},
                               {"bar", bar()},
                               {"commands", typed_commands()},
                               {"numbers", numbers()},
                               {"measured", measured()},
                               {"estimate", null_or(estimate)},
                               {"timeline", timeline()},
                               {"segments", segments()},
                               {"tree", tree("what is alive at the peak, tensor by tensor")},
                               {"ranks", list(object({{"name", text("the rank, or the ranks that are alike")},
                                                      {"allocated", range("torch.cuda.max_memory_allocated()")},
                                                      {"reserved", range("torch.cuda.max_memory_reserved()")},
                                                      {"device", range("device memory of the process")}}),
                                              "processes of one job")},
                               {"fits", fits("a verdict for each device that was asked about, then for the others of the catalogue")},
                               {"asked", integer("how many of these were asked about")},
                               {"what_if", null_or(what_if())},
                               {"plan", null_or(plan)},
                               {"origins", list(object({{"part", word({"run", "model"}, "whose key it is")},
                                                        {"name", text("the key")},
                                                        {"value", text("its value")},
                                                        {"origin", text("who gave it")}}),
                                                "settings and configuration with their origin")},
                               {"findings", findings()},
                               {"executions", integer("how many jobs were executed for this page")},
                               {"tables", tables()},
                               {"assumptions", texts("figures that stand for what no simulation knows")},
                               {"not_modelled", texts("what is left out")}});
}

}  // namespace

ShapeMembers page_members() {
  return heading() +
         ShapeMembers{{"numbers", numbers()}, {"tree", tree("what is alive at the peak")}, {"assumptions", texts("what is good to know")}};
}

}  // namespace shape

Shape report_shape() {
  using namespace shape;
  const Shape document =
      answer_shape("report", kReportSchema, {"document"},
                   {{"format", word({"markdown", "html", "csv"}, "what the text is")}, {"text", text("the whole document")}});
  return one_of({page(), document});
}

}  // namespace plimsoll
