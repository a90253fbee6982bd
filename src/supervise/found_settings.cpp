#include "supervise/found_settings.h"

#include <fmt/format.h>

#include "supervise/plain_settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

FoundSettings by_name(const SupervisorRequest& request, const std::string& why) {
  const PlainSettings plain = plain_settings(request.command);
  if (plain.batch.empty()) return {nullptr, why, ""};
  size_t taken = 0;
  if (plain.batch.size() > 1) {
    if (!request.ask)
      return {nullptr, fmt::format("{} may each be the batch: name it with --set '{}'", join(plain.words, " and "), plain.batch[0]), ""};
    taken = request.ask("which of these is the micro-batch?", plain.words);
  }
  std::vector<std::string> templates{plain.batch.at(taken)};
  for (const std::string* more : {&plain.accumulation, &plain.workers})
    if (!more->empty()) templates.push_back(*more);
  std::string note = fmt::format("{} is taken for the micro-batch", plain.words[taken]);
  if (!plain.accumulation.empty()) note += fmt::format(", {} for the accumulation", split_at(plain.accumulation, '=')[0]);
  return {settings_by_templates(request.command, templates, request.given), "", note + "; --set names others"};
}

}  // namespace

FoundSettings found_settings(const SupervisorRequest& request) {
  if (!request.set.empty()) return {settings_by_templates(request.command, request.set, request.given), "", ""};
  FoundSettings out;
  out.settings = settings_of_trainer(request.command, &out.why);
  return out.settings ? std::move(out) : by_name(request, out.why + "; --set 'NAME={batch}' names it");
}

}  // namespace plimsoll
