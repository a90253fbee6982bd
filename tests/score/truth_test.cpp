// Every recorded run of real PyTorch that a Job can express is predicted to the byte: peak, phases, steps and breakdown.
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>

#include "score/score.h"

namespace plimsoll::truth_test {
namespace {

namespace fs = std::filesystem;

struct Tally {
  int exact = 0, unsupported = 0;
};

Tally expect_exact(const fs::path& file) {
  Tally tally;
  const std::vector<RecordedRow> rows = read_recorded_rows(file.string());
  for (size_t i = 0; i < rows.size(); i += PLIMSOLL_ROW_STEP) {
    const RecordedRow& row = rows[i];
    if (!row.unsupported.empty()) {
      std::cout << row.id << " is left out: " << row.unsupported << "\n";
      ++tally.unsupported;
      continue;
    }
    const Score s = score_row(row);
    EXPECT_TRUE(s.exact()) << s.id << ": measured " << s.measured << ", predicted " << s.predicted << ", phases " << s.phase_peaks_equal
                           << ", breakdown " << s.breakdown_equal << ", steps " << s.step_peaks_equal << " " << s.unsupported;
    tally.exact += s.exact();
  }
  return tally;
}

TEST(Truth, OwnRecordedRowsAreEqualToTheByte) {
  const fs::path folder = fs::path(PLIMSOLL_SOURCE_DIR) / "tests" / "truth";
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jsonl") continue;
    const Tally tally = expect_exact(entry.path());
    std::cout << entry.path().filename().string() << ": " << tally.exact << " rows equal, " << tally.unsupported << " cannot be done\n";
    EXPECT_GT(tally.exact, 0);
    ++files;
  }
  EXPECT_GT(files, 0);
}

TEST(Truth, SharedRowsAreEqualToTheByte) {
  const fs::path folder = fs::path(PLIMSOLL_SOURCE_DIR) / ".." / "shared" / "truth" / "pytorch";
  if (!fs::exists(folder / "dev.jsonl")) GTEST_SKIP() << "skipped: ../shared/truth/pytorch is not here";
  for (const char* name : {"small.jsonl", "dev.jsonl", "dist-dev.jsonl", "seeds-dev.jsonl"}) {
    const Tally tally = expect_exact(folder / name);
    std::cout << name << ": " << tally.exact << " rows equal, " << tally.unsupported << " cannot be done\n";
  }
}

}  // namespace
}  // namespace plimsoll::truth_test
