// The command of a verb that has no file of its own here: a flag for each key of its request, and the answer as it is.
#include <memory>
#include <nlohmann/json.hpp>

#include "api/verbs.h"
#include "cli/command.h"
#include "cli/request_flags.h"
#include "job/settings.h"

namespace plimsoll {

namespace {

struct VerbFlags {
  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<std::string>> lists;
  std::map<std::string, bool> switches;
  OutputFlags output;
};

// A key that must be there is an argument without a flag.
void add_key(CLI::App& app, const RequestKey& key, VerbFlags& flags) {
  const std::string name = key.required ? key.key : flag_of_key(key.key);
  if (key.type == KeyType::object || key.type == KeyType::list) return;  // for programs
  CLI::Option* option = key.type == KeyType::flag    ? add_flag_for(app, name, flags.switches[key.key], key.help)
                        : key.type == KeyType::texts ? add_flag_for(app, name, flags.lists[key.key], key.help)
                                                     : add_flag_for(app, name, flags.texts[key.key], key.help);
  option->required(key.required);
  if (!key.choices.empty()) option->check(CLI::IsMember(key.choices));
}

nlohmann::json request_from(const std::vector<RequestKey>& keys, const VerbFlags& flags) {
  nlohmann::json request = nlohmann::json::object();
  for (const RequestKey& k : keys) {
    const bool number = k.type == KeyType::number || k.type == KeyType::integer;
    if (const auto text = flags.texts.find(k.key); text != flags.texts.end() && !text->second.empty())
      request[k.key] = number ? parse_scalar(text->second) : nlohmann::json(text->second);
    if (const auto list = flags.lists.find(k.key); list != flags.lists.end() && !list->second.empty()) request[k.key] = list->second;
    if (const auto on = flags.switches.find(k.key); on != flags.switches.end() && on->second) request[k.key] = true;
  }
  return request;
}

}  // namespace

std::function<ExitCode()> set_up_verb(CLI::App& app, const Verb& verb) {
  auto flags = std::make_shared<VerbFlags>();
  for (const RequestKey& k : verb.keys()) add_key(app, k, *flags);
  flags->output.add_to(app);
  return [flags, &verb] { return verb.answer(request_from(verb.keys(), *flags), flags->output.show()); };
}

}  // namespace plimsoll
