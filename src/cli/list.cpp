#include "api/list.h"

#include <memory>

#include "cli/command.h"
#include "util/text.h"

namespace plimsoll {

std::function<ExitCode()> set_up_list(CLI::App& app) {
  auto request = std::make_shared<ListRequest>();
  auto output = std::make_shared<OutputFlags>();
  app.add_option("what", request->what, join(list_request_keys().front().choices, ", "))->required()->type_name("WHAT");
  output->add_to(app);
  app.add_flag_callback(
      "--markdown", [output] { output->format = "markdown"; }, "the tables of docs/job-file.md and docs/optimizers.md: --format markdown");
  return [request, output] { return answer(*request, output->show()); };
}

}  // namespace plimsoll
