// Differences of texts: what they show is what changed, and nothing else.
#include "util/line_diff.h"

#include <gtest/gtest.h>

#include <random>

#include "util/text.h"

namespace plimsoll::line_diff_test {
namespace {

TEST(LineDiff, OfTheSameTextIsEmpty) {
  EXPECT_EQ(line_diff("", "", "x"), "");
  EXPECT_EQ(line_diff("a\nb\n", "a\nb\n", "x"), "");
}

TEST(LineDiff, ShowsThreeLinesAroundAChange) {
  EXPECT_EQ(line_diff("1\n2\n3\n4\n5\n6\n7\n8\n", "1\n2\n3\n4\nfive\n6\n7\n8\n", "f"),
            "--- f\n+++ f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
}

TEST(LineDiff, KeepsFarChangesApart) {
  std::string before, after;
  for (int i = 0; i < 40; ++i) {
    before += std::to_string(i) + "\n";
    after += (i == 3 || i == 30 ? "new" : std::to_string(i)) + std::string("\n");
  }
  const std::string d = line_diff(before, after, "f");
  EXPECT_NE(d.find("@@ -1,7 +1,7 @@"), std::string::npos) << d;
  EXPECT_NE(d.find("@@ -28,7 +28,7 @@"), std::string::npos) << d;
}

TEST(LineDiff, HoldsEveryChangedLineOfRandomTexts) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::string before, after;
    int removed = 0, added = 0;
    for (int i = 0; i < 60; ++i) {
      const std::string line = "line " + std::to_string(i) + "\n";
      const auto what = random() % 12;
      before += line;
      if (what == 0) {
        ++removed;
        continue;
      }
      if (what == 1) after += "added " + std::to_string(i) + "\n", ++added;
      after += line;
    }
    int minus = 0, plus = 0;
    for (const std::string& line : split_at(line_diff(before, after, "f"), '\n')) {
      minus += line.starts_with("-line");
      plus += line.starts_with("+added");
    }
    EXPECT_EQ(minus, removed);
    EXPECT_EQ(plus, added);
  }
}

}  // namespace
}  // namespace plimsoll::line_diff_test
