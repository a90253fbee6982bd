// PyTorch's own viewer over a run that was only simulated: torch.cuda._memory_viz of whatever PyTorch is installed opens the file that
// `estimate --snapshot` writes, and its figures are ours.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace plimsoll::memory_viz_test {
namespace {

using Json = nlohmann::json;

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return out;
  std::array<char, 4096> piece{};
  while (const size_t n = fread(piece.data(), 1, piece.size(), pipe)) out.append(piece.data(), n);
  return pclose(pipe) == 0 ? out : "";
}

TEST(MemoryViz, OpensAPredictedRunAndCountsTheSame) {
  const std::string file = (std::filesystem::temp_directory_path() / ("plimsoll_viz_" + std::to_string(::getpid()) + ".pickle")).string();
  for (const std::string settings : {"", " --alloc-conf expandable_segments:True"}) {
    const Json ours = Json::parse(
        output_of(std::string(PLIMSOLL_BINARY) + " estimate gpt2 --batch 2 --seq 64 --json --snapshot " + file + settings), nullptr, false);
    ASSERT_FALSE(ours.is_discarded());
    Json viewed{{"missing", "python3"}};
    for (const std::string python : {"python3", "/usr/bin/python3"}) {
      const Json answer = Json::parse(output_of(python + " " PLIMSOLL_SOURCE_DIR "/tests/memory_viz.py " + file), nullptr, false);
      if (answer.is_discarded()) continue;
      viewed = answer;
      if (!viewed.contains("missing")) break;
    }
    std::filesystem::remove(file);
    if (viewed.contains("missing"))
      GTEST_SKIP() << "PyTorch's viewer is not here to be asked (" << viewed["missing"] << "): install python3-torch";
    // Entries have what was asked for, blocks what it was rounded to.
    EXPECT_EQ(viewed["peak"], ours["peak_bytes"]);
    EXPECT_EQ(viewed["segments"], viewed["reserved"]);
    EXPECT_EQ(viewed["memory"], viewed["reserved"]);
    EXPECT_LE(viewed["reserved"], ours["reserved_peak_bytes"]);
    EXPECT_EQ(viewed["allocated"], ours["memory"]["resting"]["bytes"]);
    EXPECT_EQ(viewed["stats"], true);
    if (!viewed["whole"].get<bool>()) continue;
    EXPECT_EQ(viewed["trace"], std::to_string(viewed["entries"].get<int64_t>()) + " entries");
    EXPECT_EQ(viewed["trace_plot"], true);
    EXPECT_EQ(viewed["segment_plot"], true);
  }
}

}  // namespace
}  // namespace plimsoll::memory_viz_test
