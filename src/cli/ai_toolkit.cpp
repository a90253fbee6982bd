#include "api/ai_toolkit.h"

#include <memory>

#include "cli/command.h"
#include "cli/request_flags.h"

namespace plimsoll {

namespace {

struct AiToolkitFlags {
  AiToolkitRequest request;
  OutputFlags output;
};

// "120" or "120GB", as the toolkit counts.
CLI::Validator gigabytes() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        const std::string given = text;
        if (text.ends_with("GB")) text.resize(text.size() - 2);
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        return !text.empty() && *end == '\0' && value > 0 && value < 1e6 ? "" : fmt::format("'{}' is no number of GB, e.g. 120", given);
      },
      "", "gigabytes");
}

}  // namespace

std::function<ExitCode()> set_up_ai_toolkit(CLI::App& app) {
  auto flags = std::make_shared<AiToolkitFlags>();
  app.footer(
      "The answers of the AI Toolkit's set-up: what its code computes, what its document says, where the two differ, and what the same\n"
      "run needs when it is executed. `plimsoll list ai-toolkit` prints its tables; `plimsoll plan` searches for itself.\n"
      "Examples:\n"
      "  plimsoll ai-toolkit --arch flux --resolution 1024 --vram 24\n"
      "  plimsoll ai-toolkit --arch qwen_image --resolution 2048 --unified 120 --workers 2 --ema\n"
      "Exit codes: 0 done, 2 wrong usage, 5 input not understood, 1 a bug.");
  add_flags(app, ai_toolkit_keys(), flags->request);
  for (const char* name : {"--vram", "--unified", "--ram", "--available-ram"}) app.get_option(name)->transform(gigabytes());
  flags->output.add_to(app);
  return [flags] { return answer(flags->request, flags->output.show()); };
}

}  // namespace plimsoll
