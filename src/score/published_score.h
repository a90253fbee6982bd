// Predictions beside what people measured on real GPUs, each of the kind that was measured, with its interval.
#pragma once

#include "estimate/byte_range.h"
#include "score/published_row.h"

namespace plimsoll {

struct PublishedScore {
  std::string id, family;
  MeasuredKind kind = MeasuredKind::allocated;
  double confidence = 1;
  int64_t measured = 0;
  ByteRange predicted;
  std::string unsupported;  // why there is no prediction

  double error() const { return static_cast<double>(predicted.bytes.count - measured) / static_cast<double>(measured); }
};

PublishedScore score_published(const PublishedRow& row);

// One line of the report: rows of one family or kind.
struct PublishedSummary {
  std::string name;
  int rows = 0, predicted = 0;
  // Shares of all rows; a row without a prediction is a miss.
  double within_5 = 0, within_10 = 0;
  // Of the predicted rows: medians of |error| and of the signed error; shares whose prediction, and whose upper bound, was below
  // the measurement; the share inside the interval.
  double median = 0, signed_median = 0, below = 0, above_high = 0, inside = 0;
};

PublishedSummary summarise(const std::string& name, const std::vector<PublishedScore>& scores);

}  // namespace plimsoll
