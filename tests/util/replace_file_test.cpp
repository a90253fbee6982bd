#include "util/replace_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "util/error.h"

namespace plimsoll::replace_file_test {
namespace {

namespace fs = std::filesystem;

class ReplaceFile : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  std::string write(const char* name, const char* text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  static std::string content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator())); }
  const fs::path folder_ = fs::temp_directory_path() / ("plimsoll_replace_file_" + std::to_string(getpid()));
};

TEST_F(ReplaceFile, KeepsWhatWasThereAndTheMode) {
  const std::string file = write("a.yaml", "old");
  ASSERT_EQ(::chmod(file.c_str(), 0640), 0);
  EXPECT_EQ(replace_file(file, "old", "new"), file + ".orig");
  EXPECT_EQ(content(file), "new");
  EXPECT_EQ(content(file + ".orig"), "old");
  struct stat facts {};
  ASSERT_EQ(::stat(file.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0640u);
  EXPECT_EQ(replace_file(file, "new", "newer"), file + ".orig.1");
  EXPECT_EQ(content(file + ".orig"), "old");
  EXPECT_EQ(files(), 3u) << "nothing unfinished is left";
}

TEST_F(ReplaceFile, LeavesALinkALink) {
  const std::string file = write("a.yaml", "old"), link = (folder_ / "link.yaml").string();
  fs::create_symlink("a.yaml", link);
  replace_file(link, "old", "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(content(file), "new");
}

TEST_F(ReplaceFile, RefusesWhatSomebodyElseChanged) {
  const std::string file = write("a.yaml", "theirs");
  EXPECT_THROW(replace_file(file, "old", "new"), Error);
  EXPECT_EQ(content(file), "theirs");
  EXPECT_EQ(files(), 1u);
  EXPECT_THROW(replace_file((folder_ / "none").string(), "", "new"), Error);
}

}  // namespace
}  // namespace plimsoll::replace_file_test
