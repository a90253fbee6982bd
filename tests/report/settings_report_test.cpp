// The tables of settings in the documentation are those of the program.
#include "report/settings_report.h"
#include "report/renderers.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "job/settings.h"

namespace plimsoll::settings_report_test {
namespace {

TEST(SettingsReport, TheTablesOfTheDocumentationAreThoseOfTheProgram) {
  std::ifstream in(std::string(PLIMSOLL_SOURCE_DIR) + "/docs/job-file.md");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::string begin = "<!-- settings -->\n", end = "<!-- end of settings -->";
  const size_t from = text.find(begin), to = text.find(end);
  ASSERT_TRUE(from != std::string::npos && to != std::string::npos);
  EXPECT_EQ(text.substr(from + begin.size(), to - from - begin.size()), doc::to_markdown(settings_document()))
      << "write docs/job-file.md anew: plimsoll list settings --markdown";
}

TEST(SettingsReport, ARowForEverySetting) {
  const nlohmann::ordered_json rows = settings_json();
  ASSERT_EQ(rows.size(), job_settings().size());
  for (const auto& row : rows)
    for (const char* key : {"key", "flag", "value", "default", "group", "programs", "help"}) EXPECT_TRUE(row.contains(key)) << row.dump();
}

}  // namespace
}  // namespace plimsoll::settings_report_test
