#include "supervise/plain_settings.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "supervise/shell_command.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Names = std::vector<std::string_view>;

// The names of transformers, DeepSpeed, Megatron-LM, timm, fairseq, MMEngine, torchtitan and their like. The first list says that it is a
// device's own batch; the second leaves that open; the third is of one letter or two, which other flags have as well.
const std::array<Names, 3>& batch_names() {
  static const std::array<Names, 3> kNames{
      Names{"micro_batch_size", "microbatch_size", "micro_batch", "micro_bs", "micro_batch_size_per_gpu", "train_micro_batch_size_per_gpu",
            "per_device_train_batch_size", "per_device_batch_size", "per_gpu_train_batch_size", "per_gpu_batch_size", "device_batch_size",
            "local_batch_size", "batch_size_per_gpu", "batch_size_per_device", "samples_per_gpu", "imgs_per_gpu", "images_per_gpu", "mbs"},
      Names{"batch_size", "batchsize", "train_batch_size", "train_batchsize", "mini_batch_size", "minibatch_size", "batch", "train_batch"},
      Names{"b", "bs"}};
  return kNames;
}

const Names kAccumulationNames{"gradient_accumulation_steps",
                               "gradient_accumulation",
                               "grad_accumulation_steps",
                               "grad_accum_steps",
                               "grad_accum",
                               "grad_acc_steps",
                               "accumulation_steps",
                               "accumulate_grad_batches",
                               "accum_steps",
                               "accum_iter",
                               "accumulation",
                               "accum",
                               "update_freq"};
const Names kWorkerNames{"num_workers", "dataloader_num_workers", "data_workers", "n_workers", "workers"};

bool among(const Names& names, std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); }

bool is_whole(std::string_view text, bool positive) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string_view::npos) return false;
  return !positive || text.find_first_not_of('0') != std::string_view::npos;
}

// A flag or key with a whole number: "--batch-size 8", "--batch_size=8", "-b 8", "train.batch_size=8".
struct Said {
  std::string name;  // as it stands there: "--batch-size", "train.batch_size"
  std::string key;   // what it is called: "batch_size"
  std::string value;
  std::string words;
};

std::string called(std::string_view name) {
  name.remove_prefix(std::min(name.size(), name.find_first_not_of("-+")));
  const size_t dot = name.rfind('.');
  std::string key = lower(dot == std::string_view::npos ? name : name.substr(dot + 1));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

// Capitals before a "=" are a variable of `env`.
bool is_name(std::string_view name) {
  return !name.empty() && name.find_first_of("/:{}' \"") == std::string_view::npos &&
         name.find_first_of("abcdefghijklmnopqrstuvwxyz") != std::string_view::npos;
}

std::vector<Said> said_in(const std::vector<std::string>& command) {
  std::vector<Said> out;
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (!is_name(name)) continue;
    if (equals != std::string::npos) {
      out.push_back({name, called(name), word.substr(equals + 1), word});
    } else if (word.starts_with("-") && i + 1 < command.size()) {
      out.push_back({name, called(name), command[i + 1], word + " " + command[i + 1]});
    }
  }
  return out;
}

// The last of several counts, as it does for argparse.
void take_last(std::string& where, const Said& said, const char* what) { where = said.name + "=" + what; }

}  // namespace

PlainSettings plain_settings(const std::vector<std::string>& command) {
  PlainSettings out;
  if (shell_command(command)) return out;  // what its words say is the shell's
  const std::vector<Said> all = said_in(command);
  for (const Said& s : all) {
    if (among(kAccumulationNames, s.key) && is_whole(s.value, true)) take_last(out.accumulation, s, "{accumulation}");
    if (among(kWorkerNames, s.key) && is_whole(s.value, false)) take_last(out.workers, s, "{workers}");
  }
  for (const Names& names : batch_names()) {
    for (const Said& s : all) {
      if (!among(names, s.key) || !is_whole(s.value, true)) continue;
      const std::string as_template = s.name + "={batch}";
      const auto known = std::find(out.batch.begin(), out.batch.end(), as_template);
      if (known != out.batch.end()) {
        out.words[static_cast<size_t>(known - out.batch.begin())] = s.words;
        continue;
      }
      out.batch.push_back(as_template);
      out.words.push_back(s.words);
    }
    if (!out.batch.empty()) break;
  }
  return out;
}

}  // namespace plimsoll
