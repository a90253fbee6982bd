// Every recorded run of real PyTorch is predicted to the byte: peak, phases, steps and breakdown. One case for each file of tests/truth;
// the rows that each must have are in tests/truth/ROWS, so none can be lost.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "score/score.h"

namespace plimsoll::truth_test {
namespace {

namespace fs = std::filesystem;
const fs::path kFolder = fs::path(PLIMSOLL_SOURCE_DIR) / "tests" / "truth";

struct RecordedFile {
  std::string name;  // without .jsonl
  size_t rows = 0;
};

void PrintTo(const RecordedFile& f, std::ostream* out) { *out << f.rows << " rows"; }

// Lines of "rows name".
std::vector<RecordedFile> recorded_files() {
  std::vector<RecordedFile> files;
  std::ifstream in(kFolder / "ROWS");
  for (RecordedFile f; in >> f.rows >> f.name;) files.push_back(f);
  return files;
}

class Truth : public ::testing::TestWithParam<RecordedFile> {};

TEST_P(Truth, EveryRowIsEqualToTheByte) {
  const std::vector<RecordedRow> rows = read_recorded_rows((kFolder / (GetParam().name + ".jsonl")).string());
  EXPECT_EQ(rows.size(), GetParam().rows) << "tests/truth/ROWS has another number";
  for (size_t i = 0; i < rows.size(); i += PLIMSOLL_ROW_STEP) {
    const RecordedRow& row = rows[i];
    EXPECT_EQ(row.unsupported, "") << row.id;
    const Score s = score_row(row);
    EXPECT_TRUE(s.exact()) << s.id << ": measured " << s.measured << ", predicted " << s.predicted << ", phases " << s.phase_peaks_equal
                           << ", breakdown " << s.breakdown_equal << ", steps " << s.step_peaks_equal << " " << s.unsupported;
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, Truth, ::testing::ValuesIn(recorded_files()), [](const auto& file) { return file.param.name; });

TEST(TruthFiles, AreThoseThatAreCounted) {
  std::set<std::string> counted, there;
  size_t rows = 0;
  for (const RecordedFile& f : recorded_files()) {
    counted.insert(f.name);
    rows += f.rows;
  }
  for (const auto& entry : fs::directory_iterator(kFolder))
    if (entry.path().extension() == ".jsonl") there.insert(entry.path().stem().string());
  EXPECT_EQ(there, counted) << "tests/truth/ROWS has a line for each file";
  std::ifstream in(kFolder / "../../README.md");
  const std::string readme{std::istreambuf_iterator<char>(in), {}}, number = std::to_string(rows) + " recorded training steps";
  EXPECT_NE(readme.find(number), std::string::npos) << "the README has another number than " << rows;
}

}  // namespace
}  // namespace plimsoll::truth_test
