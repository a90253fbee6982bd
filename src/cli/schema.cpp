#include "api/schema.h"

#include <memory>

#include "cli/command.h"

namespace plimsoll {

namespace {

struct SchemaFlags {
  SchemaRequest request;
  OutputFlags output;
};

}  // namespace

std::function<ExitCode()> set_up_schema(CLI::App& app) {
  auto flags = std::make_shared<SchemaFlags>();
  app.footer(
      "Examples:\n"
      "  plimsoll schema estimate                   what `plimsoll estimate --json` prints\n"
      "  plimsoll schema plan --request             what plimsoll_plan() takes\n"
      "  plimsoll list schemas                      whose schemas there are\n"
      "Exit codes: 0 done, 2 wrong usage, 1 a bug.");
  app.add_option("verb", flags->request.verb, "whose answer")->required()->type_name("VERB");
  app.add_flag("--request", flags->request.request, "the schema of the request instead");
  flags->output.add_to(app);
  return [flags] { return answer(flags->request, flags->output.show()); };
}

}  // namespace plimsoll
