// Every row of docs/capabilities.md names a command that shows the capability and a text to look for: each is run here.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "util/text.h"

namespace plimsoll::capabilities_test {
namespace {

namespace fs = std::filesystem;
const std::string kRoot = PLIMSOLL_SOURCE_DIR;

struct Row {
  int number = 0;
  std::string command;
  std::string expected;
};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// "`a`" is a; anything else is nothing.
std::string quoted(const std::string& cell) {
  return cell.size() > 2 && cell.front() == '`' && cell.back() == '`' ? cell.substr(1, cell.size() - 2) : "";
}

std::vector<Row> read_rows() {
  std::ifstream in(kRoot + "/docs/capabilities.md");
  std::vector<Row> rows;
  std::string line;
  while (std::getline(in, line)) {
    if (!line.starts_with("| ") || !std::isdigit(static_cast<unsigned char>(line[2]))) continue;
    const std::vector<std::string> cells = split_at(line, '|');
    EXPECT_EQ(cells.size(), 6u) << line;
    rows.push_back({std::stoi(cells[1]), quoted(trimmed(cells[3])), quoted(trimmed(cells[4]))});
    EXPECT_FALSE(rows.back().command.empty() || rows.back().expected.empty()) << line;
  }
  return rows;
}

struct Result {
  std::string output;
  int code = -1;
};

Result run(const std::string& command) {
  const std::string line = "cd '" + kRoot + "' && PATH=\"$(dirname '" PLIMSOLL_BINARY "'):$PATH\" NO_COLOR=1 " + command + " 2>&1";
  Result r;
  FILE* pipe = popen(line.c_str(), "r");
  char chunk[4096];
  while (const size_t n = fread(chunk, 1, sizeof chunk, pipe)) r.output.append(chunk, n);
  r.code = WEXITSTATUS(pclose(pipe));
  return r;
}

TEST(Capabilities, AllAreListedOnce) {
  std::set<int> numbers;
  for (const Row& r : read_rows()) EXPECT_TRUE(numbers.insert(r.number).second) << r.number;
  ASSERT_EQ(numbers.size(), 99u);
  EXPECT_EQ(*numbers.begin(), 1);
  EXPECT_EQ(*numbers.rbegin(), 99);
}

// 0, and the answers "no", "tight" and "no such hardware here".
TEST(Capabilities, CommandsShowThem) {
  std::map<std::string, Result> results;
  int shown = 0;
  for (const Row& row : read_rows()) {
    if (row.command.starts_with("plimsoll measure") && !fs::exists(fs::path(PLIMSOLL_BINARY).parent_path() / "plimsoll-measure")) {
      std::cout << "skipped: " << row.number << ", as plimsoll-measure is not built (no libtorch)\n";
      continue;
    }
    if (!results.contains(row.command)) results[row.command] = run(row.command);
    const Result& r = results[row.command];
    EXPECT_TRUE(r.code == 0 || r.code == 3 || r.code == 4 || r.code == 6)
        << row.number << ": " << row.command << " ended with " << r.code << "\n"
        << r.output;
    EXPECT_NE(r.output.find(row.expected), std::string::npos)
        << row.number << ": '" << row.expected << "' is not in what `" << row.command << "` prints:\n"
        << r.output;
    ++shown;
  }
  EXPECT_GT(shown, 0);
  std::cout << shown << " of 99 capabilities shown by " << results.size() << " commands\n";
}

}  // namespace
}  // namespace plimsoll::capabilities_test
