#include "api/schemas/parts.h"
#include "api/schemas/schemas.h"
#include "score/published_row.h"

namespace plimsoll {

namespace {

using namespace shape;

constexpr const char* kUnsupported = "why there is no prediction; null: there is one";

Shape recorded_answer() {
  const auto equal = [](const char* what) {
    return null_or(flag(std::string("whether ") + what + " are those of PyTorch; null: there is no prediction"));
  };
  const Shape row = object({{"id", text("the row's name")},
                            {"measured_bytes", bytes("the peak that PyTorch had")},
                            {"predicted_bytes", null_or(bytes("the peak that was predicted"))},
                            {"error_bytes", null_or(bytes("predicted minus measured"))},
                            {"phase_peaks_equal", equal("the peaks of phases")},
                            {"breakdown_equal", equal("the bytes of each category")},
                            {"step_peaks_equal", equal("the peaks of steps")},
                            {"pools_equal", equal("the peaks of streams' pools")},
                            {"unsupported", null_or(text(kUnsupported))},
                            {"simulated_seconds", number("seconds that the simulation took"), kSometimes},
                            {"recorded_seconds", number("seconds that PyTorch took"), kSometimes}});
  const Shape summary = object({{"rows", integer("rows")},
                                {"predicted", integer("rows with a prediction")},
                                {"exact", integer("rows in which everything is equal")},
                                {"peak_equal", integer("rows whose peak is equal to the byte")},
                                {"within_1_percent", integer("rows within one percent")},
                                {"unsupported", integer("rows without a prediction")},
                                {"worst_percent", number("the largest error, in percent")},
                                {"worst_id", text("its row; empty: every row is equal")},
                                {"speed_up", number("how many times faster than PyTorch, geometric mean; 0: not recorded")},
                                {"least_speed_up", number("the least of these; 0: not recorded")}},
                               "all rows together");
  const Shape walk = object(
      {{"rows", integer("rows whose events were recorded")},
       {"equal", integer("rows that are equal in every event")},
       {"differences", list(object({{"id", text("the row's name")}, {"first", text("the first event that differs")}}), "the others")}},
      "the comparison event by event");
  return answer_shape("score", 1, {"recorded"}, {{"rows", list(row, "each row")}, {"summary", summary}, {"walk", walk, kSometimes}});
}

Shape published_answer() {
  const Shape row = object({{"id", text("the row's name")},
                            {"family", text("where it was published")},
                            {"kind", word(names_up_to(MeasuredKind::resting), "which counter was published")},
                            {"confidence", number("how well the run is described, 0 to 1")},
                            {"measured_bytes", bytes("what was published")},
                            {"predicted_bytes", null_or(bytes("the best estimate"))},
                            {"low_bytes", null_or(bytes("the lower end of its interval"))},
                            {"high_bytes", null_or(bytes("the upper end of its interval"))},
                            {"error", null_or(number("predicted / measured - 1"))},
                            {"unsupported", null_or(text(kUnsupported))}});
  const Shape group = object({{"name", text("a group of rows")},
                              {"rows", integer("rows")},
                              {"predicted", integer("rows with a prediction")},
                              {"median_error", null_or(number("the median of the absolute errors"))},
                              {"signed_median_error", null_or(number("the median of the errors"))},
                              {"within_5_percent", null_or(number("share of the rows within 5 percent"))},
                              {"within_10_percent", null_or(number("share of the rows within 10 percent"))},
                              {"under_predicted", null_or(number("share of the rows that are predicted too low"))},
                              {"above_high", null_or(number("share of the rows above the interval"))},
                              {"in_interval", null_or(number("share of the rows in the interval"))}});
  return answer_shape("score", 1, {"published"}, {{"rows", list(row, "each row")}, {"summary", list(group, "rows in groups")}});
}

}  // namespace

Shape score_shape() { return one_of({recorded_answer(), published_answer()}); }

}  // namespace plimsoll
