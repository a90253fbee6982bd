#include "api/schemas/parts.h"

#include "estimate/verdict.h"
#include "job/finding.h"
#include "report/captured_report.h"
#include "trace/trace.h"

namespace plimsoll::shape {

ShapeMembers range_members() {
  return {
      {"bytes", bytes("the best estimate")}, {"low_bytes", bytes("the lower end of the interval")}, {"high_bytes", bytes("its upper end")}};
}

Shape range(std::string meaning) { return part("byte_range", object(range_members(), "a size with its interval"), std::move(meaning)); }

Shape verdict(std::string meaning) { return word(names_up_to(Verdict::unknown), std::move(meaning)); }

Shape phase(std::string meaning) { return word(names_up_to(static_cast<Phase>(kPhases - 1), phase_name), std::move(meaning)); }

Shape category(std::string meaning) { return word(names_up_to(static_cast<Category>(kCategories - 1), category_name), std::move(meaning)); }

Shape bytes_by(const std::vector<std::string>& names, std::string meaning) {
  ShapeMembers members;
  for (const std::string& name : names) members.push_back({name, bytes(name), kSometimes});
  return object(members, std::move(meaning));
}

Shape tree(std::string meaning) {
  const Shape node = object({{"name", text("what it is")},
                             {"bytes", bytes("the sum over all below it")},
                             {"repeats", integer("how many alike are in this row"), kSometimes},
                             {"children", list(part("tree", "a part of it"), "its parts, the largest first"), kSometimes}},
                            "a row and what it consists of");
  return part("tree", node, std::move(meaning));
}

Shape captured() {
  const Shape sizes = map(integer("a size"), "by the names of the symbols");
  return object({{"script", text("what was captured; empty: a trace of numbers")},
                 {"torch", text("the version of PyTorch it ran under; empty: not known")},
                 {"grade", word(capture_grades(), "how sure the answer is")},
                 {"sizes", sizes},
                 {"captured_sizes", sizes},
                 {"assumptions", list(text("one thing that was not known, with its line"), "empty: nothing was assumed")},
                 {"conditions", list(object({{"condition", text("a comparison of sizes, which holds here")},
                                             {"kind", word({"guard", "pin"}, "a branch of the program, or a size read as a number")},
                                             {"where", text("the line that needs it")}}),
                                     "where the program is the one that was captured")},
                 {"interval_from_counts", flag("whether sizes follow from the data: the intervals hold none and all of it")},
                 {"capture_command", text("a fresh capture at these sizes")}},
                "a captured program (docs/trace-format.md): settings of `job` that it does not follow have their defaults");
}

Shape findings() {
  return list(object({{"effect", word(names_up_to(Effect::note), "how the setting differs from what it says")},
                      {"setting", text("the setting it is about; empty: the whole file")},
                      {"source", text("where it is written")},
                      {"what", text("what happens")},
                      {"why", text("the reason; may be empty")}}),
              "settings that do not do what they say, and what else is good to know");
}

Shape overheads(std::string meaning) {
  return list(object(ShapeMembers{{"name", text("what holds it")}} + range_members() +
                     ShapeMembers{{"source", text("where the figure comes from")}}),
              std::move(meaning));
}

Shape correction(std::string meaning) {
  return part("correction",
              object({{"residual_bytes", bytes("measured minus predicted, which was added")},
                      {"runs", integer("like runs that were measured on this machine")},
                      {"lowest_bytes", bytes("the least of their residuals")},
                      {"highest_bytes", bytes("the largest of them")},
                      {"before", range("what was predicted without it")}},
                     "what measured runs on this machine changed"),
              std::move(meaning));
}

Shape fits(std::string meaning) {
  const Shape failure = object({{"step", text("the step it is in")},
                                {"phase", phase("the phase of that step")},
                                {"module", text("the module that asked for it")},
                                {"op", text("the op that asked for it")},
                                {"tried_bytes", bytes("what it asked for")},
                                {"message", text("PyTorch's message as it would be")}},
                               "the first allocation that fails");
  return list(part("fit",
                   object({{"device", text("the device's name")},
                           {"device_id", text("its id in the catalogue; empty: it is only a size")},
                           {"verdict", verdict("whether it fits there")},
                           {"reason", text("why")},
                           {"capacity", null_or(object(range_members() + ShapeMembers{{"basis", text("how it is known")}},
                                                       "memory that a process can have there"))},
                           {"margin_bytes", null_or(bytes("what is left at the best estimate; negative: missing"))},
                           {"others_bytes", bytes("what other processes use there")},
                           {"allocated", range("torch.cuda.max_memory_allocated()")},
                           {"reserved", range("torch.cuda.max_memory_reserved()")},
                           {"device_peak", range("device memory of the process at the peak")},
                           {"overheads", overheads("what lies outside of the allocator there")},
                           {"correction", correction("what measured runs changed"), kSometimes},
                           {"retries", integer("times the cache was emptied to make room")},
                           {"first_failure", null_or(failure)}},
                          "a verdict on one device"),
                   ""),
              std::move(meaning));
}

}  // namespace plimsoll::shape
