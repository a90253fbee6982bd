#include "api/score.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/request_flags.h"

namespace plimsoll {

namespace {

struct ScoreFlags {
  ScoreRequest request;
  OutputFlags output;
};

OnProgress counting() {
  if (!isatty(STDERR_FILENO)) return {};
  return [](size_t done, size_t total, const char*) {
    std::cerr << (done == total ? std::string("\r\033[K") : fmt::format("\r{} of {}", done, total)) << std::flush;
    return true;
  };
}

}  // namespace

std::function<ExitCode()> set_up_score(CLI::App& app) {
  auto flags = std::make_shared<ScoreFlags>();
  app.footer(
      "Each line of a file is one run recorded from real PyTorch (tools/recorder/README.md). Rows that are equal in every\n"
      "respect are counted, not listed; --all lists them too. --walk DIR compares event by event with DIR/<id>.json.\n"
      "Exit code 0 when every row that can be simulated is equal, 3 when one differs.\n"
      "A file of measurements from real GPUs (rows with a `measured` object) is scored by kind and family instead: error, share\n"
      "within 5 and 10 %, share under-predicted, share inside the stated interval. --markdown prints the tables of docs/accuracy.md.\n"
      "Examples:\n"
      "  plimsoll score tests/truth/transformers.jsonl\n"
      "  plimsoll score gpu_rows.jsonl --all");
  app.add_option("files", flags->request.files, "recorded rows, one JSON object a line")->required()->type_name("FILE.jsonl");
  add_flags(app, score_keys(), flags->request);
  flags->output.add_to(app);
  app.add_flag_callback(
      "--markdown", [flags] { flags->output.format = "markdown"; }, "the tables of docs/accuracy.md: --format markdown");
  return [flags] { return answer(flags->request, flags->output.show(counting())); };
}

}  // namespace plimsoll
