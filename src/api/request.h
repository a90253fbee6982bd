// The parts of a request that verbs share, in the words of flags and of JSON: which run, which devices. A flag of a command and a key of
// the library's JSON fill the same fields.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api/request_keys.h"
#include "estimate/fit.h"
#include "job/config.h"
#include "job/job.h"
#include "job/patch.h"

namespace plimsoll {

// What is run: `run` and `job` are read in turn, settings win over both.
struct JobRequest {
  std::vector<std::string> run;  // a model, a file, a directory, or the words of a training command
  std::string job_file;
  Patch settings;
  std::map<std::string, std::string> origin;  // who gave each of them: "--batch"
  std::string as = {};                        // the reader of `run` that is insisted on; empty: its content tells

  void set(const std::string& key, nlohmann::json value, const std::string& origin);
  void add(const JobRequest& other);  // its settings, where this has none
  Job job() const;                    // with the model resolved
};

// What it is asked to fit.
struct DeviceRequest {
  std::vector<std::string> names;  // of the catalogue, counted ("8xh100-sxm"), sizes like 24GiB or 24GB, or `this`
  std::string group, in_use;       // "all"; a size

  // Empty when none was asked for. Throws an Error for a name that fits no device, and when this machine has none.
  std::vector<TargetDevice> devices() const;
  // How many of it there are, when one kind is named: 8 of "8xh100-sxm". Throws an Error for a count among several names.
  int64_t count() const;
  // What was taken for names that are none of the catalogue, one sentence each.
  std::vector<std::string> notes() const;
};

// The same question to a verb, about one of the devices ("": about none), to be typed.
std::string command_text(const std::string& verb, const JobRequest& job, const DeviceRequest& devices, const std::string& device);

// Those of this machine that a run may use.
std::vector<TargetDevice> visible_devices();

// One device is a fact about the run; of several none is.
std::optional<DeviceSpec> only_device(const std::vector<TargetDevice>& devices);
std::vector<Fit> fits_of(Runs& runs, const Job& job, const std::vector<TargetDevice>& devices);
// 0 when one of them fits, 4 when at best it is tight, 3 when none does; 0 without devices or when nothing is known.
ExitCode exit_code_of(const std::vector<Fit>& fits);

// Their keys in a request of the library (run, job, settings; gpu, gpus, in_use), and what they say. Errors name the key and the value.
const std::vector<RequestKey>& job_keys();
const std::vector<RequestKey>& device_keys();
JobRequest job_request(const Config& request);
DeviceRequest device_request(const Config& request);

}  // namespace plimsoll
