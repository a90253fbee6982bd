// Published measurements of GPUs.
#include <map>

#include "evidence/evidence.h"
#include "score/published_report.h"
#include "score/published_score.h"

namespace plimsoll::published_evidence {
namespace {

// The claims of docs/accuracy.md, on the rows that can be expressed.
TEST(Published, MediansAndIntervalsHold) {
  std::map<MeasuredKind, std::vector<PublishedScore>> kinds;
  std::vector<PublishedScore> all, sure;  // sure: how it was run and measured is known
  for (const PublishedRow& r : read_published_rows(evidence("truth/gpu/dev.jsonl").string())) {
    all.push_back(score_published(r));
    kinds[r.kind].push_back(all.back());
    if (r.confidence >= 0.7) sure.push_back(all.back());
  }
  EXPECT_LE(summarise("", kinds[MeasuredKind::allocated]).median, 0.02);
  EXPECT_LE(summarise("", kinds[MeasuredKind::resting]).median, 0.02);
  EXPECT_LE(summarise("", kinds[MeasuredKind::device]).median, 0.05);
  EXPECT_LE(summarise("", sure).above_high, 0.05);
  EXPECT_LE(summarise("", all).above_high, 0.1);
  EXPECT_GE(summarise("", all).predicted, 60);
}

}  // namespace
}  // namespace plimsoll::published_evidence
