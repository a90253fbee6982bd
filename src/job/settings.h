// Every setting of a Job in one table: its key in job files, its flag, its help, the member it sets, how that is read and printed, and
// the programs that have it. Files, flags, `plimsoll list settings`, docs/job-file.md, values_of() and the `job` of every JSON answer are
// made from it, so each flag has a key, each key a flag, and what is printed can be read again.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/field.h"
#include "job/job.h"

namespace plimsoll {

// In the order of job files and of the `job` object.
enum class SettingGroup : uint8_t {
  model,
  batch,
  precision,
  adapters,
  activations,
  loss,
  optimizer,
  loop,
  parallel,
  framework,
  host,
};
const char* to_string(SettingGroup g);

// Whose step a setting belongs to.
enum class Programs : uint8_t { pytorch, jax, both };
const char* to_string(Programs p);

struct Setting : Field<Job> {  // key: "batch"; its flag is --batch, with '-' for '_'
  const char* value;           // what the value looks like: "N", "fp32|amp|...", "" for a switch
  const char* help;
  Programs programs = Programs::pytorch;
  SettingGroup group = SettingGroup::model;  // job_settings() fills it in
};

const std::vector<Setting>& job_settings();
const Setting* find_setting(const std::string& key);  // null: there is none
std::string flag_of(const Setting& s);
// As printed of a job that nobody has said anything about.
const nlohmann::ordered_json& default_of(const Setting& s);

// Applies one value and remembers where it came from. Unknown keys and wrong values throw an Error.
void apply_setting(Job& job, const std::string& key, const nlohmann::json& value, const std::string& origin);
// The value of a flag as JSON: numbers, true/false and null by their look, the rest as text.
nlohmann::json parse_scalar(const std::string& text);

// The settings that a job has, in the form that apply_setting reads: null where there is none (no clipping, no adapter of that kind).
// `global_batch` is batch by another name and not among them.
std::map<std::string, nlohmann::json> values_of(const Job& job);
nlohmann::json value_of(const Job& job, const std::string& setting);

// All settings by group, beside them `family` (a fact: it follows from the model) and `origin`, who gave which. The answer to this object
// as a job file is the answer to the job.
nlohmann::ordered_json job_json(const Job& job);
// Reads a mapping of settings, or what job_json wrote. With `origin` in it, a setting that it does not name and that is as by default
// counts as not given; so does null, for a setting that has no default. `name`: the file, for messages and as the origin of what has none.
void apply_settings(Job& job, const nlohmann::json& values, const std::string& name);
// Whether each of its keys is a setting, or stands beside them in job_json.
bool is_job_json(const nlohmann::json& values);

}  // namespace plimsoll
