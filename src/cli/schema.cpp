#include "api/schema.h"

#include <filesystem>
#include <memory>

#include "cli/command.h"
#include "util/output_file.h"

namespace plimsoll {

namespace {

struct SchemaFlags {
  SchemaRequest request;
  std::string all;
  OutputFlags output;
};

void save_schemas(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const std::string& name : schema_names())
    write_output_file((std::filesystem::path(folder) / (name + ".json")).string(), answer_schema(name));
}

}  // namespace

std::function<ExitCode()> set_up_schema(CLI::App& app) {
  auto flags = std::make_shared<SchemaFlags>();
  app.footer(
      "Examples:\n"
      "  plimsoll schema estimate                   what `plimsoll estimate --json` prints\n"
      "  plimsoll schema plan --request             what plimsoll_plan() takes\n"
      "  plimsoll list schemas                      whose schemas there are\n"
      "  plimsoll schema --all schemas              all of them as files\n"
      "Exit codes: 0 done, 2 wrong usage, 1 a bug.");
  CLI::Option* verb =
      app.add_option("verb", flags->request.verb, "whose answer; error: what the library answers when it cannot")->type_name("VERB");
  app.add_flag("--request", flags->request.request, "the schema of the request instead");
  app.add_option("--all", flags->all, "write every answer's schema to this folder")->type_name("DIR")->excludes(verb);
  flags->output.add_to(app);
  return [flags] {
    if (!flags->all.empty()) return save_schemas(flags->all), ExitCode::ok;
    return answer(flags->request, flags->output.show());
  };
}

}  // namespace plimsoll
