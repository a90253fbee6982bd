#include <CLI/CLI.hpp>
#include <iostream>

#include "estimate/score.h"

int main(int argc, char** argv) {
  using namespace plimsoll;
  CLI::App app;
  auto* score = app.add_subcommand("score", "");
  std::vector<std::string> files;
  std::string walk;
  score->add_option("files", files);
  score->add_option("--walk", walk);
  CLI11_PARSE(app, argc, argv);
  int bad = 0, total = 0;
  for (auto& f : files)
    for (auto& row : read_recorded_rows(f)) {
      Score s = score_row(row);
      ++total;
      if (s.exact()) continue;
      ++bad;
      std::cout << s.id << " " << s.measured << " " << s.predicted << " err " << s.error() << " phases " << s.phase_peaks_equal << " breakdown " << s.breakdown_equal << " steps "
                << s.step_peaks_equal << " params " << s.parameters_equal << " " << s.unsupported << "\n";
      if (!walk.empty() && s.unsupported.empty()) {
        try { std::cout << first_difference(row, walk + "/" + row.id + ".json") << "\n"; } catch (const std::exception& e) { std::cout << e.what() << "\n"; }
      }
    }
  std::cout << total - bad << " of " << total << " exact\n";
}
