// Rows recorded by others from real PyTorch.
#include "evidence/evidence.h"
#include "score/score.h"

namespace plimsoll::rows_evidence {
namespace {

class Rows : public ::testing::TestWithParam<const char*> {};

TEST_P(Rows, AreEqualToTheByte) {
  int equal = 0, unsupported = 0;
  for (const RecordedRow& row : read_recorded_rows(evidence(std::string("truth/pytorch/") + GetParam() + ".jsonl").string())) {
    const Score s = score_row(row);
    unsupported += !row.unsupported.empty();
    equal += s.exact();
    EXPECT_TRUE(s.exact() || !row.unsupported.empty())
        << s.id << ": measured " << s.measured << ", predicted " << s.predicted << " " << s.unsupported;
  }
  std::cout << GetParam() << ": " << equal << " rows equal, " << unsupported << " not supported\n";
  EXPECT_GT(equal, 0);
}

INSTANTIATE_TEST_SUITE_P(Recorded, Rows, ::testing::Values("small", "dev", "dist-dev", "seeds-dev"), [](const auto& file) {
  std::string name = file.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

}  // namespace
}  // namespace plimsoll::rows_evidence
