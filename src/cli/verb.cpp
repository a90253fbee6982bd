// The command of a verb that has no file of its own here: a flag for each key of its request, and the answer as it is. A verb about a run
// has the flags of every run, one about devices those of every device.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "api/request.h"
#include "api/verbs.h"
#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/job_flags.h"
#include "cli/progress.h"
#include "cli/request_flags.h"
#include "job/settings.h"

namespace plimsoll {

namespace {

struct VerbFlags {
  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<std::string>> lists;
  std::map<std::string, bool> switches;
  std::optional<JobFlags> job;
  std::optional<DeviceFlags> devices;
  OutputFlags output;
};

bool has_key(const std::vector<RequestKey>& keys, const RequestKey& key) {
  return std::any_of(keys.begin(), keys.end(), [&](const RequestKey& k) { return k.key == key.key; });
}

// Those that are keys of a run or of devices have flags of their own.
std::vector<RequestKey> own_keys(const Verb& verb) {
  std::vector<RequestKey> keys = verb.keys();
  const bool run = has_key(keys, job_keys()[0]), devices = has_key(keys, device_keys()[0]);
  std::erase_if(keys, [&](const RequestKey& k) { return (run && has_key(job_keys(), k)) || (devices && has_key(device_keys(), k)); });
  return keys;
}

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
  if (flags.job) {
    const JobRequest job = flags.job->request();
    if (!job.run.empty()) request["run"] = job.run;
    if (!job.job_file.empty()) request["job"] = job.job_file;
    if (!job.settings.empty()) request["settings"] = job.settings.json();
  }
  if (flags.devices) {
    if (!flags.devices->names.empty()) request["gpu"] = flags.devices->names;
    if (!flags.devices->group.empty()) request["gpus"] = flags.devices->group;
    if (!flags.devices->in_use.empty()) request["in_use"] = flags.devices->in_use;
  }
  return request;
}

}  // namespace

std::function<ExitCode()> set_up_verb(CLI::App& app, const Verb& verb) {
  auto flags = std::make_shared<VerbFlags>();
  const std::vector<RequestKey> keys = verb.keys();
  if (has_key(keys, job_keys()[0])) flags->job.emplace().add_input_to(app);
  for (const RequestKey& k : own_keys(verb)) add_key(app, k, *flags);
  if (has_key(keys, device_keys()[0])) flags->devices.emplace().add_to(app);
  flags->output.add_to(app);
  if (flags->job) flags->job->add_to(app);
  if (verb.examples) app.footer(verb.examples);
  return [flags, &verb] {
    return answer_with_progress(flags->output, [&](const Show& show) { return verb.answer(request_from(own_keys(verb), *flags), show); });
  };
}

}  // namespace plimsoll
